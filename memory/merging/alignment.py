"""Alignment of the maps and clocks of two robots, from the objects that both saw.

Candidate pairs have the same label and, if both have vectors, similar ones. Two pairs are drawn at a time; if
the distance between the two objects is the same in both maps, their motion is a candidate (RANSAC: Fischler
and Bolles 1981). The motion that matches the most objects is fitted to them by least squares (Kabsch 1976, in
the plane), until the matches stay the same. A moving object counts at the moments at which both robots may
have seen it, every half second: only positions of one moment are pairs.

Moving objects also show the difference of the clocks. Each difference up to ``most_clock_s`` is tried in
steps of 0.1 s, and the best ones are fitted together with the motion. If all objects move alike, a wrong
clock looks like a shift along the road. Then the clock is not known: static objects alone decide, or the
alignment is refused.

A few objects close together determine a rotation poorly, and its error grows with distance. Its standard
deviation is that of least squares. An insignificant rotation is dropped, and the maps are only shifted. A
significant rotation that is too uncertain for the farthest memories is an error.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import AlignmentError
from memory.merging.align_options import AlignOptions
from memory.merging.fitting import Errors
from memory.merging.marks import marks_of, pairs_of
from memory.merging.motion import Motion
from memory.merging.scene import Scene
from memory.merging.trajectories import trajectory_of
from memory.types import Memory, positions_of

#: Smallest assumed position error, as a share of the tolerance.
_LEAST_SIGMA = 0.05
#: Step between the clocks that are tried, and motions that are fitted at each of them.
_CLOCK_STEP_NS, _MOTIONS, _REFINED = 100_000_000, 20, 3
#: Fewest moving objects that show a clock: with a pose that static objects show, and without one.
_LEAST_MOVING_POSED, _LEAST_MOVING = 2, 3
#: A clock of fewer standard deviations agrees.
_LEAST_CLOCK_SIGMAS = 2.0
#: Standard deviation in seconds of the time of an object within a scan of 0.1 s. Objects on one side of a
#: sensor share it, so the fit mistakes it for a clock.
_SCAN_SIGMA_S = 0.03
#: The clock is fitted until it changes by less than this, at most so many times.
_CLOCK_EXACT_NS, _CLOCK_ROUNDS = 1_000_000, 6


class Alignment(NamedTuple):
    """Motion from one map into another.

    Attributes:
        motion: the motion, and the shift of the clock.
        things: number of matching pairs of objects.
        of: numbers of objects with a label in both maps.
        rms_m: root mean square distance of the matches.
        rival: matches of the next best motion.
        turned: False if no rotation is significant.
        turn_sigma_rad: standard deviation of the rotation.
        sigma_m: standard deviation of the shift at the centre of the matches.
        farthest_sigma_m: standard deviation at the farthest memory, including that of a dropped rotation.
        clock_sigma_s: standard deviation of the difference of the clocks, including that of the time within a
            scan. ``None`` if it is not known, because too few objects moved, or because the clocks are
            trusted.
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
    clock_sigma_s: float | None = None


class _Candidate(NamedTuple):
    """A motion with its matches.

    Attributes:
        scene: scene at about its clock.
        motion: motion between the centred maps of the scene.
        matched: (K, 2) int64 rows of the scene.
    """

    scene: Scene
    motion: Motion
    matched: NDArray[np.int64]

    @property
    def whole(self) -> Motion:
        """The motion between the maps."""
        return self.scene.whole(self.motion)

    def things(self, *, moving: bool = False) -> int:
        """Return the number of matching objects, or of the moving ones among them."""
        return self.scene.objects(self.matched, moving=moving)

    def rank(self) -> tuple[int, int, float]:
        """Return a key that is smaller for better candidates."""
        return self.scene.rank(self.motion, self.matched)

    def differs(self, other: Motion) -> bool:
        """Return True if a motion between the maps moves the matching objects to different places."""
        return self.scene.differs(self.motion, self.scene.centred(other), self.matched)


