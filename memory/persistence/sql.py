"""What a connection of any engine does: statements with question marks, rows as tuples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol


class Answer(Protocol):
    """Rows that a statement gives."""

    def fetchone(self) -> Any:
        """The next row, or ``None``."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """So many of them."""

    def fetchall(self) -> list[Any]:
        """All that are left."""

    def __iter__(self) -> Iterator[Any]:
        """The rows."""


class Connection(Protocol):
    """A connection within a transaction of its caller; that of SQLite is one as it is."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Answer:
        """Run a statement."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each of the parameters."""
