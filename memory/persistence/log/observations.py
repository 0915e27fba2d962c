"""Observations that are counted on existing memories and written with the next commit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from memory.errors import CorruptStoreError
from memory.merging.visits import join_visits, known_visits, without_sights
from memory.persistence import visits
from memory.persistence.checksums import MEMORY
from memory.persistence.engine import engine_of
from memory.persistence.log.journal import Counters, insert_log_rows, undone_after, write_entry
from memory.persistence.sql import Connection
from memory.types import Memory, Visit, saturated

#: Most visits that the log keeps in full; beyond, undone observations are subtracted.
KEPT_VISITS = 64
SELECT = "SELECT time_ns, count, first_seen_ns, last_seen_ns FROM memory WHERE id = ?"
ASSIGN = "UPDATE memory SET count = ?, first_seen_ns = ?, last_seen_ns = ?, visits = ? WHERE id = ?"

Observations = Mapping[int, Sequence[Visit]]


class ObservationCount(NamedTuple):
    """Observations counted on a memory after it was stored.

    Attributes:
        sights: number of observations.
        last_ns: time of the latest.
    """

    sights: int
    last_ns: int


@dataclass(frozen=True)
class ObservationSummary:
    """When and how often a memory was seen; the fields that observations change.

    Attributes:
        time_ns, count, first_seen_ns, last_seen_ns, visits: as in :class:`Memory`.
    """

    time_ns: int
    count: int
    first_seen_ns: int | None
    last_seen_ns: int | None
    visits: tuple[Visit, ...]

    @classmethod
    def of(cls, memory: Memory) -> ObservationSummary:
        """Return the summary of a memory."""
        return cls(
            memory.time_ns, memory.count, memory.first_seen_ns, memory.last_seen_ns, tuple(memory.visits)
        )

    def fields(self) -> dict[str, Any]:
        """Return the fields by name, for a :class:`Memory`."""
        return {**vars(self), "count": saturated(self.count)}

    def after(self, more: Iterable[Visit]) -> ObservationSummary:
        """Return the summary with further observations; the time stays that of the stored one."""
        added = list(more)
        known = known_visits(Memory(**self.fields()))
        joined = join_visits([*known, *added])
        first, last = joined[0].first_ns, joined[-1].last_ns
        count = saturated(self.count + sum(visit.sights for visit in added))
        return ObservationSummary(self.time_ns, count, first, last, joined)

    def before(self, taken: Iterable[Visit]) -> ObservationSummary:
        """Return the summary without some observations; visits keep their span unless they become empty."""
        removed = list(taken)
        left = without_sights(self.visits, removed)
        count = max(self.count - sum(visit.sights for visit in removed), 1)
        if not left:
            return ObservationSummary(self.time_ns, count, self.first_seen_ns, self.last_seen_ns, self.visits)
        return ObservationSummary(self.time_ns, count, left[0].first_ns, left[-1].last_ns, left)


class PendingObservations:
    """Observations that wait for the next commit, by memory; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[Visit, ...]] = {}
        self._written: dict[int, tuple[Visit, ...]] = {}

    def __len__(self) -> int:
        with self._lock:
            # Observations of a running transaction count too, because they are not durable yet.
            both = (*self._waiting.values(), *self._written.values())
            return sum(visit.sights for seen in both for visit in seen)

    @property
    def span_ns(self) -> int:
        """Time from the first to the last of them."""
        with self._lock:
            waiting = [visit for seen in self._waiting.values() for visit in seen]
        if not waiting:
            return 0
        return max(visit.last_ns for visit in waiting) - min(visit.first_ns for visit in waiting)

    def add(self, sights: Observations) -> None:
        """Add observations."""
        with self._lock:
            for id, seen in sights.items():
                self._waiting[id] = join_visits([*self._waiting.get(id, ()), *seen])

    def take_back(self, sights: Observations) -> None:
        """Drop observations that still wait."""
        with self._lock:
            for id, seen in sights.items():
                left = without_sights(self._waiting.pop(id, ()), seen)
                if left:
                    self._waiting[id] = left

    def write(self, connection: Connection, counters: Counters) -> None:
        """Count the observations within the transaction, as an operation; the caller commits."""
        with self._lock:
            if not self._waiting:
                return
            for id, seen in self._waiting.items():
                self._written[id] = join_visits([*self._written.get(id, ()), *seen])
            self._waiting = {}
            sights = dict(self._written)
        there = {id: seen for id, seen in sights.items() if connection.execute(SELECT, (id,)).fetchone()}
        if there:
            see(connection, write_entry(connection, counters, "seen", {}), there)

    def after_commit(self) -> None:
        """Forget the observations that are durable now."""
        with self._lock:
            self._written = {}

    def after_rollback(self) -> None:
        """Let the observations wait again."""
        with self._lock:
            written, self._written = self._written, {}
        self.add(written)


