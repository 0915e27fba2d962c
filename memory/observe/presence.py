"""Belief whether objects are still there, have moved or are gone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from memory.merging.matching import Features, MergeOptions, compare, mahalanobis_squared
from memory.observe.views import Views, expected_visible
from memory.types import Memory, State


@dataclass(frozen=True, kw_only=True)
class PresenceOptions:
    """Thresholds for believing that an object is gone.

    Attributes:
        same: when an observation is of a known object at its place.
        moved_similarity: minimum cosine similarity between a gone object and its observation elsewhere.
        detection_probability: probability of detecting a visible object.
        prior: probability that an object is still there, before any view.
        gone_below: probability below which an object is gone.
        apart_s: views closer in time than this count once, because the same occluder may hide the object
            in all.
        same_look_s: maximum time between an observation and its view, in seconds.

    Raises:
        ValueError: a number is out of range.
    """

    same: MergeOptions = field(default_factory=MergeOptions)
    moved_similarity: float = 0.85
    detection_probability: float = 0.9
    prior: float = 0.95
    gone_below: float = 0.05
    apart_s: float = 1.0
    same_look_s: float = 0.1

    def __post_init__(self) -> None:
        for name in ("detection_probability", "prior", "gone_below"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        if not -1.0 <= self.moved_similarity <= 1.0:
            raise ValueError(f"moved_similarity must be from -1 to 1, got {self.moved_similarity}")
        for name in ("apart_s", "same_look_s"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise ValueError(f"{name} must be finite and not negative, got {getattr(self, name)}")


@dataclass(frozen=True)
class Presence:
    """Belief about a known object.

    Attributes:
        state: ``"present"`` (seen again), ``"gone"`` (its place was seen empty), ``"moved"`` (gone, and
            seen elsewhere) or ``"unknown"``.
        probability: that it is still at its place.
        seen: number of observations at its place.
        missed: number of independent later views that should have shown it.
        last_seen_ns: last observation at its place.
        moved_to: row of its observation elsewhere, if moved.
        reasons: sentences, the most important first.
    """

    state: State
    probability: float
    seen: int
    missed: int
    last_seen_ns: int
    moved_to: int | None
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """Comparison of known objects with new observations.

    Attributes:
        known: belief about each known object.
        matched: for each observation, the row of the known object at its place; -1 for none.
        moved_from: for each observation, the row of the known object that moved there; -1 for none.
        reasons: a sentence for each observation.
    """

    known: tuple[Presence, ...]
    matched: NDArray[np.int64]
    moved_from: NDArray[np.int64]
    reasons: tuple[str, ...]

    @property
    def new(self) -> NDArray[np.int64]:
        """Rows of observations that match no known object."""
        return np.flatnonzero((self.matched < 0) & (self.moved_from < 0))


def look_again(
    known: Sequence[Memory],
    observations: Sequence[Memory],
    views: Views,
    options: PresenceOptions | None = None,
) -> Change:
    """Compare known objects with new observations and views.

    An observation matches the closest known object that it fits; of two observations in one frame, the closer
    one matches. Each later independent view without a detection reduces the probability of an object (Bayes'
    rule with ``detection_probability``; false detections are ignored). A gone object that resembles an
    unmatched observation of its map, kind and label has moved there. Pairs are matched by decreasing
    similarity. This needs embeddings; without them, such an object is gone and the observation is new.

    Args:
        known: N memories of one map around the views; all pairs are compared.
        observations: detections in the views, in the same map.
        views: all views, also those without detections.
        options: thresholds.

    Raises:
        ValueError: several maps, embeddings of different sizes, or an unknown position.
    """
    options = options or PresenceOptions()
    together = [*known, *observations]
    maps = sorted({memory.map_id for memory in together})
    if len(maps) > 1:
        raise ValueError(f"all memories must be of one map, got {', '.join(maps)}. Compare one map at a time")
    features = Features.of(together, options.same)
    matched = _match_known(features, len(known), options.same)
    times = np.array([memory.time_ns for memory in observations], dtype=np.int64)
    visible = expected_visible(views, features.position[: len(known)])
    found = [
        _presence(memory, times[matched == row], views.time_ns[visible[:, row]], options)
        for row, memory in enumerate(known)
    ]
    likeness = _similarities(features, known, matched, times)
    last = np.array([presence.last_seen_ns for presence in found], dtype=np.int64)
    gone = np.array([presence.state == "gone" for presence in found], dtype=bool)
    free = np.expand_dims(gone, 1) & (times > np.expand_dims(last, 1))
    moved_from = np.full(len(observations), -1)
    for row, observation in _best_pairs(np.where(free, likeness, -np.inf), options.moved_similarity):
        moved_from[observation] = row
        found[row] = _moved_presence(
            found[row], known[row], observations[observation], observation, likeness[row, observation]
        )
    reasons = tuple(
        _matched_words(known[matched[row]], features, int(matched[row]), len(known) + row)
        if matched[row] >= 0
        else _elsewhere_words(known, found, likeness[:, row], int(moved_from[row]), options)
        for row in range(len(observations))
    )
    return Change(tuple(found), matched, moved_from, reasons)


def _match_known(features: Features, count: int, options: MergeOptions) -> NDArray[np.int64]:
    """Return the row of the known object that each observation matches; one per frame."""
    # Known memories may include these observations, so ignore their own frames.
    alone = features._replace(frame=np.full(len(features.frame), -1))
    rows = np.arange(count)
    candidates: list[tuple[float, int, int]] = []
    for observation in range(count, len(features.frame)):
        match = compare(alone, rows, np.full(count, observation), options)
        candidates += [
            (float(match.distance_squared[row]), int(row), observation) for row in rows[match.same]
        ]
    matched = np.full(len(features.frame) - count, -1)
    taken: set[tuple[int, int]] = set()
    for _, row, observation in sorted(candidates):
        frame = int(features.frame[observation])
        if matched[observation - count] < 0 and (frame < 0 or (row, frame) not in taken):
            matched[observation - count] = row
            taken.add((row, frame))
    return matched


def _presence(
    memory: Memory, seen_ns: NDArray[np.int64], looked_ns: NDArray[np.int64], options: PresenceOptions
) -> Presence:
    """Return the belief about an object from its observations and missed views."""
    last = max([memory.last_sight_ns, *seen_ns.tolist()])
    missed, previous = 0, last
    for time in sorted(looked_ns.tolist()):
        # The first missed view must differ from the last observation, but may be close in time.
        gap_s = options.same_look_s if missed == 0 else options.apart_s
        if time > last and time - previous > gap_s * 1e9:
            missed, previous = missed + 1, time
    there = options.prior * (1.0 - options.detection_probability) ** missed
    probability = there / (there + 1.0 - options.prior)
    looks = f"{missed} independent look{'s' if missed != 1 else ''}"
    state: State = "unknown"
    if missed and probability < options.gone_below:
        state, reason = "gone", f"{looks} at its place should have shown it and did not"
    elif missed:
        reason = f"{looks} at its place did not show it: not enough to say that it is gone"
    elif len(seen_ns):
        state, reason = "present", "seen again at its place"
    else:
        reason = "its place has not been in view since it was last seen"
    reasons = (reason, f"still there with probability {probability:.3f}")
    return Presence(state, probability, len(seen_ns), missed, last, None, reasons)


def _similarities(
    features: Features, known: Sequence[Memory], matched: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return (N, observations) similarities of gone objects to later unmatched observations; else -inf."""
    count = len(known)
    likeness = np.full((count, len(matched)), -np.inf)
    has_vector = np.asarray(features.embedding.any(axis=1))
    for row, memory in enumerate(known):
        fits = np.asarray((matched < 0) & (times > memory.last_sight_ns) & has_vector[count:])
        fits &= features.group[count:] == features.group[row]
        fits &= has_vector[row]
        others = features.embedding[count:][fits].astype(np.float64)
        likeness[row, fits] = others @ features.embedding[row].astype(np.float64)
    return likeness


