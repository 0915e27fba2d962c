"""Small files of training frames: centimetre-exact points, compressed.

Positions are rounded to 1/128 m, intensities to 1/255 and ages to 1/256 s, which is below the noise of the
sensors.
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

_STEPS_PER_M, _STEPS_OF_INTENSITY, _STEPS_PER_S = 128.0, 255.0, 256.0
_PLANES = 8


def write_frames(path: Path, frames: Sequence[TrainingFrame]) -> None:
    """Write frames to one compressed file."""
    head = [
        {
            "frame": frame.frame_id,
            "sensor": list(frame.sensor),
            "shape": list(frame.points.shape),
            "boxes": frame.boxes.tolist(),
            "labels": frame.labels.tolist(),
            "velocities": frame.velocities.tolist(),
            "unlabelled": list(frame.unlabelled),
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
    planes = np.frombuffer(raw, np.uint8, offset=8 + size).reshape(_PLANES, -1)
    frames, first = [], 0
    for item in head:
        count, columns = item["shape"]
        points = _points(planes[:, first : first + count])[:, :columns]
        first += count
        frames.append(
            TrainingFrame(
                item["frame"],
                points,
                np.array(item["boxes"], np.float32).reshape(-1, 7),
                np.array(item["labels"], np.int64),
                np.array(item["velocities"], np.float32).reshape(-1, 2),
                tuple(item["unlabelled"]),
                SensorKind(*item["sensor"]),
            )
        )
    return frames


def _planes(points: FloatArray) -> np.ndarray:
    """Return (8, N) uint8: low and high bytes of differences along x, y and z, intensity, age."""
    steps = np.round(points[:, :3].astype(np.float64) * _STEPS_PER_M).astype(np.int64)
    change = np.diff(steps, axis=0, prepend=np.zeros((1, 3), np.int64))
    # An unsigned number for each difference, so that small ones of both signs have a high byte of 0.
    folded = ((change << 1) ^ (change >> 63)).astype(np.uint16)
    intensity = np.round(np.clip(points[:, 3], 0, 1) * _STEPS_OF_INTENSITY).astype(np.uint8)
    seconds = points[:, 4] if points.shape[1] > 4 else np.zeros(len(points), np.float32)
    age = np.round(np.clip(seconds * _STEPS_PER_S, 0, 255)).astype(np.uint8)
    return np.concatenate(
        [(folded & 255).T.astype(np.uint8), (folded >> 8).T.astype(np.uint8), intensity[None], age[None]]
    )


def _points(planes: np.ndarray) -> FloatArray:
    folded = planes[:3].astype(np.int64) | planes[3:6].astype(np.int64) << 8
    steps = np.cumsum((folded >> 1) ^ -(folded & 1), axis=1)
    points = np.empty((planes.shape[1], 5), np.float32)
    points[:, :3] = (steps / _STEPS_PER_M).T
    points[:, 3] = planes[6] / _STEPS_OF_INTENSITY
    points[:, 4] = planes[7] / _STEPS_PER_S
    return points
