"""How the map of one robot lies in that of another, from the things that both saw.

Pairs of things of one label, alike where both have vectors, are drawn two at a time; where the distance
between two things is the same in both maps, the motion that brings them together is a candidate (RANSAC:
Fischler and Bolles 1981). The one that brings the most things together is fitted to all of these by least
squares (Kabsch 1976, in the plane), as often as that changes which they are.

Few things close together say little about a turn, which moves what is far from them the most. The standard
deviation of the turn is that of least squares, ``sigma / sqrt(sum of squared distances to their middle)``. A
turn that is not significant is left out: the maps are then shifted only. One that is significant, and still
too uncertain for what is to be moved, is refused.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import AlignmentError
from memory.merging.fusion import unit_embeddings
from memory.merging.motion import Motion
from memory.types import Memory, positions_of

#: Pairs of things that are looked at; the labels with the fewest come first.
MOST_PAIRS = 20_000
#: Twos of pairs that are drawn, and motions that are tried.
_DRAWN, _TRIED = 400_000, 4_000
#: Positions are never taken to be better than this share of the tolerance.
_LEAST_SIGMA = 0.05
#: Numbers of a table that is compared at a time.
_TABLE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class AlignOptions:
    """When two maps are believed to be aligned.

    Attributes:
        tolerance_m: most between a thing in one map and the same in the other, once moved.
        least_things: that must come together.
        least_similarity: least cosine between vectors, where both have one.
        most_rival: another motion may bring together at most this share of the things of the best.
        least_turn_sigmas: a turn of fewer standard deviations is left out.
        most_uncertain_m: of the farthest of what is to be moved, by the standard deviation of the turn.

    Raises:
        ValueError: a number out of its range.
    """

    tolerance_m: float = 1.0
    least_things: int = 5
    least_similarity: float = 0.7
    most_rival: float = 0.7
    least_turn_sigmas: float = 3.0
    most_uncertain_m: float = 1.0

    def __post_init__(self) -> None:
        for name in ("tolerance_m", "least_turn_sigmas", "most_uncertain_m"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {getattr(self, name)}")
        if self.least_things < 3:
            raise ValueError(f"least_things must be at least 3, got {self.least_things}")
        for name, least in (("least_similarity", -1.0), ("most_rival", 0.0)):
            if not least <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be from {least:g} to 1, got {getattr(self, name)}")


class Alignment(NamedTuple):
    """How one map lies in another.

    Attributes:
        motion: from the one into the other.
        things: that came together, each with one of the other map.
        of: things of the one map and of the other that have a label.
        rms_m: root mean square of what is left between them.
        rival: things that the next best motion brings together.
        turned: whether the motion turns the map; otherwise no turn is significant.
        turn_sigma_rad: standard deviation of the turn.
        sigma_m: of the shift at the middle of the things that came together.
        farthest_sigma_m: of where the farthest of the one map is moved to; with that of a turn that was left
            out.
    """

    motion: Motion
    things: int
    of: tuple[int, int]
    rms_m: float
    rival: int
    turned: bool
    turn_sigma_rad: float
    sigma_m: float
    farthest_sigma_m: float


def estimate(
    moved: Sequence[Memory], fixed: Sequence[Memory], options: AlignOptions | None = None
) -> Alignment:
    """The motion that brings what one robot saw onto what another saw; the same for the same input.

    Args:
        moved: of the one map; what is of one kind and label within the tolerance counts as one thing.
        fixed: of the other.
        options: the gates; the defaults where not given.

    Raises:
        AlignmentError: too few come together, two motions do about as well, or the turn is too uncertain for
            what is far away; says what was found.
    """
    options = options or AlignOptions()
    everything = positions_of([memory for memory in moved if memory.position is not None])[:, :2]
    moved, fixed = (
        _things([m for m in memories if m.position is not None], options.tolerance_m)
        for memories in (moved, fixed)
    )
    pairs = _pairs(moved, fixed, options)
    of = len(moved), len(fixed)
    if len(pairs) < options.least_things:
        raise AlignmentError(
            f"of {of[0]} and {of[1]} things with a label {len(pairs)} pairs could be the same, too few:"
            f" at least {options.least_things} are needed"
        )
    one = np.array([memory.place[:2] for memory in moved])
    other = np.array([memory.place[:2] for memory in fixed])
    # Numbers stay small, and turns are about the middle, where maps lie far from their origins.
    middle, target = one.mean(axis=0), other.mean(axis=0)
    scene = _Scene(one - middle, other - target, pairs, options)
    ranked = scene.ranked()
    best, matched = ranked[0] if ranked else (Motion(), pairs[:0])
    if len(matched) < options.least_things:
        raise AlignmentError(
            f"of {of[0]} and {of[1]} things {len(matched)} at most come within {options.tolerance_m:g} m of"
            f" each other by one motion, too few: at least {options.least_things} are needed"
        )
    rival = next((len(rows) for motion, rows in ranked[1:] if scene.differs(motion, best, matched)), 0)
    if rival > options.most_rival * len(matched):
        raise AlignmentError(
            f"it is ambiguous: one motion brings {len(matched)} things together and another {rival}; more"
            " things that differ are needed, or vectors"
        )
    points, targets = scene.one[matched[:, 0]], scene.other[matched[:, 1]]
    fit = _without_needless_turn(points, targets, best, everything - middle, options)
    motion = Motion(0.0, *target.tolist()).after(fit.motion).after(Motion(0.0, *(-middle).tolist()))
    rms = math.sqrt(_squares(fit.motion, points, targets) / len(points))
    return Alignment(
        motion,
        len(matched),
        of,
        rms,
        rival,
        fit.turned,
        fit.turn_sigma_rad,
        fit.sigma_m,
        fit.farthest_sigma_m,
    )


class _Fit(NamedTuple):
    """A motion with what is known of its errors, as of :class:`Alignment`."""

    motion: Motion
    turned: bool
    turn_sigma_rad: float
    sigma_m: float
    farthest_sigma_m: float


def _without_needless_turn(
    points: NDArray[np.float64],
    targets: NDArray[np.float64],
    best: Motion,
    everything: NDArray[np.float64],
    options: AlignOptions,
) -> _Fit:
    """The best motion, or a shift alone where the turn is not significant.

    Args:
        points, targets: (K, 2) float64 metres, things of the one map and the same of the other.
        best: motion between them by least squares.
        everything: (N, 2) float64 metres, what is to be moved.
        options: the gates.

    Raises:
        AlignmentError: the turn is significant, and too uncertain for the farthest of everything.
    """
    count, middle = len(points), points.mean(axis=0)
    # Two coordinates a thing, less the three numbers of the motion; few things may agree by chance.
    variance = max(
        _squares(best, points, targets) / (2 * count - 3), (_LEAST_SIGMA * options.tolerance_m) ** 2
    )
    sigma_m = math.sqrt(variance / count)
    turn_sigma = math.sqrt(variance / max(float(((points - middle) ** 2).sum()), 1e-12))
    reach = float(np.linalg.norm(everything - middle, axis=1).max(initial=0.0))
    by_turn = reach * turn_sigma
    turned = abs(best.yaw_rad) > options.least_turn_sigmas * turn_sigma
    if turned and by_turn > options.most_uncertain_m:
        raise AlignmentError(
            f"{count} things agree with a turn of {math.degrees(best.yaw_rad):.2f} ±"
            f" {math.degrees(turn_sigma):.2f} degrees, which leaves what is {reach:.0f} m away uncertain by"
            f" {by_turn:.1f} m: more things that both saw are needed, farther apart"
        )
    shift = Motion(0.0, *(targets.mean(axis=0) - middle).tolist())
    return _Fit(best if turned else shift, turned, turn_sigma, sigma_m, math.hypot(sigma_m, by_turn))


def _squares(motion: Motion, points: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
    """Sum of the squared distances that are left."""
    return float(((motion.points(points) - targets) ** 2).sum())


def _things(memories: Sequence[Memory], tolerance_m: float) -> list[Memory]:
    """Those that have a label, without further ones of the same thing."""
    kept: list[Memory] = []
    cells: dict[tuple[str, str, int, int], list[Memory]] = defaultdict(list)
    for memory in memories:
        if not memory.label:
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
    return kept


def _pairs(moved: Sequence[Memory], fixed: Sequence[Memory], options: AlignOptions) -> NDArray[np.int64]:
    """(P, 2) int64: rows of what could be the same thing, of the rarest labels first."""
    groups: dict[tuple[str, str], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, memories in enumerate((moved, fixed)):
        for row, memory in enumerate(memories):
            groups[memory.kind, memory.label][side].append(row)
    left, right = (unit_embeddings(memories) for memories in (moved, fixed))
    comparable = left.shape[1] == right.shape[1] > 0
    found = [np.zeros((0, 2), np.int64)]
    count = 0
    for rows, others in sorted(groups.values(), key=lambda group: len(group[0]) * len(group[1])):
        if not rows or not others:
            continue
        rows = rows[: max(1, _TABLE // len(others))]
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


class _Scene:
    """Two maps and the pairs between them.

    Args:
        one, other: (N, 2) and (M, 2) float64 metres.
        pairs: (P, 2) int64, rows of both.
        options: the gates.
    """

    def __init__(
        self,
        one: NDArray[np.float64],
        other: NDArray[np.float64],
        pairs: NDArray[np.int64],
        options: AlignOptions,
    ) -> None:
        self.one, self.other, self._pairs, self._options = one, other, pairs, options
        self._a, self._b = one[pairs[:, 0]], other[pairs[:, 1]]

    def ranked(self) -> list[tuple[Motion, NDArray[np.int64]]]:
        """Fitted motions with the pairs that they bring together, the most first."""
        motions = self._candidates()
        counts = self._counts(motions)
        found: dict[tuple[int, ...], tuple[Motion, NDArray[np.int64]]] = {}
        for row in np.argsort(-counts, kind="stable")[:200].tolist():
            motion, matched = self._fitted(Motion(*motions[row].tolist()))
            found.setdefault(tuple(matched.ravel().tolist()), (motion, matched))
        return sorted(found.values(), key=lambda each: (-len(each[1]), self._spread(*each)))

    def differs(self, one: Motion, other: Motion, matched: NDArray[np.int64]) -> bool:
        """Whether two motions bring the things somewhere else."""
        points = self.one[matched[:, 0]]
        apart = np.linalg.norm(one.points(points) - other.points(points), axis=1)
        return bool(apart.max() > 2.0 * self._options.tolerance_m)

    def _candidates(self) -> NDArray[np.float64]:
        """(H, 3) float64: yaw, x and y of motions that bring two things onto two."""
        count, tolerance = len(self._pairs), self._options.tolerance_m
        if count * (count - 1) // 2 <= _DRAWN:
            first, second = np.triu_indices(count, 1)
        else:
            generator = np.random.default_rng(0)
            first, second = generator.integers(count, size=(2, _DRAWN))
        from_to, to_to = self._a[second] - self._a[first], self._b[second] - self._b[first]
        there, here = np.linalg.norm(from_to, axis=1), np.linalg.norm(to_to, axis=1)
        # What is close together says little of the turn.
        kept = np.flatnonzero((there > 3.0 * tolerance) & (np.abs(there - here) <= tolerance))
        if len(kept) > _TRIED:
            # Those that are the farthest apart say the most; every share of the distances has its turn.
            kept = kept[np.argsort(-there[kept], kind="stable")][:: math.ceil(len(kept) / _TRIED)]
        from_to, to_to = from_to[kept], to_to[kept]
        yaw = np.arctan2(to_to[:, 1], to_to[:, 0]) - np.arctan2(from_to[:, 1], from_to[:, 0])
        a = (self._a[first[kept]] + self._a[second[kept]]) / 2.0
        b = (self._b[first[kept]] + self._b[second[kept]]) / 2.0
        sine, cosine = np.sin(yaw), np.cos(yaw)
        x = b[:, 0] - cosine * a[:, 0] + sine * a[:, 1]
        y = b[:, 1] - sine * a[:, 0] - cosine * a[:, 1]
        return np.column_stack([yaw, x, y])

    def _counts(self, motions: NDArray[np.float64]) -> NDArray[np.int64]:
        """(H,) int64: things that could come together, as far as either side goes."""
        found = np.zeros(len(motions), np.int64)
        step = max(1, _TABLE // max(len(self._pairs), 1))
        for start in range(0, len(motions), step):
            near = self._near(motions[start : start + step])
            sides = []
            for side, size in ((0, len(self.one)), (1, len(self.other))):
                motion, pair = np.nonzero(near)
                hit = np.zeros((len(near), size), dtype=bool)
                hit[motion, self._pairs[pair, side]] = True
                sides.append(hit.sum(axis=1))
            found[start : start + step] = np.minimum(*sides)
        return found

    def _near(self, motions: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(H, P) bool: which pairs come within the tolerance."""
        sine, cosine = np.sin(motions[:, :1]), np.cos(motions[:, :1])
        x = cosine * self._a[:, 0] - sine * self._a[:, 1] + motions[:, 1:2] - self._b[:, 0]
        y = sine * self._a[:, 0] + cosine * self._a[:, 1] + motions[:, 2:3] - self._b[:, 1]
        near: NDArray[np.bool_] = x * x + y * y <= self._options.tolerance_m**2
        return near

    def _fitted(self, motion: Motion) -> tuple[Motion, NDArray[np.int64]]:
        """A motion by least squares over what it brings together, until that is the same."""
        matched = self._matched(motion)
        for _ in range(10):
            if len(matched) < 2:
                break
            better = fitted(self.one[matched[:, 0]], self.other[matched[:, 1]])
            again = self._matched(better)
            if len(again) < len(matched):
                break
            same = np.array_equal(again, matched)
            motion, matched = better, again
            if same:
                break
        return motion, matched

    def _matched(self, motion: Motion) -> NDArray[np.int64]:
        """(K, 2) int64: rows that come together, each once, the closest first to choose."""
        rows = np.flatnonzero(self._near(np.array([motion]))[0])
        apart = np.linalg.norm(motion.points(self._a[rows]) - self._b[rows], axis=1)
        taken: tuple[set[int], set[int]] = (set(), set())
        found = []
        for one, other in self._pairs[rows[np.argsort(apart, kind="stable")]].tolist():
            if one not in taken[0] and other not in taken[1]:
                taken[0].add(one)
                taken[1].add(other)
                found.append((one, other))
        return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)

    def _spread(self, motion: Motion, matched: NDArray[np.int64]) -> float:
        """Squares of what is left between them."""
        return float(((motion.points(self.one[matched[:, 0]]) - self.other[matched[:, 1]]) ** 2).sum())


def fitted(one: NDArray[np.float64], other: NDArray[np.float64]) -> Motion:
    """The motion by least squares between (N, 2) float64 points and theirs; N at least 2."""
    middle, target = one.mean(axis=0), other.mean(axis=0)
    a, b = one - middle, other - target
    yaw = math.atan2(float((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum()), float((a * b).sum()))
    ((x, y),) = Motion(yaw).points(middle[None]).tolist()
    return Motion(yaw, float(target[0]) - x, float(target[1]) - y)