def _best_pairs(likeness: NDArray[np.float64], least: float) -> list[tuple[int, int]]:
    """Match objects and observations by decreasing similarity, each once."""
    rows, columns = np.nonzero(likeness >= least)
    pairs: list[tuple[int, int]] = []
    used_rows: set[int] = set()
    used_columns: set[int] = set()
    for place in np.lexsort((columns, rows, -likeness[rows, columns])):
        row, column = int(rows[place]), int(columns[place])
        if row not in used_rows and column not in used_columns:
            pairs.append((row, column))
            used_rows.add(row)
            used_columns.add(column)
    return pairs


def _moved_presence(
    presence: Presence, memory: Memory, observed: Memory, observation: int, similarity: float
) -> Presence:
    """Return the belief about an object that moved."""
    distance_m = math.dist(memory.place, observed.place)
    reason = f"one like it, similarity {similarity:.2f}, is {distance_m:.1f} m away"
    return replace(presence, state="moved", moved_to=observation, reasons=(reason, *presence.reasons))


def _name(memory: Memory, row: int) -> str:
    """Return an object in words."""
    number = f"row {row}" if memory.id is None else f"memory {memory.id}"
    return f"{memory.label or memory.kind} ({number})"


def _matched_words(memory: Memory, features: Features, row: int, observation: int) -> str:
    """Return why an observation matches a known object at its place."""
    offset = features.position[observation] - features.position[row]
    summed = features.covariance[observation] + features.covariance[row]
    distance = math.sqrt(float(mahalanobis_squared(offset[None], summed[None])[0]))
    return f"{_name(memory, row)} at its place, {distance:.2f} standard deviations from where it was"


def _elsewhere_words(
    known: Sequence[Memory],
    found: Sequence[Presence],
    likeness: NDArray[np.float64],
    moved_from: int,
    options: PresenceOptions,
) -> str:
    """Return why an observation is of a moved or new object."""
    if moved_from >= 0:
        name = _name(known[moved_from], moved_from)
        return f"{name} has moved: similarity {likeness[moved_from]:.2f}, and its old place was seen empty"
    closest = int(np.argmax(likeness)) if len(likeness) else -1
    if closest < 0 or likeness[closest] < options.moved_similarity:
        return "new: nothing known of its kind and label is at this place, or gone and like it"
    state = found[closest].state
    why = {
        "present": "that is still at its place",
        "unknown": "whether that is still at its place is not known",
    }.get(state, "that was at its place later, or is taken for another one")
    return f"new: like {_name(known[closest], closest)}, similarity {likeness[closest]:.2f}, but {why}"
