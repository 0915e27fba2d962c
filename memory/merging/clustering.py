"""Clustering of memories by object."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.merging.matching import Features, MergeOptions, compare, in_one_place
from memory.merging.tracks import are_different

#: Pairs compared at a time.
CHUNK = 1 << 18


class Clusters(NamedTuple):
    """Assignment of memories to leaders.

    Attributes:
        leader: (N,) int64 row of each memory's leader; its own row if it leads.
        distance_squared: (N,) float64 squared Mahalanobis distance to the leader.
        similarity: (N,) float64 cosine to the leader; NaN without both embeddings.
    """

    leader: NDArray[np.int64]
    distance_squared: NDArray[np.float64]
    similarity: NDArray[np.float64]


def same_thing(features: Features, options: MergeOptions, order: NDArray[np.int64]) -> Clusters:
    """Cluster memories around leaders.

    A memory leads unless it matches a leader before it in ``order``. Otherwise it joins the closest leader,
    or the earlier one at equal distance. Members are compared with leaders, never with each other, so a row
    of parked cars does not become one object. Of the members of one frame, or of tracks seen at one time,
    only the closest stays; the others are clustered again among themselves.

    Args:
        order: int64 rows, those that should lead first; other rows stay alone. An order along a path needs
            one round per cell of the path; a random order needs few.

    Returns:
        The clusters; deterministic. The work grows with leaders times memories in the nine grid cells around
        each; a cell is as wide as the largest matching distance.
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
        rows = _conflicting_rows(features, clusters, rows, rank)
        clusters.leader[rows] = rows
        clusters.distance_squared[rows], clusters.similarity[rows] = 0.0, np.nan
    return clusters


def _cluster_once(features: Features, options: MergeOptions, rows: NDArray[np.int64]) -> Clusters:
    """Cluster ``rows``, which are in order of leading; other rows stay unchanged."""
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
            # Members without a leader have an infinite distance, so the value at index -1 is not used.
            earlier = rank[leader[index]] < rank[found.leader[member[index]]]
            index = index[(distance < best) | ((distance == best) & earlier)]
            found.leader[member[index]] = leader[index]
            found.distance_squared[member[index]] = match.distance_squared[index]
            found.similarity[member[index]] = match.similarity[index]


def _conflicting_rows(
    features: Features, clusters: Clusters, rows: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the rows that share a cluster with a closer member that must be another object."""
    extra = np.union1d(
        _frame_conflicts(features, clusters, rows, rank), _track_conflicts(features, clusters, rows, rank)
    )
    return extra[np.argsort(rank[extra])]


def _track_conflicts(
    features: Features, clusters: Clusters, rows: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the rows that share a cluster with a closer member of a simultaneous track."""
    tracked = np.array([row for row in rows.tolist() if features.tracks[row]], dtype=np.int64)
    keys = (rank[tracked], clusters.distance_squared[tracked], clusters.leader[tracked])
    extra: list[int] = []
    stay: dict[int, list[int]] = {}
    for row in tracked[np.lexsort(keys)].tolist():
        others = stay.setdefault(int(clusters.leader[row]), [])
        if any(are_different(features.tracks[row], features.tracks[other]) for other in others) and not (
            in_one_place(features, np.array([row] * len(others)), np.array(others)).any()
        ):
            extra.append(row)
        else:
            others.append(row)
    return np.array(extra, dtype=np.int64)


def _frame_conflicts(
    features: Features, clusters: Clusters, rows: NDArray[np.int64], rank: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the rows that share a cluster and a frame with a closer member."""
    framed = rows[features.frame[rows] >= 0]
    keys = (rank[framed], clusters.distance_squared[framed], features.frame[framed], clusters.leader[framed])
    framed = framed[np.lexsort(keys)]
    again = (np.diff(clusters.leader[framed], prepend=-1) == 0) & (
        np.diff(features.frame[framed], prepend=-1) == 0
    )
    # Those in one place with the closest member of their frame are doubles of it.
    closest = framed[np.maximum.accumulate(np.where(again, 0, np.arange(len(framed))))]
    extra: NDArray[np.int64] = framed[again & ~in_one_place(features, framed, closest)]
    return extra


class _Grid:
    """Rows by cells of a square grid in x and y, separate for each group."""

    def __init__(
        self, features: Features, options: MergeOptions, rows: NDArray[np.int64], rank: NDArray[np.int64]
    ) -> None:
        # Larger distances fail a condition; the margin covers rounding.
        largest = float(np.linalg.eigvalsh(features.covariance[rows])[:, -1].max())
        size = min(options.max_distance_m, math.sqrt(2.0 * options.gate * largest)) * (1.0 + 1e-6)
        with np.errstate(over="ignore"):  # Overflowing cells become one, whose rows are compared.
            cell = np.column_stack([_compress(features.position[rows, axis] / size) for axis in (0, 1)])
        group = features.group[rows]
        keys = np.column_stack([group, cell])
        # The sort is stable, so the rows of a cell keep their order.
        order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
        keys, self._rows = keys[order], rows[order]
        first = np.flatnonzero(np.any(np.diff(keys, axis=0, prepend=-1) != 0, axis=1))
        cells = keys[first]
        self._ptr = np.append(first, len(rows))
        self._rank = rank
        self._next = first.copy()
        self._open = np.arange(len(cells))
        self._neighbours = _neighbours(cells)
        # Rank of each cell's first unassigned row; the last entry stands for missing cells.
        self._first_rank = np.append(rank[self._rows[first]], len(rank))

    def next_leaders(self, leader: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the cells whose first unassigned row comes before those of the cells around, and these rows.

        No undecided row can come before these, and no two of the cells are neighbours.
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
        """Yield leaders with each other row of the nine cells around, some pairs at a time."""
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


def _compress(position: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return small cell numbers along one axis: longer runs of empty cells shrink to two."""
    cells, index = np.unique(np.floor(position), return_inverse=True)
    with np.errstate(over="ignore"):
        steps = np.minimum(np.diff(cells), 3.0).astype(np.int64)
    return np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)[index]


def _neighbours(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (cells, 9) int64 indices of each cell and those around it; -1 for missing cells."""
    width, height = (int(size) + 3 for size in cells[:, 1:].max(axis=0))
    code = (cells[:, 0] * width + cells[:, 1] + 1) * height + cells[:, 2] + 1
    found = np.full((len(cells), 9), -1)
    for place, (x, y) in enumerate((x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)):
        wanted = code + x * height + y
        index = np.minimum(np.searchsorted(code, wanted), len(code) - 1)
        found[:, place] = np.where(code[index] == wanted, index, -1)
    return found
