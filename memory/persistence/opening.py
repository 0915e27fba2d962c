"""A store by its address: a folder, or a database of a server."""

from __future__ import annotations

import os

from memory.persistence import sqlite
from memory.persistence.database import Database


def open_database(
    path: str | os.PathLike[str], *, dim: int | None = None, readonly: bool = False, create: bool = True
) -> Database:
    """Open or make a store, see :meth:`memory.store.MemoryStore.open`."""
    return sqlite.Database.open(path, dim=dim, readonly=readonly, create=create)
