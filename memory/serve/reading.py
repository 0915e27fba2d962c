"""Reads of the service: pages of memories, operations, counts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.exchange.exporting import PORTION
from memory.persistence.database import Database
from memory.persistence.log import journal
from memory.persistence.log.journal import LogEntry
from memory.persistence.reports import CheckReport
from memory.query import Filter
from memory.serve.errors import ServiceError
from memory.types import Memory

PageOrder = Literal["newest", "oldest"]
#: Maximum number of labels in the counts.
LABELS = 1000


class Page(NamedTuple):
    """Page of memories; ``cursor`` is that of the next page, or ``None``."""

    memories: list[Memory]
    cursor: str | None


class Operation(NamedTuple):
    """Log entry of an operation.

    Attributes:
        entry: of the log.
        touched: number of memories that it added, changed or removed.
        undone: True if it was undone.
    """

    entry: LogEntry
    touched: int
    undone: bool


class Reading:
    """Reader of an open database; it does not block writers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def generation(self) -> int:
        """Number of the last operation."""
        return self._database.generation

    def check(self) -> CheckReport:
        """Check for damage as a reader."""
        return self._database.look()

    def page(
        self,
        filter: Filter,
        *,
        order: PageOrder = "newest",
        limit: int = 100,
        cursor: str | None = None,
        vectors: bool = False,
    ) -> Page:
        """Return a page of the memories that match a filter.

        Concurrent changes do not shift pages: a memory that exists all the time is on exactly one page.

        Raises:
            ServiceError: the cursor is invalid or of another order.
        """
        start = None if cursor is None else read_cursor(cursor, order)
        if start is not None:
            filter = _from(filter, order, start[0])
            if filter is _NOTHING:
                return Page([], None)
        fetch = limit + 1
        while True:
            ids = self._database.ids(filter, order=order, limit=fetch)
            rest = ids if start is None else ids[self._after(ids, order, start)]
            if len(rest) <= limit and len(ids) == fetch:
                fetch *= 4  # Many memories have the same time.
                continue
            times = dict(self._times(rest[:limit]))
            if len(rest) <= limit:
                return Page(self._database.present(rest.tolist(), vectors=vectors), None)
            if times:
                break  # Otherwise all of them were removed meanwhile.
        last = next(id for id in reversed(rest[:limit].tolist()) if id in times)
        following = write_cursor(order, times[last], last)
        return Page(self._database.present(rest[:limit].tolist(), vectors=vectors), following)

    def _after(self, ids: NDArray[np.int64], order: PageOrder, start: tuple[int, int]) -> NDArray[np.bool_]:
        times = self._times(ids)
        beyond = {id for id, at in times if ((at, id) < start if order == "newest" else (at, id) > start)}
        return np.array([id in beyond for id in ids.tolist()], dtype=np.bool_)

    def _times(self, ids: NDArray[np.int64]) -> list[tuple[int, int]]:
        columns = self._database.columns(ids)
        return list(zip(columns.ids.tolist(), columns.time_ns.tolist(), strict=True))

    def portions(self, filter: Filter, *, vectors: bool, size: int = PORTION // 4) -> Iterator[list[Memory]]:
        """Yield all matching memories, the oldest first, without those removed meanwhile."""
        ids = self._database.ids(filter, order="oldest").tolist()
        for start in range(0, len(ids), size):
            yield self._database.present(ids[start : start + size], vectors=vectors)

    def operations(self, after: int, limit: int) -> list[Operation]:
        """Return the operations after a number, in order."""
        with self._database._read() as connection:
            undone = journal.undone_after(connection, after)
            return [
                Operation(
                    entry,
                    len(np.unique(journal.touched_by(connection, entry))),
                    entry.generation in undone,
                )
                for entry in journal.read_entries(connection, after=after, limit=limit)
            ]

    def overview(self) -> dict[str, Any]:
        """Return counts by label and state, and the time range."""
        with self._database._read() as connection:
            label_rows = connection.execute(
                "SELECT label, count(*) FROM memory GROUP BY label ORDER BY 2 DESC, 1 LIMIT ?", (LABELS,)
            )
            labels = dict(label_rows.fetchall())
            states = dict(connection.execute("SELECT state, count(*) FROM memory GROUP BY state").fetchall())
            first, last = connection.execute("SELECT min(time_ns), max(time_ns) FROM memory").fetchone()
        return {"by_label": labels, "by_state": states, "first_time_ns": first, "last_time_ns": last}


def write_cursor(order: PageOrder, time_ns: int, id: int) -> str:
    """Return the cursor for the end of a page."""
    return base64.urlsafe_b64encode(f"{order} {time_ns} {id}".encode()).decode().rstrip("=")


def read_cursor(cursor: str, order: PageOrder) -> tuple[int, int]:
    """Return the time and id of a cursor; raise ``ServiceError`` if it is invalid or of another order."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        kind, time_ns, id = text.split(" ")
        found = int(time_ns), int(id)
        if not all(-(2**63) <= number < 2**63 for number in found):
            raise ValueError(text)
    except (ValueError, binascii.Error) as error:
        raise ServiceError(
            422, "invalid", "cursor: not valid. Use the cursor of the previous page", "cursor"
        ) from error
    if kind != order:
        raise ServiceError(
            422, "invalid", f"cursor: it belongs to order {kind!r}. Use that order"[:80], "cursor"
        )
    return found


#: Filter that matches nothing.
_NOTHING = Filter(labels=())


def _from(filter: Filter, order: PageOrder, time_ns: int) -> Filter:
    first, last = filter.between_ns or (-(2**63), 2**63 - 1)
    first, last = (first, min(last, time_ns)) if order == "newest" else (max(first, time_ns), last)
    return _NOTHING if first > last else replace(filter, between_ns=(first, last))
