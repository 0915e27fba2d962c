"""What one robot said is taken back: from what it alone saw, and from what it saw with others."""

from __future__ import annotations

from typing import NamedTuple

from memory.errors import UndoError
from memory.merging.robots import SeenBy, seen_by
from memory.persistence.database import Database
from memory.persistence.log.journal import LogEntry
from memory.types import Memory

#: Memories that are looked at at a time.
_PORTION = 5000


class Withdrawn(NamedTuple):
    """What became of what a robot said.

    Attributes:
        forgotten: ids of memories that it alone saw, or parts of merged ones.
        operation: that took them away; ``None`` where there were none.
        taken_apart: ids of merged memories that are their parts again: the next consolidation merges those
            of the others.
        partly: ids of what it saw outside the time too, which stays.
        merged_for_good: ids of what can no longer be taken apart, which stays with the robot's share in it.
    """

    forgotten: tuple[int, ...] = ()
    operation: int | None = None
    taken_apart: tuple[int, ...] = ()
    partly: tuple[int, ...] = ()
    merged_for_good: tuple[int, ...] = ()


def withdraw(
    database: Database, robot: str, *, between_ns: tuple[int, int] | None = None, reason: str = ""
) -> Withdrawn:
    """Forget what a robot said, as if it had not: its LiDAR was loose, or it lied.

    Merged memories are taken apart by undoing the merge, so that nothing of the robot stays in positions,
    vectors and counts. Each step can be undone.

    Args:
        database: of a store that several robots share.
        robot: as which their memories came, see :mod:`memory.sync`.
        between_ns: only what it saw within, by its clock; all without it.
        reason: for :meth:`MemoryStore.explain`.
    """
    pending = _seen_by(database, robot)
    forgotten: list[int] = []
    apart: list[int] = []
    partly: list[int] = []
    stuck: list[int] = []
    while pending:
        for memory in database.present([pending.pop()], vectors=False):
            id, shares = memory.id or 0, seen_by(memory)
            if robot not in shares or not _within(shares[robot], between_ns, wholly=False):
                continue
            alone, wholly = len(shares) == 1, _within(shares[robot], between_ns, wholly=True)
            if alone and wholly:
                forgotten.append(id)
                continue
            merge = _merge_of(database, memory)
            if merge is None:
                (partly if alone else stuck).append(id)
            elif _undone(database, merge.generation):
                apart.append(id)
                pending += merge.detail["sources"]
            else:
                stuck.append(id)
    detail = {"reason": reason or f"{robot} is not believed"}
    operation = database.remove(forgotten, detail=detail) if forgotten else None
    return Withdrawn(tuple(sorted(forgotten)), operation, tuple(apart), tuple(partly), tuple(stuck))


def _seen_by(database: Database, robot: str) -> list[int]:
    """Ids of what a robot saw."""
    ids, found = database.ids(), []
    for at in range(0, len(ids), _PORTION):
        for memory in database.present(ids[at : at + _PORTION].tolist(), vectors=False):
            if memory.id is not None and robot in seen_by(memory):
                found.append(memory.id)
    return found


def _within(share: SeenBy, between_ns: tuple[int, int] | None, *, wholly: bool) -> bool:
    if between_ns is None:
        return True
    first, last = between_ns
    if wholly:
        return first <= share.first_ns and share.last_ns <= last
    return share.first_ns <= last and first <= share.last_ns


def _merge_of(database: Database, memory: Memory) -> LogEntry | None:
    """The operation that a memory was merged by."""
    history = database.history(memory.id or 0)
    merges = [entry for entry in history if entry.operation == "merge" and memory.id in entry.added]
    return merges[-1] if merges else None


def _undone(database: Database, generation: int) -> bool:
    """Take an operation back, where that is still possible."""
    try:
        database.undo(generation)
    except UndoError:
        return False
    return True
