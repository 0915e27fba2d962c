"""Decoded content of messages: point clouds and transforms with their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.raw import RawCloud


class StampedCloud(NamedTuple):
    """A scan.

    Attributes:
        raw: points with unscaled intensity.
        time_ns: nanoseconds since the epoch.
        frame_id: name of the sensor's frame.
    """

    raw: RawCloud
    time_ns: int
    frame_id: str


class StampedTransform(NamedTuple):
    """The transform ``parent_from_child`` at a time.

    Attributes:
        parent, child: names of the frames; the child is ``""`` for a bare pose.
        time_ns: nanoseconds since the epoch.
        translation: (3,) float64, metres.
        quaternion: (4,) float64 unit quaternion x, y, z, w.
    """

    parent: str
    child: str
    time_ns: int
    translation: npt.NDArray[np.float64]
    quaternion: npt.NDArray[np.float64]


def rigid(
    translation: Sequence[float], quaternion: Sequence[float], place: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return translation and normalized quaternion as arrays.

    Raises:
        DataError: a number is not finite, or the quaternion is zero.
    """
    moved, turned = np.array(translation, np.float64), np.array(quaternion, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        length = float(np.linalg.norm(turned))
    if not (np.isfinite(moved).all() and np.isfinite(length) and length > 1e-9):
        raise DataError(
            f"{place}: invalid pose: position {moved.tolist()}, rotation {turned.tolist()};"
            " expected finite numbers and a nonzero quaternion. Correct the program that wrote it."
        )
    return moved, turned / length
