"""Novelty of the observations of a batch, each compared with those kept before it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.config import ImportanceWeights
from memory.index import Neighbours
from memory.index.neighbours import unit_rows
from memory.observe.importance import Importance, importance, rarity_of
from memory.persistence.rows import to_half
from memory.types import Memory, Position
from memory.wording.reasons import ScoreReason

#: Observations whose similarities are computed at once.
BLOCK = 256
#: Stored neighbours in the first search; some may be replaced meanwhile.
STORED = 4


class Neighbourhood(NamedTuple):
    """Stored memories around a place.

    Attributes:
        ids: (n,) int64.
        distance_m: (n,) float64 distances in the plane.
    """

    ids: NDArray[np.int64]
    distance_m: NDArray[np.float64]


#: Returns the k nearest stored memories of a map for (queries, dim) vectors.
Search = Callable[[NDArray[np.float32], int, str], Neighbours]
#: Returns stored memories of the same map, kind and label within a radius in metres.
NearSearch = Callable[[Memory, float], Neighbourhood]
Group = tuple[str, str, str]


class BatchScores:
    """Scores of the observations of a batch, computed in order as if each came alone.

    An observation is compared with the stored memories of its map, except those removed by :meth:`forget`,
    and with earlier observations that :meth:`keep` added and :meth:`leave_out` did not remove. Kept
    observations count with their half-precision vectors. Label counts follow the same rules.

    An observation without a vector is compared by place with memories of its map, kind and label. Its
    similarity falls from 1 at the same place to 0 at ``near_m``.

    Args:
        memories: observations with default vectors of length ``dim``, or without.
        dim: vector length of the store.
        search: search for similar stored memories.
        counts: number of stored memories by label.
        weights: weights of importance.
        near: search for stored memories by place; ``None`` disables comparison by place.
        near_m: radius in metres, above 0.
    """

    def __init__(
        self,
        memories: Sequence[Memory],
        dim: int,
        *,
        search: Search,
        counts: Mapping[str, int],
        weights: ImportanceWeights,
        near: NearSearch | None = None,
        near_m: float = 2.0,
    ) -> None:
        self._memories = memories
        self._near_search = near
        self._near_m = near_m
        # Places of kept observations, by map, kind and label.
        self._kept_at: dict[Group, dict[int, Position]] = {}
        self._search = search
        self._weights = weights
        self._labels = [memory.label for memory in memories]
        self._counts = Counter(dict(counts))
        self._seen = sum(counts.values())
        self._reward = np.array([memory.reward for memory in memories])
        self._uncertainty = np.array([1.0 - memory.confidence for memory in memories])
        self._marked = np.array([memory.marked for memory in memories], dtype=np.bool_)
        # Scores of the observations processed so far.
        self._similarity = np.full(len(memories), np.nan)
        self._rarity = np.zeros(len(memories))
        # The score is linear in novelty and rarity, so three corners define it.
        self._low, self._novel, self._rare = (
            self._score(np.arange(len(memories)), np.array(similarity), np.array(rarity)).total.tolist()
            for similarity, rarity in ((1.0, 0.0), (0.0, 0.0), (1.0, 1.0))
        )
        names = [memory.map_id for memory in memories]
        codes = {name: code for code, name in enumerate(sorted(set(names)))}
        self._names = names
        self._maps = np.array([codes[name] for name in names], dtype=np.int64)
        self._with = np.array([memory.embedding is not None for memory in memories], dtype=np.bool_)
        self._asked = np.zeros((len(memories), dim), np.float32)
        self._stored = np.zeros((len(memories), dim), np.float32)
        rows = np.flatnonzero(self._with).tolist()
        if rows:
            vectors = np.stack([np.asarray(memories[row].embedding, np.float32) for row in rows])
            self._asked[rows] = unit_rows(vectors, dim)
            halves = to_half(vectors).astype(np.float32)
            self._stored[rows] = unit_rows(halves, dim).astype(np.float16)
        self._near_ids = np.full((len(memories), STORED), -1, np.int64)
        self._near = np.full((len(memories), STORED), -np.inf, np.float32)
        for name, code in codes.items():
            here = np.flatnonzero(self._with & (self._maps == code))
            if len(here):
                found = search(self._asked[here], STORED, name)
                # A small store returns fewer.
                some = np.ix_(here, np.arange(found.ids.shape[1]))
                self._near_ids[some], self._near[some] = found.ids, found.scores
        self._gone: set[int] = set()
        self._kept: list[int] = []
        self._start = self._stop = 0
        self._place: dict[int, int] = {}
        self._products = np.zeros((0, 0), np.float32)
        self._counted = np.zeros((0, 0), np.bool_)

    def importance(self, row: int) -> float:
        """Return the importance of the next observation."""
        label = self._labels[row]
        similarity, rarity = self.similarity(row), self._rarity_of(label)
        self._similarity[row], self._rarity[row] = similarity, rarity
        novelty = 1.0 if math.isnan(similarity) else min(max(1.0 - similarity, 0.0), 1.0)
        low = self._low[row]
        total = low + novelty * (self._novel[row] - low) + rarity * (self._rare[row] - low)
        return float(min(max(total, 0.0), 1.0))

    def explain(self, rows: Sequence[int]) -> list[ScoreReason]:
        """Explain the scores of some rows."""
        some = np.array(rows, dtype=np.int64)
        scores = self._score(some, self._similarity[some], self._rarity[some])
        return [scores.explain(at) for at in range(len(some))]

    def similarity(self, row: int) -> float:
        """Return the cosine similarity to the nearest known memory; NaN if there is none.

        Without a vector, return the closeness to a known memory of its kind and label.
        """
        if not self._with[row]:
            return self._closeness(row)
        if not self._start <= row < self._stop:
            self._multiply(row)
        nearest = self._nearest_stored(row)
        counted = self._counted[self._maps[row]]
        if counted.any():
            nearest = max(nearest, float(self._products[row - self._start, counted].max()))
        return nearest if nearest > -math.inf else math.nan

    def keep(self, row: int) -> None:
        """Add the last scored observation to the known ones."""
        self._count(self._labels[row], 1)
        memory = self._memories[row]
        if memory.position is not None:
            self._kept_at.setdefault(_group(memory), {})[row] = memory.position
        if self._with[row]:
            self._kept.append(row)
            self._counted[self._maps[row], self._place[row]] = True

    def leave_out(self, row: int) -> None:
        """Remove a replaced observation from the known ones."""
        self._count(self._labels[row], -1)
        self._kept_at.get(_group(self._memories[row]), {}).pop(row, None)
        if self._with[row]:
            self._kept.remove(row)
            self._counted[self._maps[row], self._place[row]] = False

    def forget(self, id: int, labels: Sequence[str]) -> None:
        """Remove a replaced stored memory from the known ones; without a label if already removed."""
        self._gone.add(id)
        for label in labels:
            self._count(label, -1)

    def _count(self, label: str, change: int) -> None:
        self._seen += change
        self._counts[label] += change
        if self._counts[label] <= 0:
            del self._counts[label]

    def _rarity_of(self, label: str) -> float:
        known = label in self._counts
        return rarity_of(self._counts[label], self._seen, len(self._counts) + (not known))

    def _score(
        self, rows: NDArray[np.int64], similarity: NDArray[np.float64], rarity: NDArray[np.float64]
    ) -> Importance:
        return importance(
            nearest_similarity=similarity,
            reward=self._reward[rows],
            uncertainty=self._uncertainty[rows],
            rarity=rarity,
            marked=self._marked[rows],
            weights=self._weights,
        )

    def _multiply(self, first: int) -> None:
        """Compute the similarities of the next observations to the kept ones and to each other."""
        self._start, self._stop = first, min(first + BLOCK, len(self._asked))
        rows = [*self._kept, *range(self._start, self._stop)]
        self._products = self._asked[self._start : self._stop] @ self._stored[rows].T
        self._place = {row: place for place, row in enumerate(rows)}
        # By map.
        self._counted = np.zeros((int(self._maps.max()) + 1, len(rows)), np.bool_)
        self._counted[self._maps[self._kept], np.arange(len(self._kept))] = True

    def _closeness(self, row: int) -> float:
        """Return the closeness to the nearest known memory of the same map, kind and label, from 0 to 1, or
        NaN.
        """
        if self._near_search is None:
            return math.nan
        memory = self._memories[row]
        if memory.position is None:
            return math.nan
        found = self._near_search(memory, self._near_m)
        there = ~np.isin(found.ids, list(self._gone)) if self._gone else np.ones(len(found.ids), np.bool_)
        away = float(found.distance_m[there].min(initial=np.inf))
        for position in self._kept_at.get(_group(memory), {}).values():
            away = min(away, math.dist(memory.position[:2], position[:2]))
        return 1.0 - away / self._near_m if away < self._near_m else math.nan

    def _nearest_stored(self, row: int) -> float:
        """Return the similarity to the nearest stored memory; minus infinity if there is none."""
        ids, scores = self._near_ids[row].tolist(), self._near[row].tolist()
        if self._gone and ids[-1] >= 0 and self._gone.issuperset(ids):
            found = self._search(self._asked[row : row + 1], len(self._gone) + 1, self._names[row])
            ids, scores = found.ids[0].tolist(), found.scores[0].tolist()
        for id, score in zip(ids, scores, strict=True):
            if id >= 0 and id not in self._gone:
                return float(score)
        return -math.inf


def _group(memory: Memory) -> Group:
    return (memory.map_id, memory.kind, memory.label)
