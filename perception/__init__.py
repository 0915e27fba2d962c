"""Sparse 3-D perception: point clouds in, boxes out."""

from sparse_core.waiting import load_torch

load_torch()  # Before anything below does: frames are many short operations, and threads shall not spin.

from perception.detector import Detector  # noqa: E402
from perception.types import Boxes3D, Detection, Detections, PointCloud  # noqa: E402

__all__ = ["Boxes3D", "Detection", "Detections", "Detector", "PointCloud"]
