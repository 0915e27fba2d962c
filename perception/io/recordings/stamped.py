"""What the messages of a recording hold, whoever encoded them: clouds and transforms with their time."""

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
        raw: points, intensity in the sensor's own range.
        time_ns: nanoseconds since the epoch.
        frame_id: of the sensor, as the recording calls it.
    """

    raw: RawCloud
    time_ns: int
    frame_id: str


class StampedTransform(NamedTuple):
    """Where a frame is in another at a time.

    Attributes:
        parent, child: names; ``parent_from_child`` is what follows. The child is ``""`` for a bare pose.
        time_ns: nanoseconds since the epoch.
        translation: (3,) float64, metres.
        quaternion: (4,) float64: x, y, z, w, of length 1.
    """

    parent: str
    child: str
    time_ns: int
    translation: npt.NDArray[np.float64]
    quaternion: npt.NDArray[np.float64]


def rigid(
    translation: Sequence[float], quaternion: Sequence[float], place: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Both as arrays, the quaternion with length 1.

    Raises:
        DataError: a number is not finite, or the quaternion has no length.
    """
    moved, turned = np.array(translation, np.float64), np.array(quaternion, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        length = float(np.linalg.norm(turned))
    if not (np.isfinite(moved).all() and np.isfinite(length) and length > 1e-9):
        raise DataError(
            f"{place}: no pose: position {moved.tolist()}, rotation {turned.tolist()};"
            " expected finite numbers and a quaternion that is not zero"
        )
    return moved, turned / length
