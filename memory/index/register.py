"""Ids at positions, and which of them still count."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.index.neighbours import Ids, Positions, check_ids
from memory.index.rows import GrowingRows


class Register:
    """Ids in the order in which they came, with marks for those that were removed.

    Attributes:
        dead: removed ones.
        rising: whether each id is larger than all before it.
    """

    def __init__(self) -> None:
        self._ids: GrowingRows[np.int64] = GrowingRows(1, np.int64)
        # The largest id up to each position: sorted, whatever the order in which ids came.
        self._largest: GrowingRows[np.int64] = GrowingRows(1, np.int64)
        self._alive = np.zeros(0, np.bool_)
        self._late: dict[int, int] = {}
        self.rising = True
        self.dead = 0

    @property
    def count(self) -> int:
        """Rows, removed ones included."""
        return len(self._ids)

    def __len__(self) -> int:
        return self.count - self.dead

    @property
    def nbytes(self) -> int:
        """Bytes of ids and marks."""
        return self._ids.nbytes + self._largest.nbytes + self._alive.nbytes

    def ids(self, count: int | None = None) -> Ids:
        """(rows,) ids by position."""
        return self._ids.between(0, self.count if count is None else count)[:, 0]

    def alive(self, count: int | None = None) -> NDArray[np.bool_]:
        """(rows,) which still count."""
        return self._alive[: self.count if count is None else count]

    def register(self, keys: Ids) -> None:
        """Append ids, alive. The ids come last of all: they are what readers count."""
        start = self.count
        if start + len(keys) > len(self._alive):
            larger = np.zeros(max(start + len(keys), 2 * len(self._alive), 64), np.bool_)
            larger[:start] = self._alive[:start]
            self._alive = larger
        self._alive[start : start + len(keys)] = True
        floor = int(self._largest.between(start - 1, start)[0, 0]) if start else -1
        largest = np.maximum(np.maximum.accumulate(keys), floor)
        before = np.concatenate([[floor], largest[:-1]]) if len(keys) else largest
        late = np.flatnonzero(keys <= before)
        self.rising &= not len(late)
        for offset in late:
            self._late[int(keys[offset])] = start + int(offset)
        self._largest.append(largest[:, None])
        self._ids.append(keys[:, None])

    def check_new(self, keys: Ids) -> None:
        """Raise ``ValueError`` where an id is there already."""
        known = self.find(keys) >= 0
        if known.any():
            raise ValueError(f"id {int(keys[known][0])} is there already: remove it first")

    def remove(self, ids: ArrayLike) -> Positions:
        """Mark rows as gone; the rising positions of those that were there."""
        found = _distinct(self.find(check_ids("ids", ids)))
        found = found[found >= 0]
        for key in self.ids()[found]:
            self._late.pop(int(key), None)
        self._alive[found] = False
        self.dead += len(found)
        return found

    def find(self, ids: Ids) -> Positions:
        """(ids,) positions of living rows, -1 where there is none."""
        if self.count == 0:
            return np.full(len(ids), -1, np.int64)
        largest = self._largest.between(0, self.count)[:, 0]
        found = np.minimum(np.searchsorted(largest, ids), self.count - 1)
        missing = (self.ids()[found] != ids) | ~self._alive[found]
        found[missing] = -1
        if self._late:
            for place in np.flatnonzero(missing):
                found[place] = self._late.get(int(ids[place]), -1)
        return found

    def living(self, count: int) -> NDArray[np.bool_] | None:
        """(count,) which rows are not removed; ``None`` where all are there."""
        return self.alive(count) if self.dead else None

    def listed(self, count: int, positions: Positions) -> NDArray[np.bool_]:
        """(count,) True at these positions."""
        mask = np.zeros(count, np.bool_)
        mask[positions] = True
        return mask

    def marked(self, count: int, ids: Ids, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(count,) which rows are alive and kept, by (ids,) rising ids and whether each is kept."""
        own = self.ids(count)
        first = int(np.searchsorted(ids, own[0])) if count else 0
        if self._same(own, ids[first : first + count]):
            # The usual case: the ids are there without a gap, as they are in a tier.
            part = kept[first : first + count]
            return part & self.alive(count) if self.dead else part
        mask = np.zeros(count, np.bool_)
        found = self.find(ids[kept])
        mask[found[(found >= 0) & (found < count)]] = True
        return mask

    def _same(self, own: Ids, ids: Ids) -> bool:
        """Whether the first rows have just these rising ids."""
        if not self.rising or len(own) != len(ids):
            return np.array_equal(own, ids)
        if not len(own):
            return True
        # Whole numbers that rise from one to another without room between them are the same ones.
        ends = int(own[0]) == int(ids[0]) and int(own[-1]) == int(ids[-1])
        return ends and (int(own[-1]) - int(own[0]) == len(own) - 1 or np.array_equal(own, ids))

    def among(self, count: int, ids: ArrayLike) -> Positions:
        """Rising positions below ``count`` of those of the ids that are here."""
        found = _distinct(self.find(check_ids("among", ids)))
        return found[(found >= 0) & (found < count)]


def _distinct(positions: Positions) -> Positions:
    """Rising, each once; ``np.unique`` takes many times as long, the more where they rise already."""
    if len(positions) < 2 or (positions[1:] > positions[:-1]).all():
        return positions
    ordered = np.sort(positions)
    once: Positions = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    return once
