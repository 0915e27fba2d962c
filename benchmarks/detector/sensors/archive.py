"""Small files of training frames: centimetre-exact points, compressed.

Positions are rounded to 1/128 m and intensities to 1/255, which is below the noise of the sensors.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from perception.train.data.frames import SensorKind, TrainingFrame
from perception.types import FloatArray
from sparse_core.common.files import replacing

_STEPS_PER_M, _STEPS_OF_INTENSITY = 128.0, 255.0


def write_frames(path: Path, frames: Sequence[TrainingFrame]) -> None:
    """Write frames to one compressed file."""
    head = [
        {
            "frame": frame.frame_id,
            "sensor": list(frame.sensor),
            "points": len(frame.points),
            "boxes": frame.boxes.tolist(),
            "labels": frame.labels.tolist(),
        }
        for frame in frames
    ]
    planes = np.concatenate([_planes(frame.points) for frame in frames], axis=1)
    text = json.dumps(head).encode()
    raw = len(text).to_bytes(8, "little") + text + planes.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(lzma.compress(raw, preset=6))


def read_frames(path: Path) -> list[TrainingFrame]:
    """Read the frames of a file."""
    raw = lzma.decompress(path.read_bytes())
    size = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + size])
    planes = np.frombuffer(raw, np.uint8, offset=8 + size).reshape(7, -1)
    frames, first = [], 0
    for item in head:
        own = planes[:, first : first + item["points"]]
        first += item["points"]
        boxes = np.array(item["boxes"], np.float32).reshape(-1, 7)
        labels = np.array(item["labels"], np.int64)
        frames.append(
            TrainingFrame(item["frame"], _points(own), boxes, labels, sensor=SensorKind(*item["sensor"]))
        )
    return frames


def _planes(points: FloatArray) -> np.ndarray:
    """Return (7, N) uint8: low and high bytes of the differences along x, y and z, and the intensity."""
    steps = np.round(points[:, :3].astype(np.float64) * _STEPS_PER_M).astype(np.int64)
    change = np.diff(steps, axis=0, prepend=np.zeros((1, 3), np.int64))
    # An unsigned number for each difference, so that small ones of both signs have a high byte of 0.
    folded = ((change << 1) ^ (change >> 63)).astype(np.uint16)
    intensity = np.round(np.clip(points[:, 3], 0, 1) * _STEPS_OF_INTENSITY).astype(np.uint8)
    return np.concatenate(
        [(folded & 255).T.astype(np.uint8), (folded >> 8).T.astype(np.uint8), intensity[None]]
    )


def _points(planes: np.ndarray) -> FloatArray:
    folded = planes[:3].astype(np.int64) | planes[3:6].astype(np.int64) << 8
    steps = np.cumsum((folded >> 1) ^ -(folded & 1), axis=1)
    points = np.empty((planes.shape[1], 4), np.float32)
    points[:, :3] = (steps / _STEPS_PER_M).T
    points[:, 3] = planes[6] / _STEPS_OF_INTENSITY
    return points
