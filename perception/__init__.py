"""Sparse 3-D perception: detect and track objects in LiDAR point clouds."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perception.drawing import drawing
from sparse_core import __version__ as __version__

if TYPE_CHECKING:
    from perception.detector import Detector
    from perception.track import Tracker, Tracks
    from perception.types import Boxes3D, Detection, Detections, PointCloud

__all__ = ["Boxes3D", "Detection", "Detections", "Detector", "PointCloud", "Tracker", "Tracks"]

_MODULES = {
    "Boxes3D": "perception.types",
    "Detection": "perception.types",
    "Detections": "perception.types",
    "Detector": "perception.detector",
    "PointCloud": "perception.types",
    "Tracker": "perception.track",
    "Tracks": "perception.track",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # Import on first use: torch takes seconds, and many commands do not need it.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_MODULES[name]), name)


def _draw_bev(*drawn: Any, **options: Any) -> Path:
    # Import matplotlib with the first picture only.
    from perception.visualise import draw_bev

    return draw_bev(*drawn, **options)


drawing.draw_bev = _draw_bev
