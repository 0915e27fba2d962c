"""Alignment of the maps of two robots, from the objects that both saw.

Candidate pairs have the same label and, if both have vectors, similar ones. Two pairs are drawn at a time; if
the distance between the two objects is the same in both maps, their motion is a candidate (RANSAC: Fischler
and Bolles 1981). The motion that matches the most objects is fitted to them by least squares (Kabsch 1976, in
the plane), until the matches stay the same. A moving object counts at the moments at which both robots may
have seen it, every half second: only positions of one moment are pairs.

A few objects close together determine a rotation poorly, and its error grows with distance. Its standard
deviation is that of least squares, ``sigma / sqrt(sum of squared distances to their centre)``. An
insignificant rotation is dropped, and the maps are only shifted. A significant rotation that is too uncertain
for the farthest memories is an error.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import AlignmentError
from memory.merging.fusion import unit_embeddings
from memory.merging.motion import Motion
from memory.merging.trajectories import trajectory_of
from memory.types import Memory, positions_of

#: Most candidate pairs; labels with the fewest pairs come first.
MOST_PAIRS = 20_000
#: Most draws of two pairs, and most motions that are evaluated.
_DRAWN, _TRIED = 400_000, 4_000
#: Most motions of two groups of objects.
_MOST_MOTIONS = 50
#: Smallest assumed position error, as a share of the tolerance.
_LEAST_SIGMA = 0.05
#: Time between the moments of a moving object, and the moment of static ones.
_MOMENT_NS, _ALWAYS = 500_000_000, -1
#: Largest number of values compared at a time.
_TABLE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class AlignOptions:
    """Conditions for an alignment.

    Attributes:
        tolerance_m: largest distance between matching objects after the motion.
        least_things: smallest number of matching objects.
        least_similarity: smallest cosine between vectors, if both objects have one.
        most_rival: largest share of the best motion's matches that another motion may reach.
        least_turn_sigmas: a rotation of fewer standard deviations is dropped.
        most_uncertain_m: largest position error of the farthest memory that the rotation may cause.
        most_shift_m: largest distance by which an object may be moved. Maps that are almost aligned need a
            small one, because in a row of objects the next one matches as well.

    Raises:
        ValueError: a number out of its range.
    """

    tolerance_m: float = 1.0
    least_things: int = 5
    least_similarity: float = 0.7
    most_rival: float = 0.7
    least_turn_sigmas: float = 3.0
    most_uncertain_m: float = 1.0
    most_shift_m: float = math.inf

    def __post_init__(self) -> None:
        for name in ("tolerance_m", "least_turn_sigmas", "most_uncertain_m"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {getattr(self, name)}")
        if not self.most_shift_m > 0.0:
            raise ValueError(f"most_shift_m must be above 0, got {self.most_shift_m}")
        if self.least_things < 3:
            raise ValueError(f"least_things must be at least 3, got {self.least_things}")
        for name, least in (("least_similarity", -1.0), ("most_rival", 0.0)):
            if not least <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be from {least:g} to 1, got {getattr(self, name)}")


class Alignment(NamedTuple):
    """Motion from one map into another.

    Attributes:
        things: number of matching pairs of objects.
        of: numbers of objects with a label in both maps.
        rms_m: root mean square distance of the matches.
        rival: matches of the next best motion.
        turned: False if no rotation is significant.
        turn_sigma_rad: standard deviation of the rotation.
        sigma_m: standard deviation of the shift at the centre of the matches.
        farthest_sigma_m: standard deviation at the farthest memory, including that of a dropped rotation.
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
    """Estimate the motion from what one robot saw to what another saw; deterministic.

    Args:
        moved: memories of the first map; those of one kind and label within the tolerance count as one
            object.
        fixed: memories of the other map.

    Raises:
        AlignmentError: too few matches, two motions match about as well, or the rotation is too uncertain.
    """
    options = options or AlignOptions()
    everything = positions_of([memory for memory in moved if memory.position is not None])[:, :2]
    mine, others = (
        _marks_of([m for m in memories if m.position is not None], options.tolerance_m)
        for memories in (moved, fixed)
    )
    pairs = _pairs(mine, others, options)
    of = mine.objects, others.objects
    if len(pairs) < options.least_things:
        raise AlignmentError(
            f"only {len(pairs)} pairs among {of[0]} and {of[1]} labelled objects could match, at least"
            f" {options.least_things} are needed. Align after both robots have seen more of the same objects"
        )
    one = np.array([memory.place[:2] for memory in mine.memories])
    other = np.array([memory.place[:2] for memory in others.memories])
    # Centred coordinates stay small, also for maps far from their origins.
    middle, target = one.mean(axis=0), other.mean(axis=0)
    owners = mine.owner, others.owner
    scene = _Scene(one - middle, other - target, pairs, owners, options, target - middle)
    ranked = scene.rank_motions()
    best, matched = ranked[0] if ranked else (Motion(), pairs[:0])
    things = scene.objects(matched)
    if things < options.least_things:
        raise AlignmentError(
            f"a motion matches at most {things} of {of[0]} and {of[1]} objects within"
            f" {options.tolerance_m:g} m, at least {options.least_things} are needed. Align after both robots"
            " have seen more of the same objects"
        )
    rival = next(
        (scene.objects(rows) for motion, rows in ranked[1:] if scene.differs(motion, best, matched)), 0
    )
    if rival > options.most_rival * things:
        raise AlignmentError(
            f"the alignment is ambiguous: one motion matches {things} objects and another {rival}."
            " It needs more objects of different kinds, or embeddings"
        )
    points, targets = scene.one[matched[:, 0]], scene.other[matched[:, 1]]
    fit = _without_insignificant_rotation(points, targets, things, best, everything - middle, options)
    motion = Motion(0.0, *target.tolist()).after(fit.motion).after(Motion(0.0, *(-middle).tolist()))
    rms = math.sqrt(_squares(fit.motion, points, targets) / len(points))
    return Alignment(
        motion,
        things,
        of,
        rms,
        rival,
        fit.turned,
        fit.turn_sigma_rad,
        fit.sigma_m,
        fit.farthest_sigma_m,
    )


