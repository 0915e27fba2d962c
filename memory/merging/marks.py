"""Marks for the alignment of two maps: static objects, and moving objects at several moments."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.merging.align_options import AlignOptions
from memory.merging.fusion import unit_embeddings
from memory.merging.trajectories import trajectory_of
from memory.types import Memory

#: Most candidate pairs; labels with the fewest pairs come first.
MOST_PAIRS = 20_000
#: Time between the moments of a moving object, and the moment of static ones.
MOMENT_NS, ALWAYS = 500_000_000, -1
#: Largest number of values compared at a time.
TABLE = 1 << 22


class Marks(NamedTuple):
    """Observations of one robot: static objects, and moving ones at several moments.

    Attributes:
        memories: memory of each mark.
        places: (N, 2) float64 metres, where it was at that moment.
        velocities: (N, 2) float64 m/s at that moment; 0 for static objects.
        moment: (N,) nanoseconds, ``ALWAYS`` for static objects.
        owner: (N,) int64 number of the object.
        objects: number of objects.
    """

    memories: list[Memory]
    places: NDArray[np.float64]
    velocities: NDArray[np.float64]
    moment: list[int]
    owner: NDArray[np.int64]
    objects: int


def marks_of(memories: Sequence[Memory], tolerance_m: float, clock_ns: int = 0) -> Marks:
    """Return the marks of memories with a label: one per static object and moment of a moving one.

    Args:
        memories: with positions.
        tolerance_m: static objects of one label this close are one.
        clock_ns: nanoseconds to add to all times first.
    """
    kept: list[Memory] = []
    places: list[tuple[float, float]] = []
    velocities: list[tuple[float, float]] = []
    moment: list[int] = []
    owner: list[int] = []
    objects = 0
    cells: dict[tuple[str, str, int, int], list[Memory]] = defaultdict(list)
    for memory in memories:
        if not memory.label:
            continue
        trajectory = trajectory_of(memory)
        if trajectory is not None:
            first, last = int(trajectory.time_ns[0]) + clock_ns, int(trajectory.time_ns[-1]) + clock_ns
            times = np.arange(-(-first // MOMENT_NS), last // MOMENT_NS + 1) * MOMENT_NS
            own = times - clock_ns
            kept += [memory] * len(times)
            places += map(tuple, trajectory.at(own).tolist())
            velocities += map(tuple, trajectory.velocity_at(own).tolist())
            moment += times.tolist()
            owner += [objects] * len(times)
            objects += bool(len(times))
            continue
        (x, y), sort = memory.place[:2], (memory.kind, memory.label)
        column, row = math.floor(x / tolerance_m), math.floor(y / tolerance_m)
        around = [
            other
            for at in range(column - 1, column + 2)
            for to in range(row - 1, row + 2)
            for other in cells.get((*sort, at, to), ())
        ]
        if all(math.dist((x, y), other.place[:2]) > tolerance_m for other in around):
            cells[(*sort, column, row)].append(memory)
            kept.append(memory)
            places.append((x, y))
            velocities.append((0.0, 0.0))
            moment.append(ALWAYS)
            owner.append(objects)
            objects += 1
    return Marks(
        kept,
        np.array(places, np.float64).reshape(-1, 2),
        np.array(velocities, np.float64).reshape(-1, 2),
        moment,
        np.array(owner, np.int64),
        objects,
    )


def pairs_of(moved: Marks, fixed: Marks, options: AlignOptions) -> NDArray[np.int64]:
    """Return (P, 2) int64 rows of pairs that could match, the rarest labels first."""
    groups: dict[tuple[str, str, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, marks in enumerate((moved, fixed)):
        for row, memory in enumerate(marks.memories):
            groups[memory.kind, memory.label, marks.moment[row]][side].append(row)
    left, right = (unit_embeddings(marks.memories) for marks in (moved, fixed))
    comparable = left.shape[1] == right.shape[1] > 0
    found = [np.zeros((0, 2), np.int64)]
    count = 0
    for rows, others in sorted(groups.values(), key=lambda group: len(group[0]) * len(group[1])):
        if not rows or not others:
            continue
        rows = rows[: max(1, TABLE // len(others))]
        could = np.ones((len(rows), len(others)), dtype=bool)
        if comparable:
            known = np.logical_and.outer(left[rows].any(axis=1), right[others].any(axis=1))
            could = ~known | (left[rows] @ right[others].T >= options.least_similarity)
        at, to = np.nonzero(could)
        if count and count + len(at) > MOST_PAIRS:
            break
        found.append(np.column_stack([np.array(rows)[at], np.array(others)[to]])[:MOST_PAIRS])
        count += len(at)
    return np.concatenate(found)
