"""Opening of a store by its address: a folder, or a database on a server."""

from __future__ import annotations

import os

from memory.config import StoreConfig
from memory.errors import StoreError
from memory.persistence.database import Database
from memory.persistence.postgres.address import is_address
from memory.persistence.sqlite.database import SqliteDatabase


def open_database(
    path: str | os.PathLike[str], *, dim: int | None = None, readonly: bool = False, create: bool = True
) -> Database:
    """Open or create a store, see :meth:`memory.store.MemoryStore.open`."""
    if is_address(path):
        try:
            from memory.persistence.postgres.database import PostgresDatabase
        except ModuleNotFoundError as error:
            raise StoreError(
                "a store on a server needs psycopg: pip install 'sparsight[postgres]'"
            ) from error
        return PostgresDatabase.open(os.fspath(path), dim=dim, readonly=readonly, create=create)
    return SqliteDatabase.open(path, dim=dim, readonly=readonly, create=create)


def open_checked(
    path: str | os.PathLike[str], *, dim: int | None = None, readonly: bool = False, create: bool = True
) -> Database:
    """Open a store as :func:`open_database` does; raise ``ValueError`` if its settings are invalid."""
    database = open_database(path, dim=dim, readonly=readonly, create=create)
    try:
        load_settings(database)
    except BaseException:
        database.close()
        raise
    return database


def load_settings(database: Database) -> StoreConfig:
    """Return the settings of a store, or the defaults; raise ``ValueError`` if they are invalid."""
    known = database.settings
    if database.shared:
        return StoreConfig() if known is None else StoreConfig.of_text(known)
    return StoreConfig.load(database.folder, known)