class _Problem:
    """Observations of two robots that are to be aligned.

    Args:
        moved: memories of the first map with positions.
        fixed: memories of the other map with positions.
        options: conditions.
    """

    def __init__(self, moved: Sequence[Memory], fixed: Sequence[Memory], options: AlignOptions) -> None:
        self.moved, self.fixed, self.options = moved, fixed, options
        self._others = marks_of(fixed, options.tolerance_m)
        self.of = marks_of(moved, options.tolerance_m).objects, self._others.objects

    def static(self) -> _Problem:
        """Return the problem without moving objects."""
        moved, fixed = (
            [memory for memory in side if trajectory_of(memory) is None] for side in (self.moved, self.fixed)
        )
        return _Problem(moved, fixed, self.options)

    def scene(self, clock_ns: int = 0) -> Scene | None:
        """Return the scene after a shift of the first robot's clock; ``None`` if nothing could match."""
        mine = marks_of(self.moved, self.options.tolerance_m, clock_ns)
        pairs = pairs_of(mine, self._others, self.options)
        return Scene(mine, self._others, pairs, self.options, clock_ns) if len(pairs) else None

    def few(self, things: int) -> AlignmentError:
        """Return the error for too few matching objects."""
        return AlignmentError(
            f"a motion matches at most {things} of {self.of[0]} and {self.of[1]} objects within"
            f" {self.options.tolerance_m:g} m, at least {self.options.least_things} are needed. Align after"
            " both robots have seen more of the same objects"
        )


def estimate(
    moved: Sequence[Memory], fixed: Sequence[Memory], options: AlignOptions | None = None
) -> Alignment:
    """Estimate the motion from what one robot saw to what another saw; deterministic.

    Args:
        moved: memories of the first map; those of one kind and label within the tolerance count as one
            object.
        fixed: memories of the other map.

    Raises:
        AlignmentError: too few matches, two motions match about as well, the rotation is too uncertain, or
            moving objects do not tell a shift from a wrong clock.
    """
    options = options or AlignOptions()
    sides = [[memory for memory in side if memory.position is not None] for side in (moved, fixed)]
    problem = _Problem(sides[0], sides[1], options)
    if options.most_clock_s == 0.0 or not all(any(map(trajectory_of, side)) for side in sides):
        return _at_known_clock(problem)
    static = None
    with contextlib.suppress(AlignmentError):
        static = _at_known_clock(problem.static())
    candidates = _candidates(problem, None if static is None else static.motion)
    try:
        return _with_clock(problem, candidates, posed=static is not None)
    except AlignmentError:
        if static is None:
            raise
        # Static objects show the pose, but nothing shows the clock.
        return static._replace(of=problem.of)


def _at_known_clock(problem: _Problem) -> Alignment:
    """Estimate the motion between maps whose clocks agree."""
    scene, options = problem.scene(), problem.options
    pairs = 0 if scene is None else scene.pairs
    if scene is None or pairs < options.least_things:
        raise AlignmentError(
            f"only {pairs} pairs among {problem.of[0]} and {problem.of[1]} labelled objects could match, at"
            f" least {options.least_things} are needed. Align after both robots have seen more of the same"
            " objects"
        )
    ranked = scene.rank_motions()
    if not ranked:
        raise problem.few(0)
    best = _Candidate(scene, *ranked[0])
    things = best.things()
    if things < options.least_things:
        raise problem.few(things)
    rivals = (scene.objects(rows) for motion, rows in ranked[1:] if best.differs(scene.whole(motion)))
    rival = next(rivals, 0)
    _check_rival(things, rival, options)
    return _aligned(problem, best, rival, clock=False)


def _candidates(problem: _Problem, start: Motion | None) -> list[_Candidate]:
    """Return motions fitted together with the clock, the best first.

    Args:
        problem: observations of both.
        start: known motion between the maps; ``None`` searches one for every clock.
    """
    steps = round(problem.options.most_clock_s * 1e9) // _CLOCK_STEP_NS
    found = []
    for step in sorted(range(-steps, steps + 1), key=abs):
        scene = problem.scene(step * _CLOCK_STEP_NS)
        if scene is None:
            continue
        if start is not None:
            motions = [scene.centred(start)._replace(clock_ns=0)]
        else:
            motions = [motion for motion, _ in scene.rank_motions(_MOTIONS)[:_REFINED]]
        found += [_Candidate(scene, *scene.refine(motion, clock=True)) for motion in motions]
    return sorted((one for one in found if len(one.matched)), key=_Candidate.rank)


def _with_clock(problem: _Problem, candidates: list[_Candidate], *, posed: bool) -> Alignment:
    """Return the best motion with its clock.

    Args:
        problem: observations of both.
        candidates: the best first.
        posed: True if static objects show the pose. Then only the clock can be ambiguous, and only moving
            objects show it.

    Raises:
        AlignmentError: too few objects match, or the clock is not known.
    """
    options = problem.options
    things = candidates[0].things() if candidates else 0
    if things < options.least_things:
        raise problem.few(things)
    best = _settled(problem, candidates[0])
    least = _LEAST_MOVING_POSED if posed else _LEAST_MOVING
    if best.things(moving=True) < least:
        raise AlignmentError(
            f"only {best.things(moving=True)} moving objects match, at least {least} are needed to"
            " compare the clocks. If the clocks agree, trust them with --clock 0"
        )
    rivals = [one.things(moving=posed) for one in candidates if best.differs(one.whole)]
    rival = max(rivals, default=0)
    _check_rival(best.things(moving=posed), rival, options)
    return _aligned(problem, best, rival, clock=True)


