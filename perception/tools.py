"""Detection as tools of a language model: what ``recall mcp`` finds as an entry point of this package.

The contract of the group ``sparsight.tools`` (docs/agents.md): a function takes the folder that tools may
look into and gives functions. Names, docstrings and annotated arguments are what a model reads. Each returns
JSON, in which ``picture`` is a PNG.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from perception.detector import Detector
from perception.errors import DataError
from perception.io import find_point_clouds, load_point_cloud
from perception.types import Detections, PointCloud

WEIGHTS = "pointpillars-kitti"
#: Files in a list of scans.
_MOST = 200


class DetectionTools:
    """The tools; each method is one.

    Args:
        folder: of the scans; nothing outside of it is read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._detector: Detector | None = None
        self._loading = threading.Lock()

    def list_scans(
        self,
        folder: Annotated[str, Field(description="a folder among the scans; the whole if left out")] = ".",
    ) -> dict[str, Any]:
        """List LiDAR scans (files of points) and folders that detect_objects can be asked about."""
        place = self._inside(folder)
        if not place.is_dir():
            raise DataError(f"{folder}: no such folder; ask without one to see what there is")
        folders = sorted(self._name(path) for path in place.iterdir() if path.is_dir())
        try:
            scans = [self._name(path) for path in find_point_clouds([place])]
        except DataError:
            scans = []
        return {"scans": scans[:_MOST], "scan_count": len(scans), "folders": folders[:_MOST]}

    def detect_objects(
        self,
        file: Annotated[str, Field(description="a scan, as list_scans names it", min_length=1)],
        min_score: Annotated[
            float | None, Field(description="lowest score; by class if left out", ge=0.0, le=1.0)
        ] = None,
        picture: Annotated[bool, Field(description="also a picture of the scan from above")] = True,
    ) -> dict[str, Any]:
        """Find cars, pedestrians and cyclists in a LiDAR scan: boxes in metres, and a picture from above.

        x is forward, y left and z up from the sensor; yaw counter-clockwise from x in radians. Boxes are in
        the frame of the sensor, not of the memory's map.
        """
        path = self._inside(file)
        try:
            cloud = load_point_cloud(path)
        except DataError as error:
            # As the file was asked for: where the folder lies is nobody's business.
            raise DataError(str(error).replace(f"{self._folder}/", "")) from error
        detector = self._loaded()
        if min_score is not None:
            detector = detector.with_score_threshold(min_score)
        found = detector(cloud)
        told: dict[str, Any] = {
            "sentence": _sentence(self._name(path), found),
            "file": self._name(path),
            "points": len(cloud),
            "objects": _objects(found),
            "warnings": list(found.warnings),
        }
        return told | ({"picture": _picture(self._name(path), cloud, found)} if picture else {})

    def _loaded(self) -> Detector:
        with self._loading:
            if self._detector is None:
                self._detector = Detector.from_pretrained(WEIGHTS)
            return self._detector

    def _inside(self, name: str) -> Path:
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder):
            raise DataError(f"{name}: not among the scans; list_scans says which there are")
        return path

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()


def detection_tools(folder: Path) -> Sequence[Callable[..., dict[str, Any]]]:
    """The tools of a folder of scans; the detector is loaded when it is first asked.

    Args:
        folder: nothing outside of it is read.
    """
    tools = DetectionTools(folder)
    return (tools.list_scans, tools.detect_objects)


def _sentence(name: str, found: Detections) -> str:
    if not len(found):
        return f"Nothing was found in {name}."
    counts = {label: found.labels.count(label) for label in dict.fromkeys(found.labels)}
    away = np.linalg.norm(found.boxes[:, :2], axis=1)
    nearest = int(away.argmin())
    words = ", ".join(f"{count} {label}" for label, count in counts.items())
    return f"Found in {name}: {words}; the nearest is a {found.labels[nearest]}, {away[nearest]:.1f} m away."


def _objects(found: Detections) -> list[dict[str, Any]]:
    names = ("x", "y", "z", "length", "width", "height", "yaw")
    return [
        {
            "label": label,
            "score": round(float(score), 3),
            **{name: round(float(value), 2) for name, value in zip(names, box, strict=True)},
            "distance": round(float(np.hypot(box[0], box[1])), 2),
        }
        for box, score, label in zip(found.boxes, found.scores, found.labels, strict=True)
    ]


def _picture(name: str, cloud: PointCloud, found: Detections) -> bytes:
    from perception.visualise import draw_bev

    with tempfile.TemporaryDirectory() as scratch:
        file = draw_bev(Path(scratch, "scan.png"), cloud, found, title=f"{name}: {len(found)} objects")
        return file.read_bytes()
