"""Sights that are counted on memories which stand for them, and written with the next commit."""

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

#: Visits up to which the log keeps what they were; of more, sights that are taken back are subtracted.
KEPT_VISITS = 64
SELECT = "SELECT time_ns, count, first_seen_ns, last_seen_ns FROM memory WHERE id = ?"
ASSIGN = "UPDATE memory SET count = ?, first_seen_ns = ?, last_seen_ns = ?, visits = ? WHERE id = ?"

Observations = Mapping[int, Sequence[Visit]]


class ObservationCount(NamedTuple):
    """Sights that were counted on a memory after it was stored.

    Attributes:
        sights: how many.
        last_ns: the latest of them.
    """

    sights: int
    last_ns: int


@dataclass(frozen=True)
class ObservationSummary:
    """When and how often a memory was seen: what sights change of it.

    Attributes:
        time_ns, count, first_seen_ns, last_seen_ns, visits: as of a :class:`Memory`.
    """

    time_ns: int
    count: int
    first_seen_ns: int | None
    last_seen_ns: int | None
    visits: tuple[Visit, ...]

    @classmethod
    def of(cls, memory: Memory) -> ObservationSummary:
        """That of a memory."""
        return cls(
            memory.time_ns, memory.count, memory.first_seen_ns, memory.last_seen_ns, tuple(memory.visits)
        )

    def fields(self) -> dict[str, Any]:
        """By name, for a :class:`Memory`."""
        return {**vars(self), "count": saturated(self.count)}

    def after(self, more: Iterable[Visit]) -> ObservationSummary:
        """With further sights: counts and visits are added; the time stays that of the kept sight."""
        added = list(more)
        known = known_visits(Memory(**self.fields()))
        joined = join_visits([*known, *added])
        first, last = joined[0].first_ns, joined[-1].last_ns
        count = saturated(self.count + sum(visit.sights for visit in added))
        return ObservationSummary(self.time_ns, count, first, last, joined)

    def before(self, taken: Iterable[Visit]) -> ObservationSummary:
        """Without sights that were counted: visits keep their span unless nothing is left of them."""
        removed = list(taken)
        left = without_sights(self.visits, removed)
        count = max(self.count - sum(visit.sights for visit in removed), 1)
        if not left:
            return ObservationSummary(self.time_ns, count, self.first_seen_ns, self.last_seen_ns, self.visits)
        return ObservationSummary(self.time_ns, count, left[0].first_ns, left[-1].last_ns, left)


