"""Data sets of many layouts behind one protocol: frames of points, boxes and labels."""

from perception.data.camera import CameraCalibration, CameraObject
from perception.data.kinds import KINDS, frame_beside, open_data_set
from perception.data.projection import boxes_from_objects, in_image, objects_from_boxes
from perception.data.types import DataSet, Frame, OpenDataSets

__all__ = [
    "KINDS",
    "CameraCalibration",
    "CameraObject",
    "DataSet",
    "Frame",
    "OpenDataSets",
    "boxes_from_objects",
    "frame_beside",
    "in_image",
    "objects_from_boxes",
    "open_data_set",
]
