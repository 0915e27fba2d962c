"""Sparse 3-D perception: point clouds in, boxes out."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perception.drawing import drawing

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
        # Loaded with the first use: torch takes seconds, and the command line does not always need it.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_MODULES[name]), name)


def _draw_bev(*drawn: Any, **options: Any) -> Path:
    # Loaded with the first picture: most programs draw nothing.
    from perception.visualise import draw_bev

    return draw_bev(*drawn, **options)


drawing.draw_bev = _draw_bev