def see(connection: Connection, generation: int, sights: Observations) -> None:
    """Count observations as part of an operation; unknown memories are skipped.

    It is not a change for :func:`memory.persistence.log.journal.check_undoable`: undoing earlier operations
    is possible and leaves the counts alone.
    """
    for id, seen in sights.items():
        was = read_seen(connection, id)
        if was is not None and seen:
            write_seen(connection, id, was.after(seen))
            log_observations(connection, generation, id, was, seen)


def log_observations(
    connection: Connection,
    generation: int,
    id: int,
    was: ObservationSummary,
    seen: Iterable[Visit],
    *,
    taken_back: bool = False,
) -> None:
    """Log counted observations; negative counts with ``taken_back`` are undone ones."""
    exact = list(vars(was).values()) if len(was.visits) <= KEPT_VISITS else None
    found = {"sights": [list(visit) for visit in seen], "was": exact, "taken_back": taken_back}
    insert_log_rows(connection, [(None, generation, id, "seen", json.dumps(found))])


def uncount(connection: Connection, generation: int, done: int) -> None:
    """Undo the observations that an operation counted, within the undo operation.

    Later observations that are still in effect are counted again on the earlier state.
    """
    rows = connection.execute(
        "SELECT row, id, before FROM log_row WHERE generation = ? AND what = 'seen' ORDER BY row DESC",
        (generation,),
    ).fetchall()
    for row, id, text in rows:
        now = read_seen(connection, id)
        if now is None or text is None:
            continue
        counted = json.loads(text)
        taken = [Visit(*visit) for visit in counted["sights"]]
        if counted.get("was") is None:
            back = now.before(taken) if taken and taken[0].sights > 0 else now.after(_negate(taken))
        else:
            time_ns, count, first_ns, last_ns, stretches = counted["was"]
            back = ObservationSummary(
                time_ns, count, first_ns, last_ns, tuple(Visit(*visit) for visit in stretches)
            )
            for later in counted_since(connection, id, row):
                back = back.after(later) if later[0].sights > 0 else back.before(_negate(later))
        write_seen(connection, id, back)
        log_observations(connection, done, id, now, _negate(taken), taken_back=True)


def counted_since(connection: Connection, id: int, after_row: int = 0) -> list[list[Visit]]:
    """Return the observations counted on a memory after a log row and still in effect, in order."""
    since = connection.execute("SELECT generation FROM log_row WHERE row = ?", (after_row,)).fetchone()
    start = since[0] if since else 0
    rows = connection.execute(
        "SELECT r.generation, l.undoes, r.before FROM log_row AS r JOIN log AS l USING (generation)"
        " WHERE r.id = ? AND r.what = 'seen' AND r.row > ? AND r.before IS NOT NULL ORDER BY r.row",
        (id, after_row),
    ).fetchall()
    found = []
    undone = undone_after(connection, rows[0][0] - 1) if rows else set()
    for generation, undoes, text in rows:
        counted = json.loads(text)
        # A count and its undo cancel each other.
        cancels = counted["taken_back"] and undoes is not None and undoes > start
        if not cancels and generation not in undone:
            found.append([Visit(*visit) for visit in counted["sights"]])
    return found


def count_of(connection: Connection, id: int) -> ObservationCount:
    """Return the observations counted on a memory, existing or gone, without those undone."""
    seen = [visit for part in counted_since(connection, id) for visit in part]
    return ObservationCount(
        sum(visit.sights for visit in seen), max((visit.last_ns for visit in seen), default=0)
    )


def read_seen(connection: Connection, id: int) -> ObservationSummary | None:
    """Return when and how often a memory was seen; ``None`` if it is missing or damaged."""
    found = connection.execute(SELECT, (id,)).fetchone()
    if found is None:
        return None
    blob = connection.execute("SELECT visits FROM visited WHERE id = ?", (id,)).fetchone()
    try:
        time_ns, count, first_ns, last_ns = found
        seen = visits.unpack(id, blob[0] if blob else None)
        return ObservationSummary(time_ns, saturated(count), first_ns, last_ns, seen)
    except CorruptStoreError:
        # Leave damage to check and backup, so that the writer can continue.
        return None


def write_seen(connection: Connection, id: int, seen: ObservationSummary) -> None:
    """Set when and how often a memory was seen."""
    connection.execute(
        ASSIGN, (seen.count, seen.first_seen_ns, seen.last_seen_ns, int(bool(seen.visits)), id)
    )
    visits.delete(connection, [id])
    visits.write(connection, {id: seen.visits})
    engine_of(connection).renew(connection, MEMORY, [id])


def has_observations_after(connection: Connection, id: int, generation: int) -> bool:
    """Return True if observations of a memory were counted or undone after an operation."""
    sql = "SELECT 1 FROM log_row WHERE id = ? AND what = 'seen' AND generation > ? LIMIT 1"
    return connection.execute(sql, (id, generation)).fetchone() is not None


def _negate(seen: Iterable[Visit]) -> list[Visit]:
    """Return the visits with negative counts."""
    return [Visit(visit.first_ns, visit.last_ns, -visit.sights) for visit in seen]
