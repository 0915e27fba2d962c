"""Two maps with candidate pairs, and the motions that match the most of them (RANSAC)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.merging.align_options import AlignOptions
from memory.merging.fitting import Matches, fit_motion, settle
from memory.merging.marks import TABLE, Marks, marks_of, pairs_of
from memory.merging.motion import Motion
from memory.types import Memory

#: Most draws of two pairs, and most motions that are evaluated.
_DRAWN, _TRIED = 400_000, 4_000
#: Most motions between two groups.
_MOST_MOTIONS = 50


class Scene:
    """Two maps and the candidate pairs between them. Coordinates are relative to the middle of each map.

    Args:
        mine, others: marks of both.
        pairs: (P, 2) int64, rows of both; at least one.
        options: tolerance and largest shift.
        clock_ns: nanoseconds that were added to the times of the first map.
    """

    def __init__(
        self,
        mine: Marks,
        others: Marks,
        pairs: NDArray[np.int64],
        options: AlignOptions,
        clock_ns: int = 0,
    ) -> None:
        # Centred coordinates stay small, also for maps far from their origins.
        middle, target = mine.places.mean(axis=0), others.places.mean(axis=0)
        self.one, self.other = mine.places - middle, others.places - target
        self.velocities, self._pairs, self._options = mine.velocities, pairs, options
        self._owners, self._apart = (mine.owner, others.owner), target - middle
        self._to_middle = Motion(0.0, -float(middle[0]), -float(middle[1]), clock_ns)
        self._to_target = Motion(0.0, *(-target).tolist())
        self._all = self.matches(pairs)
        self._a, self._b = self._all.points, self._all.targets

    @property
    def pairs(self) -> int:
        """Number of candidate pairs."""
        return len(self._pairs)

    def matches(self, matched: NDArray[np.int64]) -> Matches:
        """Return the positions of matching rows."""
        mine = matched[:, 0]
        return Matches(self.one[mine], self.velocities[mine], self.other[matched[:, 1]])

    def to_centre(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (N, 2) points of the first map relative to its middle."""
        return self._to_middle.points(points)

    def whole(self, motion: Motion) -> Motion:
        """Return a motion between the centred maps as one between the maps, with the whole clock."""
        return self._to_target.inverse().after(motion).after(self._to_middle)

    def centred(self, motion: Motion) -> Motion:
        """Return a motion between the maps as one between the centred maps."""
        return self._to_target.after(motion).after(self._to_middle.inverse())

    def differs(self, one: Motion, other: Motion, matched: NDArray[np.int64]) -> bool:
        """Return True if two motions move the matching objects to different places, at the same moments."""
        matches = self.matches(matched)
        apart = np.linalg.norm(matches.placed(one) - matches.placed(other), axis=1)
        return bool(apart.max() > 2.0 * self._options.tolerance_m)

    def objects(self, matched: NDArray[np.int64], *, moving: bool = False) -> int:
        """Return the number of objects of matching rows, of the side with fewer.

        Args:
            matched: (K, 2) int64 rows.
            moving: count moving objects only.
        """
        if moving:
            matched = matched[self.velocities[matched[:, 0]].any(axis=1)]
        return min(len(set(self._owners[side][matched[:, side]].tolist())) for side in (0, 1))

    def rank_motions(self, most: int = 200) -> list[tuple[Motion, NDArray[np.int64]]]:
        """Return fitted motions with their matches, the most matches first.

        Args:
            most: number of motions that are fitted.
        """
        motions = self._candidates()
        counts = self._counts(motions)
        found: dict[tuple[int, ...], tuple[Motion, NDArray[np.int64]]] = {}
        for row in np.argsort(-counts, kind="stable")[:most].tolist():
            motion, matched = self.refine(Motion(*motions[row].tolist()))
            found.setdefault(tuple(matched.ravel().tolist()), (motion, matched))
        return sorted(found.values(), key=lambda each: self.rank(*each))

    def rank(self, motion: Motion, matched: NDArray[np.int64]) -> tuple[int, int, float]:
        """Return a key that is smaller for better motions with their matches."""
        return -self.objects(matched), -len(matched), self.matches(matched).squares(motion)

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
        step = max(1, TABLE // max(len(self._pairs), 1))
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

    def refine(self, motion: Motion, *, clock: bool = False) -> tuple[Motion, NDArray[np.int64]]:
        """Fit a motion to its matches by least squares until they stay the same.

        Args:
            motion: first guess.
            clock: True fits a shift of the clock as well, close to 0.
        """

        def fit(motion: Motion, matched: NDArray[np.int64]) -> Motion:
            if not clock:
                return fit_motion(self.one[matched[:, 0]], self.other[matched[:, 1]])
            return self.matches(matched).fit(turn=True, clock=True, pull=True)

        return settle(motion, self._match, fit, least=2, rounds=10)

    def _match(self, motion: Motion) -> NDArray[np.int64]:
        """Return (K, 2) int64 rows that match, each once; the closest pairs choose first."""
        apart = np.linalg.norm(self._all.placed(motion) - self._b, axis=1)
        rows = np.flatnonzero(apart <= self._options.tolerance_m)
        taken: tuple[set[int], set[int]] = (set(), set())
        found = []
        for one, other in self._pairs[rows[np.argsort(apart[rows], kind="stable")]].tolist():
            if one not in taken[0] and other not in taken[1]:
                taken[0].add(one)
                taken[1].add(other)
                found.append((one, other))
        return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)


def motions_between(moved: Sequence[Memory], fixed: Sequence[Memory], options: AlignOptions) -> list[Motion]:
    """Return the motions that match the most objects of two groups, at least two each, the best first."""
    mine, others = (marks_of(memories, options.tolerance_m) for memories in (moved, fixed))
    pairs = pairs_of(mine, others, options)
    if len(pairs) < 2:
        return []
    scene = Scene(mine, others, pairs, options)
    ranked = scene.rank_motions()[:_MOST_MOTIONS]
    return [scene.whole(motion) for motion, matched in ranked if scene.objects(matched) >= 2]
