"""Files of percepts: outputs of detector and encoder on a drive, for repeated use."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from drive.frames import Frame, Place
from drive.senses import Percept
from perception import Detections, PointCloud
from perception.vectors import packed, unpacked
from sparse_core.common.files import replacing

_NO_CLOUD = PointCloud(np.zeros((0, 4), np.float32))


def write_percepts(path: Path, perceived: Iterable[tuple[Frame, Percept]]) -> None:
    """Write frames without their clouds, with their percepts; the file appears once it is complete.

    Args:
        path: gzipped JSON lines.
        perceived: of one day; the last frame defines the town at the end of the day.
    """
    with replacing(path) as partial, gzip.open(partial, "wt", encoding="utf-8", compresslevel=4) as file:
        last: Frame | None = None
        for frame, percept in perceived:
            file.write(json.dumps(_row(frame, percept)) + "\n")
            last = frame
        present = {} if last is None else last.present
        file.write(json.dumps({key: [label, at.tolist()] for key, (label, at) in present.items()}) + "\n")


def read_percepts(path: Path) -> Iterator[tuple[Frame, Percept]]:
    """Read a file of :func:`write_percepts`; ``present`` of every frame is that of the last."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        *rows, end = [json.loads(line) for line in file]
    present = {int(key): (label, np.array(at)) for key, (label, at) in end.items()}
    for row in rows:
        frame = Frame(
            row["name"],
            row["day"],
            row["time_ns"],
            _NO_CLOUD,
            np.array(row["map_from_lidar"]),
            tuple(Place(key, label, np.array(at)) for key, label, at in row["visible"]),
            present,
            row["standing"],
        )
        detections = Detections(
            np.array(row["boxes"], np.float32).reshape(-1, 7),
            np.array(row["scores"], np.float32),
            row["labels"],
            embeddings=None if row.get("embeddings") is None else unpacked(row["embeddings"], "embeddings"),
        )
        free_m = np.array([np.inf if value is None else value for value in row["free_m"]])
        yield (
            frame,
            Percept(detections, np.array(row["vector"], np.float32), free_m, row["detection_ms"]),
        )


def perceive(frames: Iterable[Frame], senses: Callable[[Frame], Percept]) -> Iterator[tuple[Frame, Percept]]:
    """Yield frames with their percepts."""
    for frame in frames:
        yield frame, senses(frame)


def _row(frame: Frame, percept: Percept) -> dict[str, Any]:
    detections = percept.detections
    return {
        "name": frame.name,
        "day": frame.day,
        "time_ns": frame.time_ns,
        "map_from_lidar": frame.map_from_lidar.tolist(),
        "visible": [[place.key, place.label, place.position.tolist()] for place in frame.visible],
        "standing": frame.standing,
        "boxes": detections.boxes.tolist(),
        "scores": detections.scores.tolist(),
        "labels": detections.labels,
        "embeddings": None if detections.embeddings is None else packed(detections.embeddings),
        "vector": percept.vector.tolist(),
        "free_m": [value if np.isfinite(value) else None for value in percept.free_m.tolist()],
        "detection_ms": percept.detection_ms,
    }
