"""Memories of cups for tests of a store."""

from __future__ import annotations

import numpy as np

from memory.query import Query
from memory.store import MemoryStore
from memory.types import Memory

DIM = 16
S = 1_000_000_000


def axis(number: int, dim: int = DIM) -> np.ndarray:
    """Return a unit vector along one axis."""
    return np.eye(dim, dtype=np.float32)[number]


def cup(at_s: float = 0.0, x: float = 0.0, **values) -> Memory:
    """Return a cup, by default with the first axis as embedding."""
    values = {"label": "cup", "embedding": axis(0)} | values
    return Memory(time_ns=round(at_s * S), position=(x, 0.0, 0.0), **values)


def ids_of(store: MemoryStore, query: Query) -> list[int | None]:
    """Return the ids of the hits of a query."""
    return [hit.memory.id for hit in store.query(query)]
