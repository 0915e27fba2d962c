"""SQL types shared by all engines: question marks for parameters, rows as tuples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from memory.errors import StoreVersionError


class Cursor(Protocol):
    """Result rows of a statement."""

    def fetchone(self) -> Any:
        """Return the next row, or ``None``."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return up to ``size`` rows."""

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""


class Connection(Protocol):
    """Connection within a transaction of its caller."""

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Cursor:
        """Run a statement."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Run a statement once per parameter sequence."""


class Condition(NamedTuple):
    """Part of a WHERE clause over ``memory AS m``."""

    sql: str
    parameters: tuple[Any, ...]


class Migration(NamedTuple):
    """Step from one schema version to the next.

    Attributes:
        statements: SQL, run in order within one transaction.
    """

    summary: str
    statements: Sequence[str]


def check_version(found: int, *, latest: int, name: str) -> None:
    """Raise :class:`StoreVersionError` if a store is newer than this release."""
    if found > latest:
        raise StoreVersionError(
            f"{name} has schema version {found}, but this release reads up to {latest}. Update the library"
        )


def where(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return a WHERE clause and its parameters."""
    if not conditions:
        return "", []
    parameters = [value for condition in conditions for value in condition.parameters]
    return " WHERE " + " AND ".join(condition.sql for condition in conditions), parameters


def read_maps(connection: Connection) -> list[str]:
    """Return the existing maps, with one index lookup each."""
    rows = connection.execute(
        "WITH RECURSIVE maps (map_id) AS (SELECT min(map_id) FROM memory UNION ALL"
        " SELECT (SELECT min(map_id) FROM memory WHERE map_id > maps.map_id) FROM maps"
        " WHERE map_id IS NOT NULL)"
        " SELECT map_id FROM maps WHERE map_id IS NOT NULL"
    )
    return [map_id for (map_id,) in rows]
