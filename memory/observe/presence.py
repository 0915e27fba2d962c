"""Whether things are still where they were, have moved, or are gone."""

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
    """How much it takes to believe that something is gone.

    Attributes:
        same: when an observation is of a known thing at its place.
        moved_similarity: least cosine between a thing that is gone and one elsewhere that is taken for it.
        detection_probability: of a thing that is there and in view.
        prior: probability that a thing is still there before anything is known.
        gone_below: a thing less probable than this is gone.
        apart_s: looks closer in time than this count once, because what hid a thing from one hid it from all.
        same_look_s: an observation belongs to the views at most this far from it in time.

    Raises:
        ValueError: a number out of its range.
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
    """What is believed about a known thing.

    Attributes:
        state: ``"present"``: seen again; ``"gone"``: its place was seen empty; ``"moved"``: gone, and seen
            elsewhere; ``"unknown"``: too little to say.
        probability: that it is still at its place.
        seen: observations of it at its place.
        missed: independent looks after the last of these that should have shown it.
        last_seen_ns: last observation at its place, old or new.
        moved_to: row of the observation elsewhere, for ``"moved"``.
        reasons: sentences, the first the most important.
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
    """What looking again has shown.

    Attributes:
        known: one for each known thing.
        matched: row of the known thing that each observation is of, at its place; -1 for none.
        moved_from: row of the known thing that each observation shows elsewhere; -1 for none.
        reasons: a sentence for each observation.
    """

    known: tuple[Presence, ...]
    matched: NDArray[np.int64]
    moved_from: NDArray[np.int64]
    reasons: tuple[str, ...]

    @property
    def new(self) -> NDArray[np.int64]:
        """Rows of observations that are of no known thing."""
        return np.flatnonzero((self.matched < 0) & (self.moved_from < 0))


def look_again(
    known: Sequence[Memory],
    observations: Sequence[Memory],
    views: Views,
    options: PresenceOptions | None = None,
) -> Change:
    """Compare what is known with what was seen: still there, moved, gone, or new.

    An observation is of the closest known thing that it could be at its place, and of two from one frame the
    closer. A known thing becomes less
    probable with each independent look that should have shown it after it was last seen (Bayes' rule with
    ``detection_probability``; false detections are left aside). A thing that is gone, and that looks like an
    observation of its map, kind and label which is of nothing known, has moved there; pairs are taken by
    falling similarity, each thing and each observation once. Likeness needs embeddings: without them a thing
    is gone, and what is elsewhere is new.

    Args:
        known: N memories of one map, those around where was looked: every pair is compared.
        observations: what was detected in the views, of the same map; each knows its time.
        views: the looks, also those that showed nothing.
        options: the defaults where not given.

    Raises:
        ValueError: several maps, embeddings of different sizes, or a position that is not known.
    """
    options = options or PresenceOptions()
    together = [*known, *observations]
    maps = sorted({memory.map_id for memory in together})
    if len(maps) > 1:
        raise ValueError(f"everything must be of one map, got {', '.join(maps)}: look at one after the other")
    features = Features.of(together, options.same)
    matched = _matched(features, len(known), options.same)
    times = np.array([memory.time_ns for memory in observations], dtype=np.int64)
    visible = expected_visible(views, features.position[: len(known)])
    found = [
        _presence(memory, times[matched == row], views.time_ns[visible[:, row]], options)
        for row, memory in enumerate(known)
    ]
    likeness = _likeness(features, known, matched, times)
    last = np.array([presence.last_seen_ns for presence in found], dtype=np.int64)
    gone = np.array([presence.state == "gone" for presence in found], dtype=bool)
    free = np.expand_dims(gone, 1) & (times > np.expand_dims(last, 1))
    moved_from = np.full(len(observations), -1)
    for row, observation in _best_pairs(np.where(free, likeness, -np.inf), options.moved_similarity):
        moved_from[observation] = row
        found[row] = _moved(
            found[row], known[row], observations[observation], observation, likeness[row, observation]
        )
    reasons = tuple(
        _matched_words(known[matched[row]], features, int(matched[row]), len(known) + row)
        if matched[row] >= 0
        else _elsewhere_words(known, found, likeness[:, row], int(moved_from[row]), options)
        for row in range(len(observations))
    )
    return Change(tuple(found), matched, moved_from, reasons)


def _matched(features: Features, count: int, options: MergeOptions) -> NDArray[np.int64]:
    """Row of the known thing that each observation is of, at its place; one observation of a frame each."""
    # What is known may hold these very observations already: its own frame says nothing here.
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
    """What the sights of a thing, and the looks that should have shown it, say about it."""
    last = max([memory.last_sight_ns, *seen_ns.tolist()])
    missed, previous = 0, last
    for time in sorted(looked_ns.tolist()):
        # The first miss need only be of another look than the last sight, not apart from it.
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


def _likeness(
    features: Features, known: Sequence[Memory], matched: NDArray[np.int64], times: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(N, observations) float64 cosine of known things to later observations of nothing known; else -inf."""
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
    """Things with observations that look like them, the most alike first, each once."""
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


def _moved(
    presence: Presence, memory: Memory, observed: Memory, observation: int, similarity: float
) -> Presence:
    """A thing that is gone, and was seen elsewhere."""
    distance_m = math.dist(memory.place, observed.place)
    reason = f"one like it, similarity {similarity:.2f}, is {distance_m:.1f} m away"
    return replace(presence, state="moved", moved_to=observation, reasons=(reason, *presence.reasons))


def _name(memory: Memory, row: int) -> str:
    """A known thing in words."""
    number = f"row {row}" if memory.id is None else f"memory {memory.id}"
    return f"{memory.label or memory.kind} ({number})"


def _matched_words(memory: Memory, features: Features, row: int, observation: int) -> str:
    """Why an observation is of a known thing at its place."""
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
    """Why an observation is of a thing that has moved, or new."""
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
