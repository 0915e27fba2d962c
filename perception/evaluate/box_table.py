"""Boxes of many frames as one table of arrays: what the protocols without a camera judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Largest magnitude of a number; beyond it products of sizes leave float64.
_LARGEST = 1e100


@dataclass(frozen=True, eq=False, kw_only=True)
class BoxTable:
    """Labels or detections of all frames, in the order of frames.

    Boxes of a frame share axes with z up: those of the LiDAR, or of the world. What is not known may be left
    out.

    Attributes:
        frame: (M,) int64 index of the frame, not decreasing.
        label: (M,) class names.
        boxes: (M, 7) float64 ``x, y, z, length, width, height, yaw``, metres and radians, z at the centre.
        score: (M,) float64; NaN for labels.
        velocity: (M, 2) float64, metres a second along x and y; NaN where unknown.
        attribute: (M,) names of what the object does; empty where unknown.
        points: (M,) int64 LiDAR and radar points inside; -1 where nobody counted.
        distance_m: (M,) float64 from the sensor along the ground; by default that of the box's centre from
            the origin.
        track_id: (M,) int64, the same for a thing in all frames of a scene; -1 where unknown.

    Raises:
        ValueError: columns of other shapes, frames that fall, numbers that are not finite.
    """

    frame: Rows
    label: npt.NDArray[np.str_]
    boxes: Float64Array
    score: Float64Array = None  # type: ignore[assignment]  # filled in below
    velocity: Float64Array = None  # type: ignore[assignment]
    attribute: npt.NDArray[np.str_] = None  # type: ignore[assignment]
    points: Rows = None  # type: ignore[assignment]
    distance_m: Float64Array = None  # type: ignore[assignment]
    track_id: Rows = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        count = len(self.frame)
        boxes = np.asarray(self.boxes, np.float64).reshape(-1, 7)
        defaults = {
            "score": np.full(count, np.nan),
            "velocity": np.full((count, 2), np.nan),
            "attribute": np.full(count, "", np.str_),
            "points": np.full(count, -1),
            "distance_m": np.hypot(boxes[:, 0], boxes[:, 1]),
            "track_id": np.full(count, -1),
        }
        types: dict[str, type] = {
            "frame": np.int64,
            "points": np.int64,
            "track_id": np.int64,
            "label": np.str_,
            "attribute": np.str_,
        }
        for column in fields(self):
            given = getattr(self, column.name)
            given = defaults[column.name] if given is None else given
            made: npt.NDArray[Any] = np.asarray(given, types.get(column.name, np.float64))
            made = made.reshape(-1, {"boxes": 7, "velocity": 2}[column.name]) if made.ndim == 2 else made
            object.__setattr__(self, column.name, boxes if column.name == "boxes" else made)
            if len(getattr(self, column.name)) != count:
                raise ValueError(f"{column.name} has {len(made)} rows, and frame {count}")
        if (np.diff(self.frame) < 0).any():
            raise ValueError("frames must not fall: sort the boxes by frame")
        if not (np.abs(self.boxes) <= _LARGEST).all():
            row = int((~(np.abs(self.boxes) <= _LARGEST)).any(axis=1).argmax())
            raise ValueError(f"box {row} of frame {self.frame[row]} has a number that is not finite")

    def __len__(self) -> int:
        return len(self.frame)

    def rows(self, which: Mask | Rows) -> BoxTable:
        """Some of the boxes: a (M,) mask, or rising row numbers."""
        return BoxTable(**{name: column[which] for name, column in vars(self).items()})

    @classmethod
    def joined(cls, frames: Iterable[BoxTable]) -> BoxTable:
        """One table of several, whose frames are numbered in their order (each table is one frame)."""
        tables = list(frames)
        columns = {
            column.name: np.concatenate([getattr(table, column.name) for table in tables])
            for column in fields(cls)
            if column.name != "frame"
        }
        number = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        return cls(frame=number, **columns) if tables else cls.empty()

    @classmethod
    def of_frame(cls, boxes: npt.ArrayLike, labels: Sequence[str], **columns: npt.ArrayLike) -> BoxTable:
        """The boxes (M, 7) of one frame, with any further columns."""
        made = {name: np.asarray(value) for name, value in columns.items()}
        table = np.asarray(boxes, np.float64).reshape(-1, 7)
        names = np.array(list(labels), np.str_)
        return cls(frame=np.zeros(len(table), np.int64), label=names, boxes=table, **made)

    @classmethod
    def empty(cls) -> BoxTable:
        """No box."""
        return cls.of_frame(np.zeros((0, 7)), [])


def aligned_iou(first: Float64Array, second: Float64Array) -> Float64Array:
    """Intersection over union of boxes of these sizes (P, 3) that lie in the same place: (P,)."""
    shared = np.minimum(first, second).prod(axis=1)
    union = first.prod(axis=1) + second.prod(axis=1) - shared
    return np.asarray(shared / union, np.float64)
