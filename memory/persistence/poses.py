"""Poses and covariances as numbers: a yaw that is not a number says that no memory has the id.

Where only the position is not a number, the memory is at no known place.
"""

from __future__ import annotations

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
#: Both.
POSE_COLUMNS = POSE + SPREAD

#: Where the numbers of a covariance are in the matrix, and the other way round.
UPPER = np.array([0, 1, 2, 4, 5, 8])
FULL = np.array([0, 1, 2, 1, 3, 4, 2, 4, 5])


def has_pose(poses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(n,) bool: which of (n, ``POSE`` or more) poses are of a memory, at a known place or not."""
    there: NDArray[np.bool_] = ~np.isnan(poses[:, POSE - 1])
    return there


def pack_covariance(matrix: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """(``SPREAD``,) float64 of a (3, 3) matrix; not numbers for ``None``."""
    if matrix is None:
        return np.full(SPREAD, np.nan)
    numbers: NDArray[np.float64] = np.asarray(matrix, np.float64).ravel()[UPPER]
    return numbers


def unpack_covariance(numbers: Sequence[float]) -> NDArray[np.float64]:
    """(3, 3) of its ``SPREAD`` numbers."""
    matrix: NDArray[np.float64] = np.array(numbers, dtype=np.float64)[FULL].reshape(3, 3)
    return matrix


def check_covariances(values: ArrayLike, count: int) -> NDArray[np.float64]:
    """(n, ``SPREAD``) of (n, 3, 3) finite, symmetric, positive semidefinite matrices, or ``ValueError``."""
    matrices = np.asarray(values, dtype=np.float64)
    if matrices.shape != (count, 3, 3):
        raise ValueError(f"covariances do not fit {count} ids: their shape is {matrices.shape}")
    packed: NDArray[np.float64] = types.check_covariances(matrices).reshape(count, 9)[:, UPPER]
    return packed


def check_poses(
    ids: Iterable[int], positions: ArrayLike, yaws: ArrayLike, covariances: ArrayLike | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rising ids, and their poses as a table: (n, ``POSE``), or (n, ``POSE_COLUMNS``) with covariances.

    Raises:
        ValueError: shapes differ, a number is not finite, or an id occurs twice.
    """
    known = id_array(ids)
    table = np.empty((len(known), POSE))
    given = (("positions", positions, (len(known), 3)), ("yaws", yaws, (len(known),)))
    for name, values, shape in given:
        array = np.asarray(values, dtype=np.float64)
        if array.shape != shape:
            raise ValueError(f"{name} do not fit {len(known)} ids: their shape is {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite")
        table[:, slice(0, 3) if name == "positions" else 3] = array
    if covariances is not None:
        table = np.hstack([table, check_covariances(covariances, len(known))])
    if (known[1:] > known[:-1]).all():
        return known, table
    order = np.argsort(known, kind="stable")
    known = known[order]
    if (known[1:] == known[:-1]).any():
        raise ValueError("an id occurs twice")
    return known, table[order]


def check_known(ids: NDArray[np.int64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    """The poses that were read of (n,) ids, or :class:`UnknownMemoryError` naming the first that has none."""
    missing = np.flatnonzero(~has_pose(found))
    if len(missing):
        raise UnknownMemoryError(f"no memory has the id {int(ids[missing[0]])}")
    return found
