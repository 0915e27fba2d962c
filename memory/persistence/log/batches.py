"""What one store sends another: values only; how they travel is told in :mod:`memory.sync.wire`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.persistence.ids import joined
from memory.types import Memory

#: The first and the last of ids without a gap.
Run = tuple[int, int]


class Point(NamedTuple):
    """A moment of a store's history.

    Attributes:
        generation: number of its last operation then.
        identity: of its history up to there, see :meth:`memory.persistence.queries.Queries.identity`.
    """

    generation: int
    identity: str


class PartialTransfer(NamedTuple):
    """What came of a store and is newer than where all had come.

    Attributes:
        until: where its sender was.
        ids: runs of its memories that came, or were said to be gone.
    """

    until: Point
    ids: tuple[Run, ...]


@dataclass(frozen=True)
class Position:
    """How far a receiver is with one store.

    Attributes:
        points: where everything up to there had come, the newest last, at most some hundred; empty before the
            first.
        partial: batches since, of a send that has not ended.
        robot: as whose memories it has them, or ``None``.
        store: random name of the receiving store.
    """

    store: str
    points: tuple[Point, ...] = ()
    partial: tuple[PartialTransfer, ...] = ()
    robot: str | None = None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Part of what a store has that a receiver lacks.

    Attributes:
        store: random name of the sending store.
        robot: whose it is.
        since: where the receiver was, as the sender knows.
        until: where it is after the last batch.
        whole: runs of ids there of everything that this send brings up to ``until``, with its last batch;
            ``None`` with those before. The receiver is at ``until`` once all of that had come, and nothing
            but that and ``known`` since ``since``.
        known: runs of ids there of what had come of sends that did not end, as the sender knew.
        memories: as they are now, with their ids there, rising.
        gone: ids there of what is no more, rising.
        sent_ns: nanoseconds since the epoch, by the sender's clock.
        forked: go on from ``since`` though more had come of another history.
        shared: what other robots saw, for one that asked for it: it stays apart from what it saw itself.
        progress: memories sent with it and before it, and all that are sent; the receiver has no use for it.
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
    """Rising ids as runs without gaps."""
    found = np.asarray(ids, dtype=np.int64)
    if not len(found):
        return ()
    ends = np.flatnonzero(np.diff(found) != 1)
    firsts, lasts = found[np.r_[0, ends + 1]], found[np.r_[ends, len(found) - 1]]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def ids_of(runs: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """(n,) int64 of runs."""
    return joined([np.arange(first, last + 1, dtype=np.int64) for first, last in runs])
