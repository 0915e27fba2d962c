"""KITTI data: object folders and sequences."""

from perception.data.kitti.data_set import KittiDataSet, KittiFrame
from perception.data.kitti.files import read_calibration, read_objects, write_calibration, write_objects
from perception.data.kitti.folder import CAMERA_SCANS, WHOLE_SCANS
from perception.data.kitti.sequence import KittiSequence, KittiSequenceFrame
from perception.data.kitti.writer import KittiWriter

__all__ = [
    "CAMERA_SCANS",
    "WHOLE_SCANS",
    "KittiDataSet",
    "KittiFrame",
    "KittiSequence",
    "KittiSequenceFrame",
    "KittiWriter",
    "read_calibration",
    "read_objects",
    "write_calibration",
    "write_objects",
]
