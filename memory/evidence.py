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
        For each object: ``label``, ``position`` (x, y, z in metres of the map), ``confidence`` (mean score of
        its observations), ``sights`` (their number), ``state``, and ``last_ns`` (time of the last one,
        nanoseconds since the epoch). Objects without a position are left out.

    Raises:
        StoreError: the store cannot be opened.
    """
    with MemoryStore.open(store, create=False, readonly=True) as memories:
        found = memories.find(Filter(map_id=map_id, kinds=("object",)), newest_first=False)
    return [
        {
            "label": memory.label,
            "position": list(memory.place),
            "confidence": memory.confidence,
            "sights": memory.count,
            "state": memory.state,
            "last_ns": memory.last_sight_ns,
        }
        for memory in found
        if memory.position is not None
    ]
