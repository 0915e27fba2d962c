"""Ids as callers give them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from memory.types import check_integer


def check_ids(ids: Iterable[int]) -> list[int]:
    """As plain integers, or raise ``TypeError``."""
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    return [check_integer("id", value) for value in values]


def id_array(ids: Iterable[int]) -> NDArray[np.int64]:
    """As (n,) int64, or raise ``TypeError``."""
    if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind == "i":
        return ids.astype(np.int64)
    return np.array(check_ids(ids), dtype=np.int64)
