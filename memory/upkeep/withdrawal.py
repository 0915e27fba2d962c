"""Withdrawal of what one robot reported, including its share in merged memories."""

from __future__ import annotations

from typing import NamedTuple

from memory.errors import UndoError
from memory.merging.robots import SeenBy, seen_by
from memory.persistence.database import Database
from memory.persistence.log.journal import LogEntry
from memory.types import Memory


class WithdrawalResult(NamedTuple):
    """Result of a withdrawal.

    Attributes:
        forgotten: ids of memories that the robot alone saw, or that were parts of merged ones.
        operation: operation that removed them, or ``None``.
        taken_apart: ids of merged memories that were split; the next consolidation merges the parts of other
            robots.
        partly: ids of memories that it also saw outside the time range; these stay.
        merged_for_good: ids of memories that can no longer be split; these stay with the robot's share.
    """

    forgotten: tuple[int, ...] = ()
    operation: int | None = None
    taken_apart: tuple[int, ...] = ()
    partly: tuple[int, ...] = ()
    merged_for_good: tuple[int, ...] = ()


def withdraw(
    database: Database, robot: str, *, between_ns: tuple[int, int] | None = None, reason: str = ""
) -> WithdrawalResult:
    """Forget what a robot reported, for example because its LiDAR was loose.

    Merged memories are split by undoing the merge, so that nothing of the robot stays in positions, vectors
    and counts. Each step can be undone.

    Args:
        database: store that several robots share.
        robot: name under which its memories came, see :mod:`memory.sync`.
        between_ns: time range by the robot's clock; None: all times.
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
    return WithdrawalResult(tuple(sorted(forgotten)), operation, tuple(apart), tuple(partly), tuple(stuck))


def _seen_by(database: Database, robot: str) -> list[int]:
    """Return the ids of what a robot saw."""
    memories = database.stream(database.ids(), vectors=False)
    return [memory.id or 0 for memory in memories if robot in seen_by(memory)]


def _within(share: SeenBy, between_ns: tuple[int, int] | None, *, wholly: bool) -> bool:
    if between_ns is None:
        return True
    first, last = between_ns
    if wholly:
        return first <= share.first_ns and share.last_ns <= last
    return share.first_ns <= last and first <= share.last_ns


def _merge_of(database: Database, memory: Memory) -> LogEntry | None:
    """Return the log entry of the merge that created a memory."""
    history = database.history(memory.id or 0)
    merges = [entry for entry in history if entry.operation == "merge" and memory.id in entry.added]
    return merges[-1] if merges else None


def _undone(database: Database, generation: int) -> bool:
    """Undo an operation; return False if that is no longer possible."""
    try:
        database.undo(generation)
    except UndoError:
        return False
    return True
