"""Which of many memories are the same thing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.merging.matching import Features, MergeOptions, compare
from memory.merging.tracked import apart

#: Pairs that are compared at a time.
CHUNK = 1 << 18


class Clusters(NamedTuple):
    """Who is the same thing as whom.

    Attributes:
        leader: (N,) int64, row of the memory that each belongs to; its own row where it stands for itself.
        distance_squared: (N,) float64, squared Mahalanobis distance to the leader.
        similarity: (N,) float64, cosine to the leader; NaN where either has no embedding.
    """

    leader: NDArray[np.int64]
    distance_squared: NDArray[np.float64]
    similarity: NDArray[np.float64]


def same_thing(features: Features, options: MergeOptions, order: NDArray[np.int64]) -> Clusters:
    """Cluster memories around leaders.

    A memory leads unless it could be the same thing as a leader before it in ``order``; one that does not
    lead belongs to the closest leader, at equal distance to the earlier. Members are compared with leaders,
    never with each other, so a row of parked cars does not become one. Of the members from one frame, and of
    tracks that were seen at one time, the closest stays; the others are clustered again among themselves.

    Args:
        features: of N memories.
        options: the gates.
        order: int64, rows, those that should lead first; rows that are not in it stand for themselves. An
            order that runs along a path takes one round for each cell of the path; one that jumps about
            takes few.

    Returns:
        The clusters, the same for the same input. The work is proportional to leaders times memories in the
        nine cells around each, of a grid as wide as the farthest that two may be apart.
    """
    count = len(features.group)
    clusters = Clusters(np.arange(count), np.zeros(count), np.full(count, np.nan))
    rank = np.full(count, count)
    rank[order] = np.arange(len(order))
    rows = order
    while len(rows):
        found = _cluster_once(features, options, rows)
        for target, values in zip(clusters, found, strict=True):
            target[rows] = values[rows]
        rows = _two_things(features, clusters, rows, rank)
        clusters.leader[rows] = rows
        clusters.distance_squared[rows], clusters.similarity[rows] = 0.0, np.nan
    return clusters


def _cluster_once(features: Features, options: MergeOptions, rows: NDArray[np.int64]) -> Clusters:
    """Clusters of ``rows``, which are in the order of leading; other rows are left alone."""
    count = len(features.group)
    found = Clusters(np.full(count, -1), np.full(count, np.inf), np.full(count, np.nan))
    rank = np.full(count, len(rows))
    rank[rows] = np.arange(len(rows))
    grid = _Grid(features, options, rows, rank)
    while True:
        cells, leaders = grid.next_leaders(found.leader)
        if not len(leaders):
            return found
        found.leader[leaders] = leaders
        found.distance_squared[leaders], found.similarity[leaders] = 0.0, np.nan
        for leader, member in grid.pairs(cells, leaders):
            match = compare(features, leader, member, options)
            index = np.flatnonzero(match.same & (found.leader[member] != member))
            index = index[np.lexsort((rank[leader[index]], match.distance_squared[index], member[index]))]
            index = index[np.diff(member[index], prepend=-1) != 0]
            distance, best = match.distance_squared[index], found.distance_squared[member[index]]
            # Members without a leader have an infinite distance, so what -1 finds here is not used.
            earlier = rank[leader[index]] < rank[found.leader[member[index]]]
            index = index[(distance < best) | ((distance == best) & earlier)]
            found.leader[member[index]] = leader[index]
            found.distance_squared[member[index]] = match.distance_squared[index]
            found.similarity[member[index]] = match.similarity[index]


def _two_things(
    features: Features, clusters: Clusters, rows: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Rows, in the order of leading, that share a cluster with a closer member that is another thing."""
    extra = np.union1d(
        _second_of_frame(features, clusters, rows, rank), _second_of_time(features, clusters, rows, rank)
    )
    return extra[np.argsort(rank[extra])]