def _settled(problem: _Problem, best: _Candidate) -> _Candidate:
    """Fit a motion with its clock until the clock stays the same."""
    for _ in range(_CLOCK_ROUNDS):
        whole = best.whole
        scene = problem.scene(whole.clock_ns)
        if scene is None:
            return best
        again = _Candidate(scene, *scene.refine(scene.centred(whole), clock=True))
        if again.things() < best.things():
            return best
        best = again
        if abs(best.motion.clock_ns) < _CLOCK_EXACT_NS:
            return best
    return best


def _check_rival(things: int, rival: int, options: AlignOptions) -> None:
    if rival > options.most_rival * things:
        raise AlignmentError(
            f"the alignment is ambiguous: one motion matches {things} objects and another {rival}."
            " It needs more objects of different kinds, or embeddings"
        )


def _aligned(problem: _Problem, best: _Candidate, rival: int, *, clock: bool) -> Alignment:
    """Return the alignment by a candidate, without a rotation or clock that is not significant.

    Raises:
        AlignmentError: the rotation is significant, but too uncertain for the farthest position; or the clock
            is too uncertain.
    """
    options, things = problem.options, best.things()
    matches = best.scene.matches(best.matched)
    share = things / len(matches.points)
    fastest = float(np.linalg.norm(matches.velocities, axis=1).max(initial=0.0))
    middle = matches.points.mean(axis=0)
    everything = best.scene.to_centre(positions_of(problem.moved)[:, :2])
    reach = float(np.linalg.norm(everything - middle, axis=1).max(initial=0.0))

    def fit(*, turn: bool, clock: bool) -> tuple[Motion, Errors]:
        # Two coordinates per object, less the numbers of a motion. The floor is for few objects that agree
        # by chance.
        motion = matches.fit(turn=turn, clock=clock)
        freedom = max(2 * things - 3 - clock, 1)
        variance = max(matches.squares(motion) * share / freedom, (_LEAST_SIGMA * options.tolerance_m) ** 2)
        return motion, matches.errors(motion, variance, share, turn=turn, clock=clock)

    motion, errors = fit(turn=True, clock=clock)
    clock_sigma_s = math.hypot(errors.clock_s, _SCAN_SIGMA_S) if clock else None
    by_clock = fastest * errors.clock_s
    if clock and by_clock > options.most_uncertain_m:
        raise AlignmentError(
            f"{things} objects show the difference of the clocks only within {errors.clock_s:.2f} s, or"
            f" {by_clock:.1f} m of the fastest one, because they move alike. Align after both robots have"
            " seen objects that stand or move differently. If the clocks agree, trust them with --clock 0"
        )
    total_ns = best.scene.whole(motion).clock_ns
    if clock and abs(total_ns) <= _LEAST_CLOCK_SIGMAS * errors.clock_s * 1e9:
        agreeing = problem.scene()
        if agreeing is not None:
            start = agreeing.centred(best.whole)._replace(clock_ns=0)
            best = _Candidate(agreeing, *agreeing.refine(start))
            if best.things() >= options.least_things:
                aligned = _aligned(problem, best, rival, clock=False)
                return aligned._replace(clock_sigma_s=clock_sigma_s)
        raise problem.few(best.things())
    turn_sigma = errors.turn_rad
    by_turn = reach * turn_sigma
    turned = abs(motion.yaw_rad) > options.least_turn_sigmas * turn_sigma
    if turned and by_turn > options.most_uncertain_m:
        raise AlignmentError(
            f"{things} objects suggest a rotation of {math.degrees(motion.yaw_rad):.2f} ±"
            f" {math.degrees(turn_sigma):.2f} degrees. Its error is {by_turn:.1f} m at"
            f" {reach:.0f} m; both robots must see more objects that are farther apart"
        )
    if not turned:
        motion, errors = fit(turn=False, clock=clock)
    return Alignment(
        best.scene.whole(motion),
        things,
        problem.of,
        math.sqrt(matches.squares(motion) / len(matches.points)),
        rival,
        turned,
        turn_sigma,
        errors.shift_m,
        math.hypot(errors.shift_m, by_turn),
        clock_sigma_s,
    )
