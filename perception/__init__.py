"""Sparse 3-D perception: point clouds in, boxes out."""

from perception.detector import Detector
from perception.types import Boxes3D, Detections, PointCloud

__all__ = ["Boxes3D", "Detections", "Detector", "PointCloud"]