def motions_between(moved: Sequence[Memory], fixed: Sequence[Memory], options: AlignOptions) -> list[Motion]:
    """Return the motions that match the most objects of two groups, at least two each, the best first."""
    mine, others = (_marks_of(memories, options.tolerance_m) for memories in (moved, fixed))
    pairs = _pairs(mine, others, options)
    if len(pairs) < 2:
        return []
    one, other = (np.array([memory.place[:2] for memory in marks.memories]) for marks in (mine, others))
    scene = _Scene(one, other, pairs, (mine.owner, others.owner), options, np.zeros(2))
    return [motion for motion, matched in scene.rank_motions()[:_MOST_MOTIONS] if scene.objects(matched) >= 2]


class _Fit(NamedTuple):
    """A motion with its errors, as in :class:`Alignment`."""

    motion: Motion
    turned: bool
    turn_sigma_rad: float
    sigma_m: float
    farthest_sigma_m: float


def _without_insignificant_rotation(
    points: NDArray[np.float64],
    targets: NDArray[np.float64],
    things: int,
    best: Motion,
    everything: NDArray[np.float64],
    options: AlignOptions,
) -> _Fit:
    """Return the best motion, or only a shift if the rotation is not significant.

    Args:
        points, targets: (K, 2) float64 metres, matching positions of both maps.
        things: number of objects that they are of; errors of one object are correlated.
        best: least-squares motion between them.
        everything: (N, 2) float64 metres, all positions to move.

    Raises:
        AlignmentError: the rotation is significant, but too uncertain for the farthest position.
    """
    count, middle = things, points.mean(axis=0)
    # Two coordinates per object, less the three numbers of the motion. The floor is for few objects that
    # agree by chance.
    variance = max(
        _squares(best, points, targets) * count / len(points) / (2 * count - 3),
        (_LEAST_SIGMA * options.tolerance_m) ** 2,
    )
    sigma_m = math.sqrt(variance / count)
    spread = float(((points - middle) ** 2).sum()) * count / len(points)
    turn_sigma = math.sqrt(variance / max(spread, 1e-12))
    reach = float(np.linalg.norm(everything - middle, axis=1).max(initial=0.0))
    by_turn = reach * turn_sigma
    turned = abs(best.yaw_rad) > options.least_turn_sigmas * turn_sigma
    if turned and by_turn > options.most_uncertain_m:
        raise AlignmentError(
            f"{count} objects suggest a rotation of {math.degrees(best.yaw_rad):.2f} ±"
            f" {math.degrees(turn_sigma):.2f} degrees. Its error is {by_turn:.1f} m at"
            f" {reach:.0f} m; both robots must see more objects that are farther apart"
        )
    shift = Motion(0.0, *(targets.mean(axis=0) - middle).tolist())
    return _Fit(best if turned else shift, turned, turn_sigma, sigma_m, math.hypot(sigma_m, by_turn))


