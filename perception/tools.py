"""Detection tools for language models, which ``recall mcp`` serves.

An entry point of the group ``sparsight.tools`` takes the folder that tools may read and returns functions
(docs/agents.md). A model sees their names, docstrings and annotated arguments. They return JSON; ``picture``
is a PNG.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from perception.detector import Detector
from perception.errors import DataError
from perception.io import find_point_clouds, load_point_cloud
from perception.types import Detections

WEIGHTS = "pointpillars-kitti"
#: Files in a list of scans.
_MOST = 200


class DetectionTools:
    """Tools for one folder of scans; each public method is a tool.

    Args:
        folder: folder of scans; tools read nothing outside of it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._detector: Detector | None = None
        self._loading = threading.Lock()

    def list_scans(
        self,
        folder: Annotated[str, Field(description="subfolder to list; the top folder by default")] = ".",
    ) -> dict[str, Any]:
        """List the LiDAR scans that detect_objects can read, and their subfolders."""
        place = self._inside(folder)
        if not place.is_dir():
            raise DataError(f"{folder}: no such folder. Call list_scans without a folder to see all.")
        folders = sorted(self._name(path) for path in place.iterdir() if path.is_dir())
        try:
            scans = [self._name(path) for path in find_point_clouds([place])]
        except DataError:
            scans = []
        return {"scans": scans[:_MOST], "scan_count": len(scans), "folders": folders[:_MOST]}

    def detect_objects(
        self,
        file: Annotated[str, Field(description="scan file, as list_scans names it", min_length=1)],
        min_score: Annotated[
            float | None, Field(description="lowest score; by default one per class", ge=0.0, le=1.0)
        ] = None,
        picture: Annotated[bool, Field(description="return a picture of the scan from above")] = True,
    ) -> dict[str, Any]:
        """Find cars, pedestrians and cyclists in a LiDAR scan: boxes in metres, and a picture from above.

        Boxes are in the sensor's frame (x forward, y left, z up; yaw in radians, counter-clockwise from x),
        not in the frame of the memory's map.
        """
        path = self._inside(file)
        try:
            cloud = load_point_cloud(path)
        except DataError as error:
            # Do not reveal the location of the folder.
            raise DataError(str(error).replace(f"{self._folder}/", "")) from error
        detector = self._loaded()
        if min_score is not None:
            detector = detector.with_score_threshold(min_score)
        found = detector(cloud)
        result: dict[str, Any] = {
            "sentence": _sentence(self._name(path), found),
            "file": self._name(path),
            "points": len(cloud),
            "objects": _objects(found),
            "warnings": list(found.warnings),
        }
        if picture:
            title = f"{self._name(path)}: {len(found)} objects"
            result["picture"] = found.plot(cloud=cloud, title=title).png
        return result

    def _loaded(self) -> Detector:
        with self._loading:
            if self._detector is None:
                self._detector = Detector.from_pretrained(WEIGHTS)
            return self._detector

    def _inside(self, name: str) -> Path:
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder):
            raise DataError(f"{name}: outside of the folder of scans. Call list_scans to see all scans.")
        return path

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()


def detection_tools(folder: Path) -> Sequence[Callable[..., dict[str, Any]]]:
    """Return the tools for a folder of scans; the first detection loads the detector.

    Args:
        folder: folder of scans; tools read nothing outside of it.
    """
    tools = DetectionTools(folder)
    return (tools.list_scans, tools.detect_objects)


def _sentence(name: str, found: Detections) -> str:
    if not len(found):
        return f"No objects found in {name}."
    counts = {label: found.labels.count(label) for label in dict.fromkeys(found.labels)}
    away = np.linalg.norm(found.boxes[:, :2], axis=1)
    nearest = int(away.argmin())
    words = ", ".join(f"{count} {label}" for label, count in counts.items())
    return f"Found in {name}: {words}. The nearest is a {found.labels[nearest]}, {away[nearest]:.1f} m away."


def _objects(found: Detections) -> list[dict[str, Any]]:
    names = ("x", "y", "z", "length", "width", "height", "yaw")
    return [
        {
            "label": label,
            "score": round(float(score), 3),
            **{name: round(float(value), 2) for name, value in zip(names, box, strict=True)},
            "distance": round(float(np.hypot(box[0], box[1])), 2),
        }
        for box, score, label in found
    ]
