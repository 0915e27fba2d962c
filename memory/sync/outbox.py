"""Sending side of a synchronization: reads what a receiver lacks from the store's own log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from memory.errors import ForkedStoreError
from memory.persistence.database import Database
from memory.persistence.ids import concat
from memory.persistence.log.batches import Batch, PartialTransfer, Point, Position, ids_of, runs_of
from memory.persistence.log.reception import PeerState
from memory.sync.areas import AreaMessage, areas_for
from memory.types import check_text

#: Memories per batch.
PORTION = 500


class Outbox:
    """Source of batches for a receiver.

    Args:
        database: the store; read-only is enough, and another process may write meanwhile.
        robot: name of the robot that owns the store.
        portion: memories per batch.
        forked: continue from the common history if the store was restored from a backup.
        maps: maps whose memories are sent; None: all.
        shared: the batches are for a robot that pulls what others saw.
    """

    def __init__(
        self,
        database: Database,
        robot: str,
        *,
        portion: int = PORTION,
        forked: bool = False,
        maps: Sequence[str] | None = None,
        shared: bool = False,
    ) -> None:
        if not check_text("robot", robot).strip() or portion < 1:
            raise ValueError(f"give a robot name and a portion of at least 1, got {robot!r} and {portion}")
        self._database, self._portion = database, portion
        self.store, self.robot = database.store, robot
        self._forked, self._maps, self._shared = forked, maps, shared

    @property
    def generation(self) -> int:
        """Number of the store's last operation."""
        return self._database.generation

    def start(self, position: Position) -> tuple[Point, bool]:
        """Return the point to continue from, and True if the receiver has another history after it.

        Raises:
            ForkedStoreError: the receiver has another history, and ``forked`` is False.
        """
        points = [Point(0, self._identity(0)), *position.points]
        common = next(point for point in reversed(points) if self._has(point))
        if common == points[-1] and all(self._has(part.until) for part in position.partial):
            return common, False
        if not self._forked:
            raise ForkedStoreError(
                f"the other store has operations of {self.robot} up to {points[-1].generation}, but this"
                f" store shares only those up to {common.generation}. It was restored from a backup, or is"
                " a copy of a store that continued elsewhere. Use --forked to continue from there; what the"
                " other store received since stays unchanged"
            )
        return common, True

    def batches(self, position: Position) -> Iterator[Batch]:
        """Yield changes and removals, then new memories by falling importance; nothing if nothing is new."""
        since, forked = self.start(position)
        generation = self._database.generation
        if generation == since.generation:
            return
        until = Point(generation, self._identity(generation))
        changes = self._database.changes(since.generation)
        # After a fork, earlier transfers do not count.
        partial = () if forked else position.partial
        known = np.unique(concat([ids_of(part.ids) for part in partial]))
        sent = self._delivered_ids(partial)
        vanished = np.setdiff1d(known, self._database.columns(known.tolist()).ids)
        gone = np.setdiff1d(np.union1d(changes.removed, vanished), sent)
        left_out = np.union1d(sent, self._received_from(position.store))
        ids = concat([
            self._in_maps(np.setdiff1d(changes.changed, left_out)),
            self._by_importance(self._in_maps(np.setdiff1d(changes.added, left_out))),
        ])  # fmt: skip
        if not len(ids) and not len(gone) and not position.partial:
            return
        starts = range(0, max(len(ids), 1), self._portion)
        whole = runs_of(np.union1d(ids, gone))
        for start in starts:
            yield Batch(
                store=self.store,
                robot=self.robot,
                since=since,
                until=until,
                known=runs_of(known),
                whole=whole if start == starts[-1] else None,
                memories=self._database.present(np.sort(ids[start : start + self._portion]).tolist()),
                gone=gone.tolist() if start == 0 else [],
                sent_ns=time.time_ns(),
                forked=forked and start == 0,  # The receiver then continues with this history.
                shared=self._shared,
                progress=(min(start + self._portion, len(ids)), len(ids)),
            )

    def areas(self, receiver: str) -> AreaMessage:
        """Return the areas for a receiving store of this random name."""
        return areas_for(self._database, self.robot, receiver, self._maps)

    def _delivered_ids(self, partial: Sequence[PartialTransfer]) -> NDArray[np.int64]:
        """Return the ids that unfinished transfers delivered and that have not changed since."""
        found = []
        for part in partial:
            later = self._database.changes(part.until.generation)
            # An id that was removed and restored counts as added.
            touched = concat([later.added, later.changed, later.removed])
            found.append(np.setdiff1d(ids_of(part.ids), touched))
        return np.unique(concat(found))

    def _by_importance(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sort by falling importance, then by age; unknown importance counts as 0.5."""
        if not len(ids):
            return ids
        columns = self._database.columns(ids.tolist())
        order = np.lexsort((columns.ids, -np.nan_to_num(columns.importance, nan=0.5)))
        found: NDArray[np.int64] = columns.ids[order]
        return found

    def _in_maps(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._maps is None or not len(ids):
            return ids
        columns = self._database.columns(ids.tolist())
        found: NDArray[np.int64] = columns.ids[np.isin(np.array(columns.map_ids, dtype=np.str_), self._maps)]
        return found

    def _received_from(self, store: str) -> NDArray[np.int64]:
        """Return the (n,) int64 ids that came from the receiver, or were merged from such memories."""
        known = PeerState(store)
        self._database.follow(known)
        found = set(known.ids().tolist())
        if found:
            for entry in self._database.log(operation="merge"):
                if not found.isdisjoint(entry.detail.get("sources", ())):
                    found.update(entry.added)
        return np.array(sorted(found), dtype=np.int64)

    def _has(self, point: Point) -> bool:
        return self._database.identity(point.generation) == point.identity

    def _identity(self, generation: int) -> str:
        return str(self._database.identity(generation))
