"""What a store has that a receiver lacks, by its own log: that is the outbox, and nothing else is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from memory.errors import ForkedStoreError
from memory.persistence.database import Database
from memory.persistence.ids import joined
from memory.persistence.log.batches import Batch, PartialTransfer, Point, Position, ids_of, runs_of
from memory.persistence.log.reception import PeerState
from memory.types import check_text

#: Memories of a batch.
PORTION = 500


class Outbox:
    """Makes batches.

    Args:
        database: of the store, which may be open for reading only while another process writes.
        robot: whose it is.
        portion: memories of a batch.
        forked: go on from what is common where the store was put back as it had been before.
        maps: of which memories are sent; all without it.
        shared: what it sends is for a robot that asked what others saw.
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
            raise ValueError(
                f"a robot needs a name, and a batch at least one memory; got {robot!r}, {portion}"
            )
        self._database, self._portion = database, portion
        self.store, self.robot = database.store, robot
        self._forked, self._maps, self._shared = forked, maps, shared

    @property
    def generation(self) -> int:
        """Number of the store's last operation."""
        return self._database.generation

    def start(self, position: Position) -> tuple[Point, bool]:
        """From where to go on, and whether the receiver has what is of another history.

        Raises:
            ForkedStoreError: it has, and that was not said to be all right.
        """
        points = [Point(0, self._identity(0)), *position.points]
        common = next(point for point in reversed(points) if self._has(point))
        if common == points[-1] and all(self._has(part.until) for part in position.partial):
            return common, False
        if not self._forked:
            raise ForkedStoreError(
                f"the other side has {self.robot} up to operation {points[-1].generation} of a history that"
                f" is not this store's, which agrees up to {common.generation} only: this one was put back as"
                " it had been before, or is a copy of one that goes on elsewhere. --forked goes on from"
                " there; what had come since stays, and is not changed any more"
            )
        return common, True

    def batches(self, position: Position) -> Iterator[Batch]:
        """What is new, the most important first, after what changed and went; none where nothing is."""
        since, forked = self.start(position)
        generation = self._database.generation
        if generation == since.generation:
            return
        until = Point(generation, self._identity(generation))
        changes = self._database.changes(since.generation)
        # Of a history that was given up nothing counts as sent.
        partial = () if forked else position.partial
        known = np.unique(joined([ids_of(part.ids) for part in partial]))
        sent = self._unchanged(partial)
        vanished = np.setdiff1d(known, self._database.columns(known.tolist()).ids)
        gone = np.setdiff1d(np.union1d(changes.removed, vanished), sent)
        left_out = np.union1d(sent, self._theirs(position.store))
        ids = joined([
            self._of_maps(np.setdiff1d(changes.changed, left_out)),
            self._by_importance(self._of_maps(np.setdiff1d(changes.added, left_out))),
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
                forked=forked and start == 0,  # From then on the receiver goes on with this history.
                shared=self._shared,
                progress=(min(start + self._portion, len(ids)), len(ids)),
            )

    def _unchanged(self, partial: Sequence[PartialTransfer]) -> NDArray[np.int64]:
        """What came of sends that did not end, and did not change since."""
        found = []
        for part in partial:
            later = self._database.changes(part.until.generation)
            # What was gone and is there again counts as added.
            touched = joined([later.added, later.changed, later.removed])
            found.append(np.setdiff1d(ids_of(part.ids), touched))
        return np.unique(joined(found))

    def _by_importance(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The most important first, of equal ones the oldest; those without a figure count as middling."""
        if not len(ids):
            return ids
        columns = self._database.columns(ids.tolist())
        order = np.lexsort((columns.ids, -np.nan_to_num(columns.importance, nan=0.5)))
        found: NDArray[np.int64] = columns.ids[order]
        return found

    def _of_maps(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._maps is None or not len(ids):
            return ids
        columns = self._database.columns(ids.tolist())
        found: NDArray[np.int64] = columns.ids[np.isin(np.array(columns.map_ids, dtype=np.str_), self._maps)]
        return found

    def _theirs(self, store: str) -> NDArray[np.int64]:
        """(n,) int64: what came from the receiver, or was merged from something that did."""
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
