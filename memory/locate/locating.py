"""Pose of a robot from the objects and the place vector of one scan.

The evidence of a pose is the product of three parts: the prior, the likelihood ratio of the place vector, and
that of the objects in view. The prior prefers poses near a stored place with its heading. The sum over all
poses is compared with "none of them", whose evidence is 1. A scan that resembles nothing, or many places, is
therefore refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.locate.answers import LocateOptions, LocateResult, PoseCandidate, Verdict, evidence_words
from memory.locate.objects import REACH_M, Mode, ObjectMatcher, Objects
from memory.locate.places import HEADING_RAD, USUAL, PlaceCalibration, calibrate, vector_of
from memory.merging.align_options import AlignOptions
from memory.merging.motion import Motion
from memory.merging.scene import motions_between
from memory.persistence.database import Database
from memory.query import Filter
from memory.types import AWAY, STATES, Memory, positions_of
from memory.wording.words import plural

#: Most places of a map for the calibration, and most places near which poses are searched.
_SAMPLED, _NEAREST = 600, 40
#: Most stored objects of a map for the search without a place.
_MOST_OBJECTS = 2_000
#: Side of a cell of the mapped area, in metres.
_CELL_M = 10.0
#: Smallest probabilities of a pose that counts, and of one that is listed; samples of each pose.
_LEAST_SHARE, _LEAST_LISTED, _SAMPLES = 1e-4, 0.01, 128


class _Hypothesis(NamedTuple):
    """A pose with its log evidence."""

    map_id: str
    mode: Mode
    evidence: float
    place: int | None
    similarity: float | None
    z: float
    objects: tuple[int, ...] = ()


class _Places(NamedTuple):
    """Stored places of a map that may be near.

    Attributes:
        ids: (N,) int64.
        poses: (N, 3) float64 x, y and yaw.
        z: (N,) float64 metres.
        cosine: (N,) float64 similarities to the scan.
        weight: (N,) float64 prior log weights, without evidence.
        calibration: meaning of the similarities.
    """

    ids: NDArray[np.int64]
    poses: NDArray[np.float64]
    z: NDArray[np.float64]
    cosine: NDArray[np.float64]
    weight: NDArray[np.float64]
    calibration: PlaceCalibration


def locate(
    database: Database, view: Sequence[Memory], options: LocateOptions, map_id: str | None = None
) -> LocateResult:
    """See :meth:`memory.search.reader.StoreReader.locate`."""
    maps = database.maps() if map_id is None else [map_id]
    share = math.log(max(len(maps), 1))
    found = [
        hypothesis._replace(evidence=hypothesis.evidence - share)
        for one in maps
        for hypothesis in _hypotheses(database, one, view, options)
    ]
    return _judged(found, len(Objects.of(view)), options)


def _hypotheses(
    database: Database, map_id: str, view: Sequence[Memory], options: LocateOptions
) -> Iterator[_Hypothesis]:
    """Yield the poses in a map that some evidence supports."""
    places = _places(database, map_id, view)
    stored = _stored_objects(database, map_id, places)
    matcher = ObjectMatcher(Objects.of(view), Objects.of(stored), options)
    area_m2 = _mapped_area_m2(stored, places)
    anywhere = math.log(options.known * (1.0 - options.near_place) / (area_m2 * math.tau))
    if places is None:
        anywhere = math.log(options.known / (area_m2 * math.tau))
    motions = []
    if len(stored) <= _MOST_OBJECTS:
        objects = [each for each in view if each.kind == "object" and each.position is not None]
        gates = AlignOptions(tolerance_m=3.0 * options.sigma_m)
        motions += motions_between(objects, stored, gates)
    near = None
    if places is not None:
        near = _NearPlaces(places, math.log(options.known * options.near_place))
        for pose, sigma_m in near.poses():
            motions += matcher.around(pose, 3.0 * sigma_m)
    for mode in matcher.modes(motions):
        matched, z = matcher.ids(mode), matcher.height_m(mode)
        close = None if near is None else near.density(mode.motion)
        if close is None:
            yield _Hypothesis(map_id, mode, mode.evidence + anywhere, None, None, z, matched)
            continue
        evidence = mode.evidence + float(np.logaddexp(close.density, anywhere))
        if close.density > anywhere:
            # The place limits a pose too, of which one object far away tells little.
            mode = mode._replace(
                sigma_m=mode.sigma_m * close.sigma_m / math.hypot(mode.sigma_m, close.sigma_m)
            )
        yield _Hypothesis(map_id, mode, evidence, close.place, close.similarity, z, matched)
    if near is not None:
        yield from near.alone(map_id, matcher)


class _Close(NamedTuple):
    """The prior of a pose near stored places.

    Attributes:
        density: log density per m² and rad.
        place, similarity: the place that contributes most, and its similarity to the scan.
        sigma_m: standard deviation of the position by that place, in metres.
    """

    density: float
    place: int
    similarity: float
    sigma_m: float


class _NearPlaces:
    """The prior of poses near stored places, with the evidence of the place vector.

    Args:
        places: of the map.
        share: log probability of all of them.
    """

    def __init__(self, places: _Places, share: float) -> None:
        self._places = places
        calibration = places.calibration
        self._evidence = share + places.weight + calibration.evidence(places.cosine)
        self._sigma_m = calibration.distance_m(places.cosine)

    def poses(self) -> Iterator[tuple[Motion, float]]:
        """Yield the poses with some evidence and their standard deviations in metres."""
        kept = self._evidence > self._evidence.max() - 7.0
        for row in np.flatnonzero(kept).tolist():
            yield self._motion(row), float(self._sigma_m[row])

    def density(self, motion: Motion) -> _Close:
        """Return the log density of a pose, and the place that contributes most."""
        x, y, yaw = self._places.poses.T
        turned = np.remainder(yaw - motion.yaw_rad + math.pi, math.tau) - math.pi
        away = (x - motion.x_m) ** 2 + (y - motion.y_m) ** 2
        logs = self._evidence - away / (2.0 * self._sigma_m**2) - turned**2 / (2.0 * HEADING_RAD**2)
        logs = logs - np.log(math.tau**1.5 * self._sigma_m**2 * HEADING_RAD)
        row = int(logs.argmax())
        most = float(logs[row])
        total = most + math.log(float(np.exp(logs - most).sum()))
        place, similarity = int(self._places.ids[row]), float(self._places.cosine[row])
        return _Close(total, place, similarity, float(self._sigma_m[row]))

    def alone(self, map_id: str, matcher: ObjectMatcher) -> Iterator[_Hypothesis]:
        """Yield the places as poses that no object supports."""
        nothing = np.zeros((0, 2), np.int64)
        for row in range(len(self._evidence)):
            motion = self._motion(row)
            evidence = float(self._evidence[row]) + matcher.nothing_matched(motion)
            mode = Mode(motion, evidence, float(self._sigma_m[row]), HEADING_RAD, nothing)
            place, similarity = int(self._places.ids[row]), float(self._places.cosine[row])
            yield _Hypothesis(map_id, mode, evidence, place, similarity, float(self._places.z[row]))

    def _motion(self, row: int) -> Motion:
        x, y, yaw = self._places.poses[row].tolist()
        return Motion(yaw, x, y)


def _places(database: Database, map_id: str, view: Sequence[Memory]) -> _Places | None:
    """Return the stored places of a map that resemble the scan; None if nothing can be compared."""
    seen = next((each for each in view if each.kind == "place"), None)
    ids = database.ids(Filter(map_id=map_id, kinds=("place",)), order="oldest")
    if seen is None or not len(ids):
        return None
    vectors = (
        {**seen.embeddings} if seen.embedding is None else {"default": seen.embedding, **seen.embeddings}
    )
    stored = [each for each in database.present(ids.tolist(), vectors=True) if each.position is not None]
    for encoder, vector in vectors.items():
        kept = [each for each in stored if vector_of(each, encoder) is not None]
        rows = np.array([vector_of(each, encoder) for each in kept], np.float64)
        if not len(rows) or rows.shape[1] != len(vector):
            continue
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        poses = np.array([[*each.place[:2], each.yaw] for each in kept])
        step = max(1, math.ceil(len(kept) / _SAMPLED))
        calibration = calibrate(poses[::step], rows[::step], USUAL.get(encoder))
        if calibration is None:
            continue
        cosine = rows @ (vector.astype(np.float64) / np.linalg.norm(vector.astype(np.float64)))
        best = np.argsort(-cosine, kind="stable")[:_NEAREST]
        cells = np.floor(np.column_stack([poses[:, :2] / 3.0, poses[:, 2] / 0.5]))
        _, cell, crowd = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
        weight = -np.log(len(crowd)) - np.log(crowd[cell.ravel()])
        return _Places(
            np.array([each.id for each in kept], np.int64)[best],
            poses[best],
            np.array([each.place[2] for each in kept])[best],
            cosine[best],
            weight[best],
            calibration,
        )
    return None


def _stored_objects(database: Database, map_id: str, places: _Places | None) -> list[Memory]:
    """Return the objects of a map that are not gone; of a large map those around the places."""
    present = tuple(state for state in STATES if state not in AWAY)
    everything = Filter(map_id=map_id, kinds=("object",), states=present)
    ids = database.ids(everything)
    if len(ids) > _MOST_OBJECTS:
        if places is None:
            raise ValueError(
                f"map {map_id!r} has {len(ids)} objects, at most {_MOST_OBJECTS} can be compared without"
                " place vectors. Import scans with poses, so that the store has places"
            )
        found = set[int]()
        for x, y, _ in places.poses.tolist():
            circle = Filter(map_id=map_id, kinds=("object",), states=present, circle=(x, y, REACH_M))
            found.update(database.ids(circle).tolist())
        ids = np.array(sorted(found), np.int64)
    memories = database.present(ids.tolist(), vectors=False)
    return [each for each in memories if each.position is not None]


def _mapped_area_m2(objects: Sequence[Memory], places: _Places | None) -> float:
    """Return the area of the cells that hold a memory, and of their neighbours."""
    points = positions_of(objects)[:, :2]
    if places is not None:
        points = np.vstack([points, places.poses[:, :2]])
    cells = {(int(x), int(y)) for x, y in np.floor(points / _CELL_M)}
    wide = {(x + i, y + j) for x, y in cells for i in (-1, 0, 1) for j in (-1, 0, 1)}
    return max(len(wide), 1) * _CELL_M**2


def _judged(found: Sequence[_Hypothesis], seen: int, options: LocateOptions) -> LocateResult:
    """Return the answer from the evidence of all poses and of none of them."""
    none = math.log(1.0 - options.known)
    found = sorted(found, key=lambda each: -each.evidence)
    logs = np.array([none, *(each.evidence for each in found)])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    unknown = float(weights[0])
    candidates = _candidates(found, weights[1:], options)
    best = candidates[0] if candidates else None
    verdict: Verdict = "unknown"
    if best is not None and best.probability >= options.least_probability:
        verdict, reason = "located", evidence_words(best, seen)
    elif not found:
        reason = "nothing in the store can be compared with the scan"
    elif best is None or unknown >= 0.5:
        reason = f"with probability {unknown:.2f} the scan shows no mapped place, or too little of one"
    else:
        verdict = "ambiguous"
        reason = (
            f"the most probable of {plural(len(candidates), 'pose')} is {best} with probability"
            f" {best.probability:.2f}, at least {options.least_probability:g} is required"
        )
    return LocateResult(verdict, tuple(candidates), unknown, seen, reason)


def _candidates(
    found: Sequence[_Hypothesis], shares: NDArray[np.float64], options: LocateOptions
) -> list[PoseCandidate]:
    """Return the most probable poses that differ by more than the tolerance.

    Args:
        found: hypotheses, the most probable first.
        shares: (N,) float64 their probabilities.
    """
    count = int(np.count_nonzero(shares > _LEAST_SHARE))
    found, shares = found[:count], shares[:count]
    if not count:
        return []
    noise = np.random.default_rng(0).normal(size=(_SAMPLES, 3))
    poses = np.array([each.mode.motion for each in found])[:, [1, 2, 0]]
    sigma = np.array([(each.mode.sigma_m, each.mode.sigma_m, each.mode.sigma_rad) for each in found])
    sampled = poses[:, None] + sigma[:, None] * noise
    left = shares.copy()
    candidates: list[PoseCandidate] = []
    while len(candidates) < options.most_candidates and left.max() > _LEAST_SHARE:
        chosen = found[int(left.argmax())]
        same = np.array([each.map_id == chosen.map_id for each in found])
        pose = np.array(chosen.mode.motion)[[1, 2, 0]]
        for _ in range(3):  # Move to the mean of the probable poses within the tolerance.
            offset = _offset(sampled, pose)
            inside = _inside(offset, options) & same[:, None]
            weight = shares[:, None] * inside
            if not weight.any():
                break
            mean = (offset * weight[..., None]).sum(axis=(0, 1)) / weight.sum()
            pose = pose + mean
        inside = _inside(_offset(sampled, pose), options) & same[:, None]
        probability = float((shares * inside.mean(axis=1)).sum())
        near = _inside(_offset(poses, pose), options) & same
        near[found.index(chosen)] = True
        left[near] = 0.0
        spread_m, spread_rad = _spread(_offset(sampled[near], pose), shares[near])
        candidates.append(
            PoseCandidate(
                chosen.map_id, (float(pose[0]), float(pose[1]), chosen.z),
                math.remainder(float(pose[2]), math.tau), min(probability, 1.0), spread_m, spread_rad,
                chosen.objects, chosen.place, chosen.similarity,
            )
        )  # fmt: skip
    listed = [each for each in candidates if each.probability >= _LEAST_LISTED]
    return sorted(listed, key=lambda each: -each.probability)


def _offset(poses: NDArray[np.float64], pose: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (..., 3) differences of x, y and yaw to a pose."""
    offset = poses - pose
    offset[..., 2] = np.remainder(offset[..., 2] + math.pi, math.tau) - math.pi
    return offset


def _inside(offset: NDArray[np.float64], options: LocateOptions) -> NDArray[np.bool_]:
    """Return which differences are within the tolerance."""
    near = np.hypot(offset[..., 0], offset[..., 1]) <= options.within_m
    return np.asarray(near & (np.abs(offset[..., 2]) <= options.within_rad))


def _spread(offset: NDArray[np.float64], shares: NDArray[np.float64]) -> tuple[float, float]:
    """Return the standard deviations of the position along one axis, and of the heading."""
    weight = shares / shares.sum()
    squares = (offset**2).mean(axis=1) * weight[:, None]
    x, y, yaw = squares.sum(axis=0).tolist()
    return math.sqrt((x + y) / 2.0), math.sqrt(yaw)
