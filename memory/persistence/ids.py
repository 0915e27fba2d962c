"""Ids from callers, and sets of ids as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from memory.types import check_integer

#: Most ids bound in one statement.
CHUNK = 4096


def check_ids(ids: Iterable[int]) -> list[int]:
    """Return the ids as plain integers, or raise ``TypeError``."""
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    if not isinstance(values, Iterable):
        raise TypeError(f"give a list of ids, such as [12], got {type(ids).__name__}")
    return [check_integer("id", value) for value in values]


def id_array(ids: Iterable[int]) -> NDArray[np.int64]:
    """Return the ids as (n,) int64, or raise ``TypeError``."""
    if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind == "i":
        return ids.astype(np.int64)
    return np.array(check_ids(ids), dtype=np.int64)


def chunks(ids: Iterable[int]) -> Iterator[list[int]]:
    """Yield the ids in lists that are short enough to bind."""
    found = iter(ids)
    while chunk := list(islice(found, CHUNK)):
        yield chunk


def concat(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Concatenate any number of int64 arrays."""
    return np.concatenate([np.zeros(0, np.int64), *parts])


def distinct(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each id once, rising; ``np.unique`` takes a hundred times as long for sorted ids."""
    ids = np.sort(ids)
    return ids if len(ids) < 2 else ids[np.concatenate([[True], ids[1:] != ids[:-1]])]


def among(ids: NDArray[np.int64], allowed: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of the ids are among the rising allowed ones."""
    if not len(allowed):
        return np.zeros(len(ids), np.bool_)
    found: NDArray[np.bool_] = allowed[np.minimum(np.searchsorted(allowed, ids), len(allowed) - 1)] == ids
    return found
