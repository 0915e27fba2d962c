"""Boxes of many frames as one table of arrays: the input of the protocols without a camera."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Largest valid magnitude; products of larger sizes overflow float64.
_LARGEST = 1e100


@dataclass(frozen=True, eq=False, kw_only=True)
class BoxTable:
    """Labels or detections of all frames, sorted by frame.

    Boxes of a frame share axes with z up, those of the LiDAR or of the world. Columns with a default are
    optional.

    Attributes:
        frame: (M,) int64 frame index, not decreasing.
        label: (M,) class names.
        boxes: (M, 7) float64 ``x, y, z, length, width, height, yaw``, metres and radians, z at the centre.
        score: (M,) float64; NaN for labels.
        velocity: (M, 2) float64, m/s along x and y; NaN if unknown.
        attribute: (M,) nuScenes attribute names; empty if unknown.
        points: (M,) int64 LiDAR and radar points inside; -1 if not counted.
        distance_m: (M,) float64 ground distance from the sensor; by default from the origin to the centre.
        track_id: (M,) int64, constant for an object within a scene; -1 if unknown.

    Raises:
        ValueError: column lengths differ, frames are not sorted, or a number is not finite.
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
                raise ValueError(
                    f"{column.name} has {len(made)} rows, but frame has {count}; pass equal lengths"
                )
        if (np.diff(self.frame) < 0).any():
            raise ValueError("boxes are not sorted by frame; sort them")
        if not (np.abs(self.boxes) <= _LARGEST).all():
            row = int((~(np.abs(self.boxes) <= _LARGEST)).any(axis=1).argmax())
            raise ValueError(f"box {row}, frame {self.frame[row]}: a value is not finite; remove the box")

    def __len__(self) -> int:
        return len(self.frame)

    def rows(self, which: Mask | Rows) -> BoxTable:
        """Return the rows of an (M,) mask, or of increasing row numbers."""
        return BoxTable(**{name: column[which] for name, column in vars(self).items()})

    @classmethod
    def joined(cls, frames: Iterable[BoxTable]) -> BoxTable:
        """Join tables of one frame each; frames are numbered in their order."""
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
        """Return the (M, 7) boxes of one frame as a table, with optional further columns."""
        made = {name: np.asarray(value) for name, value in columns.items()}
        table = np.asarray(boxes, np.float64).reshape(-1, 7)
        names = np.array(list(labels), np.str_)
        return cls(frame=np.zeros(len(table), np.int64), label=names, boxes=table, **made)

    @classmethod
    def empty(cls) -> BoxTable:
        """Return a table without boxes."""
        return cls.of_frame(np.zeros((0, 7)), [])


def mean_of_known(values: Iterable[float]) -> float:
    """Return the mean of the values that are not NaN; NaN without any."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def finite_or_none(value: float) -> float | None:
    """Return the value for JSON; None if it is NaN or infinite."""
    return value if math.isfinite(value) else None


def aligned_iou(first: Float64Array, second: Float64Array) -> Float64Array:
    """Return (P,) IoU of boxes with these (P, 3) sizes at the same centre and heading."""
    shared = np.minimum(first, second).prod(axis=1)
    union = first.prod(axis=1) + second.prod(axis=1) - shared
    return np.asarray(shared / union, np.float64)
