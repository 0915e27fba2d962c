"""Poses and covariances as numbers. A NaN yaw means that no memory has the id.

If only the position is NaN, the memory's place is unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory import types
from memory.errors import UnknownMemoryError
from memory.persistence.ids import id_array

#: Columns of a pose: x, y, z, yaw.
POSE = 4
#: Numbers of a covariance: xx, xy, xz, yy, yz, zz.
SPREAD = 6
#: Both together.
POSE_COLUMNS = POSE + SPREAD

#: Indices of these numbers in the matrix, and of the matrix in these numbers.
UPPER = np.array([0, 1, 2, 4, 5, 8])
FULL = np.array([0, 1, 2, 1, 3, 4, 2, 4, 5])


def has_pose(poses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which of (n, ``POSE`` or more) poses belong to a memory, with or without a known place."""
    there: NDArray[np.bool_] = ~np.isnan(poses[:, POSE - 1])
    return there


def pack_covariance(matrix: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the (``SPREAD``,) float64 numbers of a (3, 3) matrix; NaN for ``None``."""
    if matrix is None:
        return np.full(SPREAD, np.nan)
    numbers: NDArray[np.float64] = np.asarray(matrix, np.float64).ravel()[UPPER]
    return numbers


def unpack_covariance(numbers: Sequence[float]) -> NDArray[np.float64]:
    """Return the (3, 3) matrix of its ``SPREAD`` numbers."""
    matrix: NDArray[np.float64] = np.array(numbers, dtype=np.float64)[FULL].reshape(3, 3)
    return matrix


def pack_velocity(velocity: Sequence[float] | None, yaw: float) -> str | None:
    """Return a velocity as JSON: x, y, z in m/s, and the yaw of the memory to which they belong."""
    if velocity is None:
        return None
    x, y, z = velocity
    return f"[{x!r}, {y!r}, {z!r}, {yaw!r}]"  # Faster than json.dumps, with the same text for finite floats.


def unpack_velocity(text: str | None, yaw: float) -> tuple[float, float, float] | None:
    """Return a velocity, rotated as far as the memory was since it was written; ``None`` if unreadable."""
    known = None if text is None else _numbers_of(text)
    if known is None:
        return None
    x, y, z, written = known
    turned = math.remainder(yaw - written, math.tau)
    if turned == 0.0:
        return x, y, z
    sine, cosine = math.sin(turned), math.cos(turned)
    return cosine * x - sine * y, sine * x + cosine * y, z


def moving_of(velocities: Sequence[str | None]) -> NDArray[np.int8]:
    """Return (n,) int8 of stored velocities: 1 if moving, 0 if standing, -1 if unknown."""
    found = np.full(len(velocities), -1, np.int8)
    for row, text in enumerate(velocities):
        if text is not None and (known := _numbers_of(text)) is not None:
            found[row] = types.is_moving(*known[:2])
    return found


def _numbers_of(text: str) -> tuple[float, float, float, float] | None:
    """Return the numbers of a stored velocity; ``None`` if unreadable."""
    try:
        x, y, z, yaw = map(float, json.loads(text))
    except (TypeError, ValueError):
        return None
    return x, y, z, yaw


def check_covariances(values: ArrayLike, count: int) -> NDArray[np.float64]:
    """Return (n, ``SPREAD``) of (n, 3, 3) finite positive semidefinite matrices, or raise ``ValueError``."""
    matrices = np.asarray(values, dtype=np.float64)
    if matrices.shape != (count, 3, 3):
        raise ValueError(f"covariances must have shape ({count}, 3, 3), got {matrices.shape}")
    packed: NDArray[np.float64] = types.check_covariances(matrices).reshape(count, 9)[:, UPPER]
    return packed


def check_poses(
    ids: Iterable[int], positions: ArrayLike, yaws: ArrayLike, covariances: ArrayLike | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return rising ids and their pose table: (n, ``POSE``), or (n, ``POSE_COLUMNS``) with covariances.

    Raises:
        ValueError: shapes differ, a number is not finite, or an id is listed twice.
    """
    known = id_array(ids)
    table = np.empty((len(known), POSE))
    given = (("positions", positions, (len(known), 3)), ("yaws", yaws, (len(known),)))
    for name, values, shape in given:
        array = np.asarray(values, dtype=np.float64)
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite")
        table[:, slice(0, 3) if name == "positions" else 3] = array
    if covariances is not None:
        table = np.hstack([table, check_covariances(covariances, len(known))])
    if (known[1:] > known[:-1]).all():
        return known, table
    order = np.argsort(known, kind="stable")
    known = known[order]
    if (same := np.flatnonzero(known[1:] == known[:-1])).size:
        raise ValueError(f"memory {int(known[same[0]])} is listed twice")
    return known, table[order]


def check_known(ids: NDArray[np.int64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the poses read, or raise :class:`UnknownMemoryError` for the first id without one."""
    missing = np.flatnonzero(~has_pose(found))
    if len(missing):
        raise UnknownMemoryError(f"no memory has the id {int(ids[missing[0]])}")
    return found