def _second_of_time(
    features: Features, clusters: Clusters, rows: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Rows that share a cluster with a closer member whose track was seen at the same time."""
    tracked = np.array([row for row in rows.tolist() if features.tracks[row]], dtype=np.int64)
    keys = (rank[tracked], clusters.distance_squared[tracked], clusters.leader[tracked])
    extra: list[int] = []
    stay: dict[int, list[int]] = {}
    for row in tracked[np.lexsort(keys)].tolist():
        others = stay.setdefault(int(clusters.leader[row]), [])
        if any(apart(features.tracks[row], features.tracks[other]) for other in others):
            extra.append(row)
        else:
            others.append(row)
    return np.array(extra, dtype=np.int64)


def _second_of_frame(
    features: Features, clusters: Clusters, rows: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Rows that share cluster and frame with a member that is closer."""
    framed = rows[features.frame[rows] >= 0]
    keys = (rank[framed], clusters.distance_squared[framed], features.frame[framed], clusters.leader[framed])
    framed = framed[np.lexsort(keys)]
    again = (np.diff(clusters.leader[framed], prepend=-1) == 0) & (
        np.diff(features.frame[framed], prepend=-1) == 0
    )
    extra: NDArray[np.int64] = framed[again]
    return extra


class _Grid:
    """Rows by cells of a square grid in x and y, of each group apart."""

    def __init__(
        self, features: Features, options: MergeOptions, rows: NDArray[np.int64], rank: NDArray[np.int64]
    ) -> None:
        # No two positions further apart than this pass both gates. A little more, for rounding.
        largest = float(np.linalg.eigvalsh(features.covariance[rows])[:, -1].max())
        size = min(options.max_distance_m, math.sqrt(2.0 * options.gate * largest)) * (1.0 + 1e-6)
        with np.errstate(over="ignore"):  # Cells beyond all numbers are one, whose rows are compared.
            cell = np.column_stack([_squeezed(features.position[rows, axis] / size) for axis in (0, 1)])
        group = features.group[rows]
        keys = np.column_stack([group, cell])
        # Stable, so rows of a cell stay in the order of leading.
        order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
        keys, self._rows = keys[order], rows[order]
        first = np.flatnonzero(np.any(np.diff(keys, axis=0, prepend=-1) != 0, axis=1))
        cells = keys[first]
        self._ptr = np.append(first, len(rows))
        self._rank = rank
        self._next = first.copy()
        self._open = np.arange(len(cells))
        self._neighbours = _neighbours(cells)
        # Rank of the first row of each cell that belongs to nobody; the last entry is of cells not there.
        self._first_rank = np.append(rank[self._rows[first]], len(rank))

    def next_leaders(self, leader: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Cells with their first row that belongs to nobody, where it is before those of the cells around.

        Nothing that is undecided could come before these; they are never of neighbouring cells.
        """
        behind = self._open
        while len(behind):
            behind = behind[self._next[behind] < self._ptr[behind + 1]]
            behind = behind[leader[self._rows[self._next[behind]]] >= 0]
            self._next[behind] += 1
        ended = self._next[self._open] >= self._ptr[self._open + 1]
        self._first_rank[self._open[ended]] = len(self._rank)
        self._open = self._open[~ended]
        firsts = self._rows[self._next[self._open]]
        self._first_rank[self._open] = self._rank[firsts]
        around = self._first_rank[self._neighbours[self._open]]
        leads = self._rank[firsts] <= around.min(axis=1, initial=len(self._rank))
        return self._open[leads], firsts[leads]

    def pairs(
        self, cells: NDArray[np.int64], leaders: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Leaders with each other row of the nine cells around, some pairs at a time."""
        near = self._neighbours[cells]
        leader = np.repeat(leaders, near.shape[1])[near.ravel() >= 0]
        near = near.ravel()[near.ravel() >= 0]
        sizes = self._ptr[near + 1] - self._ptr[near]
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, CHUNK):
            place = np.arange(start, min(start + CHUNK, total))
            index = np.searchsorted(ends, place, side="right")
            member = self._rows[self._ptr[near[index]] + place - (ends - sizes)[index]]
            other = member != leader[index]
            yield leader[index][other], member[other]


def _squeezed(position: NDArray[np.float64]) -> NDArray[np.int64]:
    """Cells along one axis, where more than two empty ones in a row count as two: small numbers."""
    cells, index = np.unique(np.floor(position), return_inverse=True)
    with np.errstate(over="ignore"):
        steps = np.minimum(np.diff(cells), 3.0).astype(np.int64)
    return np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)[index]


def _neighbours(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """(cells, 9) int64, index of the cells around and of itself; -1 where there is none."""
    width, height = (int(size) + 3 for size in cells[:, 1:].max(axis=0))
    code = (cells[:, 0] * width + cells[:, 1] + 1) * height + cells[:, 2] + 1
    found = np.full((len(cells), 9), -1)
    for place, (x, y) in enumerate((x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)):
        wanted = code + x * height + y
        index = np.minimum(np.searchsorted(code, wanted), len(code) - 1)
        found[:, place] = np.where(code[index] == wanted, index, -1)
    return found
