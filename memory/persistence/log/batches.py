"""Values that one store sends another; :mod:`memory.sync.wire` encodes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.persistence.ids import concat
from memory.types import Memory

#: First and last of ids without a gap.
Run = tuple[int, int]


class Point(NamedTuple):
    """A moment of a store's history.

    Attributes:
        generation: number of its last operation.
        identity: see :meth:`memory.persistence.queries.Queries.identity`.
    """

    generation: int
    identity: str


class PartialTransfer(NamedTuple):
    """What arrived of an unfinished transfer.

    Attributes:
        until: point of the sender.
        ids: runs of its ids that arrived, as memories or removals.
    """

    until: Point
    ids: tuple[Run, ...]


@dataclass(frozen=True)
class Position:
    """How far a receiver is with one store.

    Attributes:
        store: random name of the receiving store.
        points: points up to which everything arrived, newest last, at most about a hundred.
        partial: batches of unfinished transfers since.
        robot: name of the robot for whose memories they count, or ``None``.
    """

    store: str
    points: tuple[Point, ...] = ()
    partial: tuple[PartialTransfer, ...] = ()
    robot: str | None = None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Part of what a receiver lacks.

    Attributes:
        store: random name of the sending store.
        robot: name of its robot.
        since: the receiver's point, as the sender knows it.
        until: the receiver's point after the last batch.
        whole: runs of all sender ids that this transfer brings up to ``until``; only in the last batch, else
            ``None``. The receiver reaches ``until`` if it then has these and ``known`` since ``since``, and
            no others.
        known: runs of sender ids from unfinished transfers, as the sender knows them.
        memories: current memories with the sender's ids, rising.
        gone: rising sender ids of removed memories.
        sent_ns: nanoseconds since the epoch, by the sender's clock.
        forked: continue from ``since`` although more arrived from another history.
        shared: observations of other robots, for a robot that pulled them; they stay separate from its own.
        progress: memories sent so far and their total; the receiver ignores it.
    """

    store: str
    robot: str
    since: Point
    until: Point
    whole: Sequence[Run] | None
    known: Sequence[Run]
    memories: Sequence[Memory]
    gone: Sequence[int]
    sent_ns: int
    forked: bool = False
    shared: bool = False
    progress: tuple[int, int] = (0, 0)


def runs_of(ids: Sequence[int] | NDArray[np.int64]) -> tuple[Run, ...]:
    """Return rising ids as runs without gaps."""
    found = np.asarray(ids, dtype=np.int64)
    if not len(found):
        return ()
    ends = np.flatnonzero(np.diff(found) != 1)
    firsts, lasts = found[np.r_[0, ends + 1]], found[np.r_[ends, len(found) - 1]]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def ids_of(runs: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return the (n,) int64 ids of runs."""
    return concat([np.arange(first, last + 1, dtype=np.int64) for first, last in runs])
