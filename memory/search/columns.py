"""Cache of memory columns in RAM, for filters that take microseconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.persistence.database import Database
from memory.persistence.filters import check_resolved, judge
from memory.persistence.rows import Columns
from memory.query import Filter

_FIRST_ROOM = 1024
#: Number of rows from which they are sorted by x, so that filters by place read few of them.
_SORTED_FROM = 100_000
#: All are sorted again once more than this part of them is new or was moved.
_LOOSE = 8
_FIELDS: dict[str, tuple[type, tuple[int, ...]]] = {
    "ids": (np.int64, ()),
    "time_ns": (np.int64, ()),
    "positions": (np.float64, (3,)),
    "confidence": (np.float64, ()),
    "marked": (np.bool_, ()),
    "counts": (np.int64, ()),
    "map_ids": (np.int32, ()),
    "labels": (np.int32, ()),
    "kinds": (np.int32, ()),
    "states": (np.int32, ()),
    "moving": (np.int8, ()),
    "alive": (np.bool_, ()),
}
_CODED = ("map_ids", "labels", "kinds", "states")


class ColumnCache:
    """Columns that filters read, by increasing id.

    A small write costs a few microseconds: new ids are appended, removed rows are marked. It is not
    thread-safe.

    Attributes:
        generation: operation of the store that the cache reflects.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._count = 0
        self._dead = 0
        # True while times increase with ids, as for a single robot.
        self._in_time = True
        # Rows by rising x and these x, and rows that were moved since.
        self._by_x: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None
        self._moved: set[int] = set()
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _CODED}
        self._arrays: dict[str, NDArray] = {
            name: np.zeros((_FIRST_ROOM, *rest), kind) for name, (kind, rest) in _FIELDS.items()
        }

    @classmethod
    def of(cls, database: Database) -> ColumnCache:
        """Create the cache of a store."""
        cache = cls()
        cache.generation = database.generation
        after = 0
        while len((columns := database.scan_columns(after)).ids):
            cache._append(columns)
            after = int(columns.ids[-1])
        # Apply changes that arrived while reading.
        cache.follow(database)
        return cache

    def __len__(self) -> int:
        return self._count - self._dead

    def follow(self, database: Database) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Apply the changes of the store; return the added, removed and changed ids."""
        changes = database.changes(self.generation)
        if changes.generation != self.generation:
            self._leave_out(changes.removed)
            rows = self.rows(changes.moved)
            known = rows >= 0
            present = np.concatenate([changes.added, changes.revised, changes.moved[~known]])
            self._put(database.columns(np.sort(present).tolist()))
            if known.any():
                # Only the pose changed, so reading a million of them is fast.
                poses = database.poses(changes.moved[known])
                place = self.rows(changes.moved[known])
                self._arrays["positions"][place] = poses[:, :3]
                self._note_moved(place)
            self.generation = changes.generation
        return changes.added, changes.removed, changes.changed

    def column(self, name: str) -> NDArray:
        """Return a column of all rows, including removed ones. Strings are codes, see :meth:`code`."""
        return self._arrays[name][: self._count]

    def code(self, column: str, name: str) -> int:
        """Return the code of a string in a column, or -1."""
        return self._codes[column].get(name, -1)

    def names(self, column: str) -> list[str]:
        """Return the strings of a column by their codes."""
        return list(self._codes[column])

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the (ids,) rows of existing memories, -1 for others."""
        if not self._count:
            return np.full(len(ids), -1, np.int64)
        known = self.column("ids")
        if known[-1] - known[0] == self._count - 1:
            # Ids have no gaps while nothing is forgotten.
            # Not clip, which takes four times as long for a few ids.
            found: NDArray[np.int64] = np.minimum(np.maximum(ids - known[0], 0), self._count - 1)
        else:
            found = np.minimum(np.searchsorted(known, ids), self._count - 1)
        found[(known[found] != ids) | ~self.column("alive")[found]] = -1
        return found

    def matches(self, filter: Filter, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """Return which rows match a filter, except for its text.

        Args:
            filter: the filter.
            rows: rows to check; by default all.

        Returns:
            (rows,) bool; False for removed rows.
        """

        if rows is None and filter.between_ns is not None and self._in_time:
            # Times are sorted, so only a range of rows can match.
            first, last = filter.between_ns
            time = self.column("time_ns")
            # last + 1 could overflow.
            start, stop = np.searchsorted(time, first, "left"), np.searchsorted(time, last, "right")
            found = np.zeros(self._count, np.bool_)
            stretch = slice(int(start), max(int(start), int(stop)))
            found[stretch] = self._matches(replace(filter, between_ns=None), stretch)
            return found
        if rows is None and filter.bounds is not None:
            near = self._near(filter.bounds[0], filter.bounds[2])
            if near is not None:
                found = np.zeros(self._count, np.bool_)
                found[near[self._matches(filter, near)]] = True
                return found
        return self._matches(filter, slice(self._count) if rows is None else rows)

    def _near(self, first: float, last: float) -> NDArray[np.int64] | None:
        """Return rows that include all between two x, or ``None`` if comparing every row is as fast."""
        if self._count < _SORTED_FROM:
            return None
        if self._by_x is None or self._count - len(self._by_x[0]) > self._count // _LOOSE:
            x = self.column("positions")[:, 0]
            order = np.argsort(x)
            self._by_x, self._moved = (order, x[order]), set()
        order, x = self._by_x
        # Not a number is last.
        start, stop = int(np.searchsorted(x, first, "left")), int(np.searchsorted(x, last, "right"))
        if stop - start > self._count // 4:
            return None
        moved = np.fromiter(self._moved, np.int64, len(self._moved))
        return np.concatenate([order[start:stop], moved, np.arange(len(order), self._count)])

    def _note_moved(self, rows: NDArray[np.integer]) -> None:
        """Record rows whose x may have changed; if there are many, all are sorted again when needed."""
        if self._by_x is not None:
            self._moved.update(rows.tolist())
            if len(self._moved) > self._count // _LOOSE:
                self._by_x = None

    def _matches(self, filter: Filter, rows: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        """Return which of some rows match."""

        def part(name: str) -> NDArray:
            return self.column(name)[rows]

        check_resolved(filter)
        kept: NDArray[np.bool_] = part("alive").copy()
        if filter.between_ns is not None:
            time = part("time_ns")
            kept &= (time >= filter.between_ns[0]) & (time <= filter.between_ns[1])
        if filter.map_id is not None:
            kept &= part("map_ids") == self.code("map_ids", filter.map_id)
        for column, wanted in (
            ("labels", filter.labels),
            ("kinds", filter.kinds),
            ("states", filter.states),
        ):
            if wanted is not None:
                kept &= self._is_any(part(column), column, wanted)
        if filter.min_confidence > 0.0:
            kept &= part("confidence") >= filter.min_confidence
        if filter.marked is not None:
            kept &= part("marked") == filter.marked
        if filter.moving is not None:
            kept &= part("moving") == filter.moving
        if filter.bounds is not None and kept.any():
            kept &= _within(part("positions")[:, :2], filter, kept)
        return kept

    def _is_any(self, codes: NDArray[np.int32], column: str, wanted: Iterable[str]) -> NDArray[np.bool_]:
        known = {self.code(column, name) for name in wanted} - {-1}
        if len(known) > 8:
            return np.isin(codes, np.array(sorted(known), dtype=np.int32))
        found = np.zeros(len(codes), np.bool_)
        for code in known:
            found |= codes == code
        return found

    def _put(self, columns: Columns) -> None:
        """Overwrite existing rows, including removed ones, and append the others."""
        if not len(columns.ids):
            return
        known = self.column("ids")
        place = np.searchsorted(known, columns.ids)
        there = np.zeros(len(place), np.bool_)
        inside = place < self._count
        there[inside] = known[place[inside]] == columns.ids[inside]
        last = int(known[-1]) if self._count else -1
        if (~there & (columns.ids <= last)).any():
            # Undone removals from before the cache was created.
            self._merge(columns, there)
            return
        self._dead -= int((~self.column("alive")[place[there]]).sum())
        self._note_moved(place[there])
        before = self.column("time_ns")[place[there]]
        self._write(place[there], columns, np.flatnonzero(there))
        if (before != self.column("time_ns")[place[there]]).any():
            self._in_time = _rises(self.column("time_ns"))
        self._append(columns, np.flatnonzero(~there))

    def _merge(self, columns: Columns, there: NDArray[np.bool_]) -> None:
        missing = np.flatnonzero(~there)
        start = self._count
        self._append(columns, missing)
        order = np.argsort(self.column("ids"), kind="stable")
        for name in _FIELDS:
            self._arrays[name][: self._count] = self.column(name)[order]
        self._by_x = None
        self._in_time = _rises(self.column("time_ns"))
        assert self._count == start + len(missing)
        self._put(_some(columns, np.flatnonzero(there)))

    def _append(self, columns: Columns, some: NDArray[np.int64] | None = None) -> None:
        some = np.arange(len(columns.ids)) if some is None else some
        needed = self._count + len(some)
        if needed > len(self._arrays["ids"]):
            for name, array in self._arrays.items():
                larger = np.zeros((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
                larger[: self._count] = array[: self._count]
                self._arrays[name] = larger
        place = np.arange(self._count, needed)
        self._count = needed
        self._write(place, columns, some)
        self._in_time &= _rises(self.column("time_ns")[max(int(place[0]) - 1, 0) if len(place) else needed :])

    def _write(self, place: NDArray[np.integer], columns: Columns, some: NDArray[np.integer]) -> None:
        for name in _FIELDS:
            if name == "alive":
                self._arrays[name][place] = True
            elif name in _CODED:
                codes = self._codes[name]
                texts = getattr(columns, name)
                self._arrays[name][place] = [codes.setdefault(texts[row], len(codes)) for row in some]
            else:
                self._arrays[name][place] = getattr(columns, name)[some]

    def _leave_out(self, ids: NDArray[np.int64]) -> None:
        rows = self.rows(ids)
        rows = rows[rows >= 0]
        self._arrays["alive"][rows] = False
        self._dead += len(rows)


def _rises(times: NDArray[np.int64]) -> bool:
    """True if the times are in order."""
    return bool((times[1:] >= times[:-1]).all())


def _some(columns: Columns, rows: NDArray[np.integer]) -> Columns:
    """Return these rows of the columns."""
    parts: dict[str, Any] = {
        name: part[rows] if isinstance(part, np.ndarray) else [part[row] for row in rows]
        for name, part in columns._asdict().items()
    }
    return Columns(**parts)


def _within(points: NDArray[np.float64], filter: Filter, candidates: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which candidate points lie in the filter's box, circle and polygon."""
    assert filter.bounds is not None
    x0, y0, x1, y1 = filter.bounds
    x = points[:, 0]
    # Each step reads only the points that the step before left.
    rows = np.flatnonzero(candidates & (x >= x0) & (x <= x1))
    y = points[rows, 1]
    rows = rows[(y >= y0) & (y <= y1)]
    found = np.zeros(len(points), np.bool_)
    found[rows] = judge(points[rows], filter, np.ones(len(rows), np.bool_))
    return found
