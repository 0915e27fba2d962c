"""Sparse 3-D perception: point clouds in, boxes out."""

from pathlib import Path
from typing import Any

from sparse_core.waiting import load_torch

load_torch()  # Before anything below does: frames are many short operations, and threads shall not spin.

from perception.detector import Detector  # noqa: E402
from perception.track import Tracker, Tracks  # noqa: E402
from perception.types import Boxes3D, Detection, Detections, PointCloud, drawing  # noqa: E402

__all__ = ["Boxes3D", "Detection", "Detections", "Detector", "PointCloud", "Tracker", "Tracks"]


def _draw_bev(*drawn: Any, **options: Any) -> Path:
    # Loaded with the first picture: most programs draw nothing.
    from perception.visualise import draw_bev

    return draw_bev(*drawn, **options)


drawing.draw_bev = _draw_bev
