"""SQL that every engine takes: question marks for parameters, rows as tuples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from memory.errors import StoreVersionError


class Cursor(Protocol):
    """Rows that a statement gives."""

    def fetchone(self) -> Any:
        """Return the next row, or ``None``."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return so many of them."""

    def fetchall(self) -> list[Any]:
        """Return all that are left."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""


class Connection(Protocol):
    """A connection within a transaction of its caller."""

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Cursor:
        """Run a statement."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each of the parameters."""


class Condition(NamedTuple):
    """A part of a WHERE clause over ``memory AS m``.

    Attributes:
        sql: with question marks.
        parameters: for them.
    """

    sql: str
    parameters: tuple[Any, ...]


class Migration(NamedTuple):
    """From one version of a schema to the next.

    Attributes:
        summary: what it does.
        statements: SQL, run in order within one transaction.
    """

    summary: str
    statements: Sequence[str]


def check_version(found: int, *, latest: int, name: str) -> None:
    """Raise :class:`StoreVersionError` when a store is newer than this release."""
    if found > latest:
        raise StoreVersionError(
            f"{name} has schema version {found}, this release reads up to {latest}: update the library"
        )


def where(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return a WHERE clause and its parameters."""
    if not conditions:
        return "", []
    parameters = [value for condition in conditions for value in condition.parameters]
    return " WHERE " + " AND ".join(condition.sql for condition in conditions), parameters


def read_maps(connection: Connection) -> list[str]:
    """Return the maps that there are, by one look into the index each."""
    rows = connection.execute(
        "WITH RECURSIVE maps (map_id) AS (SELECT min(map_id) FROM memory UNION ALL"
        " SELECT (SELECT min(map_id) FROM memory WHERE map_id > maps.map_id) FROM maps"
        " WHERE map_id IS NOT NULL)"
        " SELECT map_id FROM maps WHERE map_id IS NOT NULL"
    )
    return [map_id for (map_id,) in rows]
