"""KITTI object data: the first kind of data set. Nothing outside knows the names of its files."""

from perception.data.kitti.data_set import KittiDataSet, KittiFrame
from perception.data.kitti.files import read_calibration, read_objects, write_calibration, write_objects
from perception.data.kitti.folder import CAMERA_SCANS, WHOLE_SCANS
from perception.data.kitti.writer import KittiWriter

__all__ = [
    "CAMERA_SCANS",
    "WHOLE_SCANS",
    "KittiDataSet",
    "KittiFrame",
    "KittiWriter",
    "read_calibration",
    "read_objects",
    "write_calibration",
    "write_objects",
]