def _squares(motion: Motion, points: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
    """Return the sum of the squared distances after the motion."""
    return float(((motion.points(points) - targets) ** 2).sum())


class _Marks(NamedTuple):
    """What one robot saw: static objects, and moving ones at several moments.

    Attributes:
        memories: each at its position then.
        moment: (N,) nanoseconds, ``_ALWAYS`` for static objects.
        owner: (N,) int64 number of the object.
        objects: number of objects.
    """

    memories: list[Memory]
    moment: list[int]
    owner: NDArray[np.int64]
    objects: int


def _marks_of(memories: Sequence[Memory], tolerance_m: float) -> _Marks:
    """Return the memories with a label, one per static object and moment of a moving one."""
    kept: list[Memory] = []
    moment: list[int] = []
    owner: list[int] = []
    objects = 0
    cells: dict[tuple[str, str, int, int], list[Memory]] = defaultdict(list)
    for memory in memories:
        if not memory.label:
            continue
        trajectory = trajectory_of(memory)
        if trajectory is not None:
            first, last = int(trajectory.time_ns[0]), int(trajectory.time_ns[-1])
            times = np.arange(-(-first // _MOMENT_NS), last // _MOMENT_NS + 1) * _MOMENT_NS
            for time_ns, (x, y) in zip(times.tolist(), trajectory.at(times).tolist(), strict=True):
                kept.append(dataclasses.replace(memory, position=(x, y, memory.place[2])))
                moment.append(time_ns)
                owner.append(objects)
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
            moment.append(_ALWAYS)
            owner.append(objects)
            objects += 1
    return _Marks(kept, moment, np.array(owner, np.int64), objects)


def _pairs(moved: _Marks, fixed: _Marks, options: AlignOptions) -> NDArray[np.int64]:
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
    """Two maps and the candidate pairs between them.

    Args:
        one, other: (N, 2) and (M, 2) float64 metres.
        pairs: (P, 2) int64, rows of both.
        owners: (N,) and (M,) int64, objects of the rows.
        apart: (2,) float64 metres from the middle of the first map to that of the other.
    """

    def __init__(
        self,
        one: NDArray[np.float64],
        other: NDArray[np.float64],
        pairs: NDArray[np.int64],
        owners: tuple[NDArray[np.int64], NDArray[np.int64]],
        options: AlignOptions,
        apart: NDArray[np.float64],
    ) -> None:
        self.one, self.other, self._pairs, self._options = one, other, pairs, options
        self._owners, self._apart = owners, apart
        self._a, self._b = one[pairs[:, 0]], other[pairs[:, 1]]

    def objects(self, matched: NDArray[np.int64]) -> int:
        """Return the number of objects of matching rows, of the side with fewer."""
        return min(len(set(self._owners[side][matched[:, side]].tolist())) for side in (0, 1))

    def rank_motions(self) -> list[tuple[Motion, NDArray[np.int64]]]:
        """Return fitted motions with their matches, the most matches first."""
        motions = self._candidates()
        counts = self._counts(motions)
        found: dict[tuple[int, ...], tuple[Motion, NDArray[np.int64]]] = {}
        for row in np.argsort(-counts, kind="stable")[:200].tolist():
            motion, matched = self._refine(Motion(*motions[row].tolist()))
            found.setdefault(tuple(matched.ravel().tolist()), (motion, matched))
        return sorted(
            found.values(), key=lambda each: (-self.objects(each[1]), -len(each[1]), self._spread(*each))
        )

    def differs(self, one: Motion, other: Motion, matched: NDArray[np.int64]) -> bool:
        """Return True if two motions move the objects to different places."""
        points = self.one[matched[:, 0]]
        apart = np.linalg.norm(one.points(points) - other.points(points), axis=1)
        return bool(apart.max() > 2.0 * self._options.tolerance_m)

    def _candidates(self) -> NDArray[np.float64]:
        """Return (H, 3) float64 yaw, x and y of motions from two objects onto two others."""
        count, tolerance = len(self._pairs), self._options.tolerance_m
        if count * (count - 1) // 2 <= _DRAWN:
            first, second = np.triu_indices(count, 1)
        else:
            generator = np.random.default_rng(0)
            first, second = generator.integers(count, size=(2, _DRAWN))
        from_to, to_to = self._a[second] - self._a[first], self._b[second] - self._b[first]
        there, here = np.linalg.norm(from_to, axis=1), np.linalg.norm(to_to, axis=1)
        # Objects close together determine a rotation poorly.
        kept = np.flatnonzero((there > 3.0 * tolerance) & (np.abs(there - here) <= tolerance))
        if len(kept) > _TRIED:
            # The farthest pairs are the most precise; sample all distances evenly.
            kept = kept[np.argsort(-there[kept], kind="stable")][:: math.ceil(len(kept) / _TRIED)]
        from_to, to_to = from_to[kept], to_to[kept]
        yaw = np.arctan2(to_to[:, 1], to_to[:, 0]) - np.arctan2(from_to[:, 1], from_to[:, 0])
        a = (self._a[first[kept]] + self._a[second[kept]]) / 2.0
        b = (self._b[first[kept]] + self._b[second[kept]]) / 2.0
        sine, cosine = np.sin(yaw), np.cos(yaw)
        x = b[:, 0] - cosine * a[:, 0] + sine * a[:, 1]
        y = b[:, 1] - sine * a[:, 0] - cosine * a[:, 1]
        # The farthest shift of all is that of a corner.
        low, high = self.one.min(axis=0), self.one.max(axis=0)
        farthest = np.zeros(len(yaw))
        for px, py in ((low[0], low[1]), (low[0], high[1]), (high[0], low[1]), (high[0], high[1])):
            dx = cosine * px - sine * py + x + self._apart[0] - px
            dy = sine * px + cosine * py + y + self._apart[1] - py
            farthest = np.maximum(farthest, np.hypot(dx, dy))
        near = np.flatnonzero(farthest <= self._options.most_shift_m)
        return np.column_stack([yaw[near], x[near], y[near]])

    def _counts(self, motions: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return (H,) int64 upper bounds of the number of matching objects."""
        found = np.zeros(len(motions), np.int64)
        step = max(1, _TABLE // max(len(self._pairs), 1))
        for start in range(0, len(motions), step):
            near = self._within_tolerance(motions[start : start + step])
            sides = []
            for side, owner in enumerate(self._owners):
                motion, pair = np.nonzero(near)
                hit = np.zeros((len(near), int(owner.max()) + 1), dtype=bool)
                hit[motion, owner[self._pairs[pair, side]]] = True
                sides.append(hit.sum(axis=1))
            found[start : start + step] = np.minimum(*sides)
        return found

    def _within_tolerance(self, motions: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return (H, P) bool, True for pairs within the tolerance."""
        sine, cosine = np.sin(motions[:, :1]), np.cos(motions[:, :1])
        x = cosine * self._a[:, 0] - sine * self._a[:, 1] + motions[:, 1:2] - self._b[:, 0]
        y = sine * self._a[:, 0] + cosine * self._a[:, 1] + motions[:, 2:3] - self._b[:, 1]
        near: NDArray[np.bool_] = x * x + y * y <= self._options.tolerance_m**2
        return near

    def _refine(self, motion: Motion) -> tuple[Motion, NDArray[np.int64]]:
        """Fit a motion to its matches by least squares until they stay the same."""

        def fit(motion: Motion, matched: NDArray[np.int64]) -> Motion:
            return fit_motion(self.one[matched[:, 0]], self.other[matched[:, 1]])

        return settle(motion, self._match, fit, least=2, rounds=10)

    def _match(self, motion: Motion) -> NDArray[np.int64]:
        """Return (K, 2) int64 rows that match, each once; the closest pairs choose first."""
        rows = np.flatnonzero(self._within_tolerance(np.array([motion]))[0])
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
        """Return the sum of the squared distances of the matches."""
        return _squares(motion, self.one[matched[:, 0]], self.other[matched[:, 1]])


def settle(
    motion: Motion,
    match: Callable[[Motion], NDArray[np.int64]],
    fit: Callable[[Motion, NDArray[np.int64]], Motion],
    *,
    least: int,
    rounds: int,
) -> tuple[Motion, NDArray[np.int64]]:
    """Fit a motion to its matches until they stay the same; return both.

    Args:
        motion: the first guess.
        match: returns the (K, 2) int64 rows that match after a motion.
        fit: returns the motion that fits matches best, from the motion that found them.
        least: number of matches below which nothing is fitted.
        rounds: largest number of fits.
    """
    matched = match(motion)
    for _ in range(rounds):
        if len(matched) < least:
            break
        better = fit(motion, matched)
        again = match(better)
        if len(again) < len(matched):
            break
        same = np.array_equal(again, matched)
        motion, matched = better, again
        if same:
            break
    return motion, matched


def fit_motion(one: NDArray[np.float64], other: NDArray[np.float64]) -> Motion:
    """Return the least-squares motion between (N, 2) float64 points; N is at least 2."""
    middle, target = one.mean(axis=0), other.mean(axis=0)
    a, b = one - middle, other - target
    yaw = math.atan2(float((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum()), float((a * b).sum()))
    ((x, y),) = Motion(yaw).points(middle[None]).tolist()
    return Motion(yaw, float(target[0]) - x, float(target[1]) - y)