class PendingObservations:
    """Sights that wait for the next commit, by the memory that stands for them. Any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[Visit, ...]] = {}
        self._written: dict[int, tuple[Visit, ...]] = {}

    def __len__(self) -> int:
        with self._lock:
            # Those of a transaction that is under way as well: they are not on the disk yet.
            both = (*self._waiting.values(), *self._written.values())
            return sum(visit.sights for seen in both for visit in seen)

    @property
    def span_ns(self) -> int:
        """From the first to the last of them."""
        with self._lock:
            waiting = [visit for seen in self._waiting.values() for visit in seen]
        if not waiting:
            return 0
        return max(visit.last_ns for visit in waiting) - min(visit.first_ns for visit in waiting)

    def add(self, sights: Observations) -> None:
        """Let sights wait."""
        with self._lock:
            for id, seen in sights.items():
                self._waiting[id] = join_visits([*self._waiting.get(id, ()), *seen])

    def take_back(self, sights: Observations) -> None:
        """What was added is not to be counted, where it still waits."""
        with self._lock:
            for id, seen in sights.items():
                left = without_sights(self._waiting.pop(id, ()), seen)
                if left:
                    self._waiting[id] = left

    def write(self, connection: Connection, counters: Counters) -> None:
        """Count them within the transaction, as an operation of their own; the caller commits."""
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

    def committed(self) -> None:
        """They are on the disk."""
        with self._lock:
            self._written = {}

    def rolled_back(self) -> None:
        """They are not: they wait again."""
        with self._lock:
            written, self._written = self._written, {}
        self.add(written)


def see(connection: Connection, generation: int, sights: Observations) -> None:
    """Count sights on memories as part of an operation; those on memories that are not there are passed over.

    Not what :func:`memory.persistence.log.journal.check_undoable` calls a change: operations before it can be
    taken back, and leave the counts alone.
    """
    for id, seen in sights.items():
        was = read_seen(connection, id)
        if was is not None and seen:
            write_seen(connection, id, was.after(seen))
            note(connection, generation, id, was, seen)


def note(
    connection: Connection,
    generation: int,
    id: int,
    was: ObservationSummary,
    seen: Iterable[Visit],
    *,
    taken_back: bool = False,
) -> None:
    """Log that sights were counted on a memory; below zero and ``taken_back``: no longer."""
    exact = list(vars(was).values()) if len(was.visits) <= KEPT_VISITS else None
    found = {"sights": [list(visit) for visit in seen], "was": exact, "taken_back": taken_back}
    insert_log_rows(connection, [(None, generation, id, "seen", json.dumps(found))])


def unsee(connection: Connection, generation: int, done: int) -> None:
    """Take the sights back that an operation counted, within the operation that does so.

    What was counted later, and still stands, is counted again on what was there before.
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
            back = now.before(taken) if taken and taken[0].sights > 0 else now.after(_turned(taken))
        else:
            time_ns, count, first_ns, last_ns, stretches = counted["was"]
            back = ObservationSummary(
                time_ns, count, first_ns, last_ns, tuple(Visit(*visit) for visit in stretches)
            )
            for later in standing(connection, id, row):
                back = back.after(later) if later[0].sights > 0 else back.before(_turned(later))
        write_seen(connection, id, back)
        note(connection, done, id, now, _turned(taken), taken_back=True)


def standing(connection: Connection, id: int, after_row: int = 0) -> list[list[Visit]]:
    """What was counted on a memory after a row of the log and was not taken back since, in order."""
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
        # What was taken back since, and the taking back, cancel.
        cancels = counted["taken_back"] and undoes is not None and undoes > start
        if not cancels and generation not in undone:
            found.append([Visit(*visit) for visit in counted["sights"]])
    return found


def counted_on(connection: Connection, id: int) -> ObservationCount:
    """Sights that were counted on a memory, there or gone, without those that were taken back."""
    seen = [visit for part in standing(connection, id) for visit in part]
    return ObservationCount(
        sum(visit.sights for visit in seen), max((visit.last_ns for visit in seen), default=0)
    )


def read_seen(connection: Connection, id: int) -> ObservationSummary | None:
    """When and how often a memory was seen; ``None`` where it is not there, or that is damaged."""
    found = connection.execute(SELECT, (id,)).fetchone()
    if found is None:
        return None
    blob = connection.execute("SELECT visits FROM visited WHERE id = ?", (id,)).fetchone()
    try:
        time_ns, count, first_ns, last_ns = found
        seen = visits.unpack(id, blob[0] if blob else None)
        return ObservationSummary(time_ns, saturated(count), first_ns, last_ns, seen)
    except CorruptStoreError:
        # What is damaged is for check and a backup: the writer goes on.
        return None


def write_seen(connection: Connection, id: int, seen: ObservationSummary) -> None:
    """Make this of a memory so."""
    connection.execute(
        ASSIGN, (seen.count, seen.first_seen_ns, seen.last_seen_ns, int(bool(seen.visits)), id)
    )
    visits.delete(connection, [id])
    visits.write(connection, {id: seen.visits})
    engine_of(connection).renew(connection, MEMORY, [id])


def written_after(connection: Connection, id: int, generation: int) -> bool:
    """Whether sights were counted on a memory, or taken back, after an operation."""
    sql = "SELECT 1 FROM log_row WHERE id = ? AND what = 'seen' AND generation > ? LIMIT 1"
    return connection.execute(sql, (id, generation)).fetchone() is not None


def _turned(seen: Iterable[Visit]) -> list[Visit]:
    """Counts with the other sign."""
    return [Visit(visit.first_ns, visit.last_ns, -visit.sights) for visit in seen]
