"""Objects of a store as plain values, for programs that use what a memory knows.

docs/training.md describes the entry point group ``sparsight.evidence``. A function takes a store and the name
of a map, and returns a list of objects. ``perception`` finds it there without importing ``memory``.
"""

from __future__ import annotations

from typing import Any

from memory.query import Filter
from memory.store import MemoryStore


def known_objects(store: str, map_id: str) -> list[dict[str, Any]]:
    """Return the objects of a map.

    Args:
        store: folder of a store, or address of a database.
        map_id: name of the map.

    Returns:
        For each object: ``label``, ``position`` (x, y, z in metres of the map), ``state``, ``sights`` (number
        of observations), ``visits`` (number of separate visits), ``first_ns`` and ``last_ns`` (first and last
        observation, nanoseconds since the epoch). Objects without a position are left out.

    Raises:
        MemoryStoreError: the store cannot be opened.
    """
    with MemoryStore.open(store, create=False, readonly=True) as memories:
        found = memories.find(Filter(map_id=map_id, kinds=("object",)), newest_first=False)
    return [
        {
            "label": memory.label,
            "position": list(memory.place),
            "state": memory.state,
            "sights": memory.count,
            "visits": max(1, len(memory.visits)),
            "first_ns": memory.first_sight_ns,
            "last_ns": memory.last_sight_ns,
        }
        for memory in found
        if memory.position is not None
    ]
