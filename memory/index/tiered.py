"""Index with two tiers: the newest vectors compared exactly, the others in a long-term index."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.index.calibration import calibrate, needs_calibration
from memory.index.effort import EXACT, HIGH, THOROUGH
from memory.index.flat import FlatIndex
from memory.index.neighbours import (
    Among,
    Floats,
    Ids,
    LongTermIndex,
    Neighbours,
    check_dim,
    check_k,
    empty_answer,
    merge_best,
    unit_rows,
)
from memory.index.planner import SINGLE_QUERY, Costs, Plan, exact_price, plan

#: A long-term index is rebuilt once it holds this many times the rows it was made for.
OUTGROWN = 4
#: Below this share of rows that count, an index finds enough rows, but not the nearest; so all are compared.
_LEAST_SHARE = 1 / 32
#: Rows handled at a time while a long-term index is built.
_PORTION = 16_384


class _Tiers(NamedTuple):
    """Data of one search; replaced as a whole, so that searches need no lock."""

    recent: FlatIndex
    long_term: LongTermIndex | None


class Replacement(NamedTuple):
    """A long-term index that is ready to replace another.

    Attributes:
        long_term: the new index.
        moved: (rows,) ids that it took over from the recent tier.
        replaces: the index to replace; if that is gone by then, the new one is not used.
    """

    long_term: LongTermIndex
    moved: Ids
    replaces: LongTermIndex | None


class PlannedAnswer(NamedTuple):
    """Neighbours of one query, and how they were found.

    Attributes:
        neighbours: the requested number, and all that are as near as the last one.
        plan: the method, and why it is cheapest.
        share: share of the rows that counted; ``None`` if all were compared.
    """

    neighbours: Neighbours
    plan: Plan
    share: float | None = None


class TieredIndex:
    """Index that finds new vectors at once and exactly, and moves them to a long-term index in small
    portions.

    Up to ``dense`` vectors there is one tier, compared exactly. Beyond, a long-term index holds all but the
    newest ``recent``. Once it has outgrown its size, another is built beside it and replaces it. Its efforts
    are measured on its own rows, again whenever these have doubled. None of this runs by itself: a background
    thread calls :meth:`move`, :meth:`build`, :meth:`replace` and :meth:`calibrate` (see
    :class:`memory.search.tiers.Mover`). A search finds every vector exactly once at any moment.

    One thread changes the index at a time; :meth:`build` and :meth:`calibrate` may run meanwhile, and any
    number of threads may search.

    Args:
        dim: length of a vector.
        make: creates an empty long-term index for a number of vectors.
        dense: number of vectors up to which there is no long-term index.
        recent: number of vectors that stay in the recent tier, at most ``dense``.

    Attributes:
        dim, dense, recent: as given.
        generation: the store's generation that the index reflects.
        identity: identity of the store's history up to there, for the file.
    """

    def __init__(
        self,
        dim: int,
        *,
        make: Callable[[int], LongTermIndex],
        dense: int = 20_000,
        recent: int = 1024,
    ) -> None:
        self.dim = check_dim(dim)
        for name, number, least in (("dense", dense, 1), ("recent", recent, 0)):
            if number < least:
                raise ValueError(f"{name} must be at least {least}, got {number}")
        self.dense = dense
        self.recent = min(recent, dense)
        self.generation = 0
        self.identity = ""
        self._make = make
        self._made_for = 0
        self._tiers = _Tiers(FlatIndex(dim), None)
        # Ids removed while a long-term index is built from a copy that still has them.
        self._gone: list[Ids] | None = None
        self._building = threading.Lock()

    def __len__(self) -> int:
        recent, long_term = self._tiers
        return len(recent) + (0 if long_term is None else len(long_term))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        recent, long_term = self._tiers
        return recent.nbytes + (0 if long_term is None else long_term.nbytes)

    @property
    def tiers(self) -> tuple[FlatIndex, LongTermIndex | None]:
        """Recent tier, and the long-term tier if there is one."""
        return self._tiers

    @property
    def waiting(self) -> int:
        """Number of vectors that should move on."""
        recent, long_term = self._tiers
        if long_term is None:
            return len(recent) - self.recent if len(recent) > self.dense else 0
        return max(0, len(recent) - self.recent)

    @property
    def needs_building(self) -> bool:
        """True if a first or larger long-term index has to be built."""
        recent, long_term = self._tiers
        if long_term is None:
            return len(recent) > self.dense
        return len(long_term) > OUTGROWN * max(self._made_for, self.dense)

    @property
    def needs_calibration(self) -> bool:
        """True if the long-term index was not measured, or has doubled or halved since."""
        long_term = self._tiers.long_term
        return long_term is not None and needs_calibration(long_term)

    def calibrate(self, pause: Callable[[], None] = lambda: None) -> bool:
        """Measure the long-term index if needed; searches and changes may run meanwhile.

        Args:
            pause: called between portions of work.
        """
        long_term = self._tiers.long_term
        if long_term is None or not needs_calibration(long_term):
            return False
        calibrate(long_term, pause=pause)
        return True

    def costs(self, aim: float = HIGH) -> Costs:
        """Return the costs of a single query, for the planner."""
        long_term = self._tiers.long_term
        if long_term is None or not len(long_term):
            return SINGLE_QUERY
        effort = long_term.effort(aim)
        passed = long_term.price(EXACT) / max(1, len(long_term))
        # If an index compares all rows, the planner should do it, because it knows which rows match.
        base = long_term.price(effort) if effort != EXACT else passed * len(self) + 1.0
        return _costs(passed, base)

    def price(self, aim: float) -> float:
        """Return nanoseconds on one core for a single query."""
        recent, long_term = self._tiers
        compared = exact_price(len(recent))
        return compared if long_term is None else compared + long_term.price(long_term.effort(aim))

    def describe(self, aim: float, *, share: float = 1.0) -> str:
        """Describe what a single query does for an aim if this share of the rows counts."""
        recent, long_term = self._tiers
        if long_term is None:
            return "all rows compared"
        newest = f"; the newest {len(recent)} compared" if len(recent) else ""
        if aim == 1.0 or long_term.calibration is None:
            return long_term.describe(aim, share=share) + newest
        rung = long_term.calibration.least(aim)
        effort = long_term.effort(aim)
        found = "" if rung is None or rung.effort != effort else f", measured to find {rung.recall:.3f}"
        return long_term.describe(aim, share=share) + found + newest

    def add(self, vectors: ArrayLike, ids: ArrayLike) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids to the recent tier.

        Raises:
            ValueError: not unit vectors, or an id exists already; nothing is added.
        """
        self._tiers.recent.add(vectors, ids)

    def fill(self, count: int, portions: Callable[[], tuple[Floats, Ids] | None]) -> None:
        """Fill an empty index with very many vectors, straight into the tier where they belong.

        Args:
            count: approximate number of vectors.
            portions: returns the next (rows, dim) vectors and (rows,) ids, or ``None`` after the last.
        """
        long_term = self._make(count) if count > self.dense else None
        while (portion := portions()) is not None:
            if long_term is None:
                self._tiers.recent.add(*portion)
            else:
                long_term.add(*portion, merge=False)
        if long_term is not None:
            long_term.merge(whole=True)
            self._made_for = len(long_term)
            self._tiers = self._tiers._replace(long_term=long_term)
            self.calibrate()

    def adopt(self, index: LongTermIndex) -> None:
        """Use a loaded index as the recent tier of an empty one if it is flat, else as the long-term tier."""
        if isinstance(index, FlatIndex):
            self._tiers = _Tiers(index, None)
        else:
            self._made_for = len(index)
            self._tiers = _Tiers(FlatIndex(self.dim), index)

    def remove(self, ids: ArrayLike) -> int:
        """Exclude these ids from searches and return how many existed."""
        recent, long_term = self._tiers
        if self._gone is not None:
            self._gone.append(np.asarray(ids, dtype=np.int64))
        found = recent.remove(ids)
        self._shrink(recent)
        return found + (0 if long_term is None else long_term.remove(ids))

    def move(self, rows: int) -> int:
        """Move up to this many of the oldest recent vectors and return how many moved."""
        recent, long_term = self._tiers
        if long_term is None:
            return 0
        count = min(rows, self.waiting)
        if count <= 0:
            return 0
        ids, vectors = _oldest(recent, count)
        self._gone = None  # An index under construction lacks these vectors, so it will not be used.
        # Add first, then remove, so that a concurrent search finds them once or twice, but never misses them.
        long_term.add(vectors, ids, merge=False)
        recent.remove(ids)
        self._shrink(recent)
        return count

    def _shrink(self, recent: FlatIndex) -> None:
        """Free the space of vectors that moved on or were removed."""
        if recent.positions > 2 * len(recent) + 4096:
            self._tiers = self._tiers._replace(recent=_without(recent, np.zeros(0, np.int64)))

    def sort(self, more_than: int = 0) -> None:
        """Sort the long-term index's tail if it is longer than this, beside searches and changes."""
        long_term = self._tiers.long_term
        if long_term is not None and long_term.tail > more_than:
            long_term.merge()

    def build(self, pause: Callable[[], None] = lambda: None) -> Replacement:
        """Build a long-term index of all but the newest vectors; searches and changes may run meanwhile.

        Args:
            pause: called between portions of work.
        """
        with self._building:
            self._gone = []
            recent, old = self._tiers
            count = len(self)
            new = self._make(max(count, 1))
            for start in range(0, 0 if old is None else old.positions, _PORTION):
                assert old is not None
                ids, vectors = old.stored(start, start + _PORTION)
                new.add(vectors, ids, merge=False)
                pause()
            moved, vectors = _oldest(recent, max(0, len(recent) - self.recent))
            for start in range(0, len(moved), _PORTION):
                new.add(vectors[start : start + _PORTION], moved[start : start + _PORTION], merge=False)
                pause()
            new.merge(whole=True)
            pause()
            if needs_calibration(new):
                calibrate(new, pause=pause)
            return Replacement(new, moved, old)

    def replace(self, built: Replacement) -> bool:
        """Put a built index in place; return False if the index that it replaces is gone."""
        gone, self._gone = self._gone, None
        recent, old = self._tiers
        if old is not built.replaces or gone is None:
            return False
        for ids in gone:
            built.long_term.remove(ids)
        self._made_for = len(built.long_term)
        # An id that was removed and added again meanwhile is new in the recent tier, and stays there.
        again = np.concatenate(gone) if gone else np.zeros(0, np.int64)
        left = _without(recent, np.setdiff1d(built.moved, again))
        # Replace both tiers at once: a search that began with the old tiers finds there what has moved.
        self._tiers = _Tiers(left, built.long_term)
        return True

    def settle(self) -> None:
        """Do all pending work at once."""
        while self.needs_building:
            self.replace(self.build())
        while self.move(_PORTION):
            pass
        self.sort()
        self.calibrate()

    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        among: Among | None = None,
        aim: float = HIGH,
    ) -> Neighbours:
        """Return the k nearest rows of each query.

        Args:
            queries: (queries, dim) unit vectors.
            k: neighbours per query.
            among: rows to choose from; ``None`` for all.
            aim: share of the ten nearest that the long-term index should find, by its calibration; 1 compares
                all.
        """
        recent, long_term = self._tiers
        if long_term is None:
            return recent.search(queries, k, among=among, aim=aim)
        k = min(check_k(k), max(len(self), 1))
        # Search the recent tier first: vectors that move meanwhile are then found in both tiers, not in
        # neither.
        found = recent.search(queries, k, among=among, aim=aim) if len(recent) else None
        further = long_term.search(queries, k, among=among, aim=aim)
        return further if found is None else _join_tiers(found, further, k)

    def answer(
        self, vector: Floats, k: int, *, ids: Ids, kept: NDArray[np.bool_] | None, total: int
    ) -> PlannedAnswer:
        """Find the nearest rows of one query by the cheapest method, if some rows may not count.

        Args:
            vector: (dim,) of any length above 0.
            k: neighbours; ties with the last one are returned too.
            ids: (rows,) rising ids that include all ids of the index.
            kept: (rows,) which of them count; ``None`` for all.
            total: number of existing ids; if all count, the marks are not used.
        """
        costs = self.costs(THOROUGH)
        among = None if kept is None else Among(ids, kept)
        matches = len(self) if kept is None else int(np.count_nonzero(kept))
        rows = max(len(self), matches)
        chosen = plan(rows, matches, k, filtered=among is not None, costs=costs)
        query = unit_rows(vector[None], self.dim)
        if matches == 0 and among is not None:
            return PlannedAnswer(empty_answer(1, 0), chosen)
        if chosen.method == "index" and matches >= _LEAST_SHARE * rows:
            marked = None if matches == total else among
            found = self._nearest(query, k, marked, THOROUGH)
            # Too few found: the matching rows lie outside the buckets or lists of the query.
            if among is None or np.count_nonzero(found.ids >= 0) >= min(k, matches):
                return PlannedAnswer(found, chosen, 1.0 if marked is None else matches / rows)
        if chosen.method == "subset" and kept is not None:
            among = Among(ids[kept])
        return PlannedAnswer(self._nearest(query, k, among, 1.0), chosen)

    def _nearest(self, query: Floats, k: int, among: Among | None, aim: float) -> Neighbours:
        """Return the k nearest rows of one query, and all ties with the last one."""
        most = k + 1
        while True:
            found = self.search(query, most, among=among, aim=aim)
            scores = found.scores[0]
            if len(scores) < most or scores[-1] < scores[k - 1] or scores[-1] == -np.inf:
                return found
            most *= 8

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file of the long-term index, after moving everything there, or of the recent tier."""
        recent, long_term = self._tiers
        if long_term is None:
            recent.generation, recent.identity = self.generation, self.identity
            return recent.save(path)
        keep, self.recent = self.recent, 0
        try:
            self.settle()
        finally:
            self.recent = keep
        long_term = self._tiers.long_term
        assert long_term is not None
        long_term.generation, long_term.identity = self.generation, self.identity
        return long_term.save(path)


@lru_cache(maxsize=64)
def _costs(passed_row: float, index_base: float) -> Costs:
    """Return the costs of a single query; cached, because each construction checks them."""
    return dataclasses.replace(SINGLE_QUERY, passed_row=passed_row, index_base=index_base)


def _without(index: FlatIndex, ids: Ids) -> FlatIndex:
    """Return a copy of the living rows without these ids."""
    there, vectors = index.stored(0, index.positions)
    stays = ~np.isin(there, ids)
    copy = FlatIndex(index.dim)
    copy.add(vectors[stays], there[stays])
    return copy


def _oldest(index: FlatIndex, count: int) -> tuple[Ids, Floats]:
    """Return the (rows,) ids and (rows, dim) vectors of the first living rows."""
    if count <= 0:
        return np.zeros(0, np.int64), np.zeros((0, index.dim), np.float32)
    ids, vectors = index.stored(0, index.positions, most=count)
    return ids, vectors


def _join_tiers(first: Neighbours, second: Neighbours, k: int) -> Neighbours:
    """Return the k best of two answers; a row in both counts once."""
    if first.ids.size and second.ids.size:
        # A row that is moving is in both tiers for a moment, with the same score.
        twice = (second.ids[:, :, None] == first.ids[:, None, :]).any(axis=2) & (second.ids >= 0)
        if twice.any():
            second = Neighbours(np.where(twice, -np.inf, second.scores).astype(np.float32), second.ids)
    return merge_best(first, second, k)
