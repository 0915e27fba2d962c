"""How tracks begin, are believed in, and end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perception.track.association import Pairs, assign
from perception.track.config import Parameters
from perception.track.state import (
    BOX,
    CENTRE,
    HITS,
    LABEL,
    MISSES,
    ROW,
    SCORE,
    SCORE_SUM,
    SEEN_NS,
    SIZES,
    SPREAD,
    TOLD,
    TRACK_ID,
    VELOCITY,
    VOTES,
    YAW_SPREAD,
    BoolArray,
    Float64Array,
    Int64Array,
    TrackState,
)

#: Scores beyond this say no more, metres beyond this neither.
_MOST_SCORE, _FARTHEST_M = 8.0, 60.0
#: Tracks without a box that wait for their vector to come back, at most.
_WAITING = 1000
#: What a thing that was lost may have moved by, beyond its speed when last seen.
_WANDER_M_S = 1.0


def belief(
    parameters: Parameters,
    labels: Int64Array,
    score: Float64Array,
    mean: Float64Array,
    hits: Float64Array,
    range_m: Float64Array,
) -> Float64Array:
    """(N,) log-odds that tracks are things: see :class:`~perception.track.config.ClassConfig`."""
    column = parameters.column
    return np.asarray(
        column("bias")[labels]
        + column("score_weight")[labels] * np.minimum(score, _MOST_SCORE)
        + column("mean_weight")[labels] * np.minimum(mean, _MOST_SCORE)
        + column("hits_weight")[labels] * np.log(hits)
        + column("range_weight")[labels] * np.minimum(range_m, _FARTHEST_M)
    )


def begun(
    parameters: Parameters,
    boxes: Float64Array,
    score: Float64Array,
    labels: Int64Array,
    velocity: Float64Array,
    first_id: int,
) -> TrackState:
    """Tracks of boxes that belong to none.

    Args:
        parameters: of the classes.
        boxes: (M, 7) in the map.
        score: (M,) log-odds.
        labels: (M,) numbers of classes.
        velocity: (3,) that things are taken to have.
        first_id: identity of the first, the others count on.
    """
    state = TrackState.of(len(boxes))
    numbers, counts = state.numbers, state.counts
    numbers[:, BOX] = boxes
    numbers[:, VELOCITY] = velocity
    numbers[:, SPREAD.start] = parameters.noise[labels]
    numbers[:, SPREAD.start + 2] = parameters.speed_noise[labels]
    numbers[:, YAW_SPREAD] = parameters.yaw_noise[labels]
    numbers[:, VOTES] = numbers[:, SIZES] = 1.0
    numbers[:, SCORE] = numbers[:, SCORE_SUM] = score
    counts[:, TRACK_ID] = np.arange(first_id, first_id + len(boxes))
    counts[:, LABEL] = labels
    counts[:, HITS] = 1
    return state


def usual_velocity(state: TrackState) -> Float64Array:
    """(3,) median of the tracks that are known for a while: what a new thing is taken to do without poses."""
    known = state.counts[:, HITS] >= 3
    return np.median(state.numbers[known, VELOCITY], axis=0) if known.any() else np.zeros(3)


def told_tracks(
    parameters: Parameters,
    state: TrackState,
    range_m: Float64Array,
    inside: BoolArray,
    missed_s: Float64Array,
) -> BoolArray:
    """(N,) which tracks are told: seen and believed in, or unseen for a moment where they would be."""
    counts, labels = state.counts, state.counts[:, LABEL]
    hits = counts[:, HITS].astype(np.float64)
    misses = counts[:, MISSES]
    # The last score tells nothing of what is unseen: a thing that is about to be hidden has a weak one.
    score = np.where(misses == 0, state.numbers[:, SCORE], 0.0)
    believed = belief(parameters, labels, score, state.numbers[:, SCORE_SUM] / hits, hits, range_m)
    column = parameters.column
    coasting = believed + column("coast_bias")[labels] - column("coast_weight")[labels] * misses
    coasting_told = (
        (coasting >= column("coast_from")[labels]) & inside & (missed_s <= column("coast_s")[labels] + 1e-6)
    )
    return np.where(misses == 0, believed >= column("tell_from")[labels], coasting_told)


class Waiting:
    """Tracks that ended and may come back by the vectors of their boxes.

    Args:
        state: of such tracks.
    """

    def __init__(self, state: TrackState | None = None) -> None:
        self.state = TrackState.of(0) if state is None else state

    def add(self, ended: TrackState) -> None:
        """Of tracks that ended, those that were told and have a vector; the oldest make room."""
        fine = (ended.counts[:, TOLD] == 1) & ended.embeddings.any(axis=1)
        if fine.any():
            every = self.state.joined(ended.take(fine))
            self.state = every.take(np.arange(max(0, len(every) - _WAITING), len(every)))

    def back(self, parameters: Parameters, new: TrackState, now_ns: int) -> tuple[Int64Array, TrackState]:
        """Rows of new tracks that are old ones, and what the old ones were, which wait no longer."""
        old = self.state
        column = parameters.column
        gone_s = (now_ns - old.counts[:, SEEN_NS]) * 1e-9
        self.state = old = old.take(gone_s <= column("reidentify_s")[old.counts[:, LABEL]])
        if not len(old) or not new.embeddings.any():
            return np.zeros(0, np.int64), old.take(np.zeros(0, np.int64))
        labels = old.counts[:, LABEL]
        alike = old.embeddings @ new.embeddings.T
        offset = old.numbers[:, None, CENTRE] - new.numbers[None, :, CENTRE]
        distance = np.sqrt((offset * offset).sum(2))
        gone_s = (now_ns - old.counts[:, SEEN_NS]) * 1e-9
        speed = np.sqrt((old.numbers[:, VELOCITY] ** 2).sum(1)) + _WANDER_M_S
        near = distance <= (column("gate_m")[labels] + speed * gone_s)[:, None]
        fine = near & (alike >= column("reidentify_from")[labels][:, None])
        fine &= labels[:, None] == new.counts[None, :, LABEL]
        pairs = Pairs(*np.nonzero(fine))
        unlike = 1.0 - alike[pairs.track, pairs.box].astype(np.float64)
        alone = 1.0 - float(column("reidentify_from").min())
        found = assign(pairs, unlike, len(old), len(new), alone=alone)
        kept = np.ones(len(old), np.bool_)
        kept[found.track] = False
        self.state = old.take(kept)
        return found.box, old.take(found.track)


def come_back(new: TrackState, rows: Int64Array, old: TrackState) -> None:
    """New tracks that are old ones: identity, history and size; place and speed are as seen now."""
    new.counts[rows, TRACK_ID] = old.counts[:, TRACK_ID]
    new.counts[rows, HITS] = old.counts[:, HITS] + 1
    new.counts[rows, TOLD] = 1
    new.numbers[rows, SCORE_SUM] += old.numbers[:, SCORE_SUM]
    new.embeddings[rows] = mean_direction(old.embeddings, new.embeddings[rows])


def mean_direction(before: npt.NDArray[np.float32], now: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(N, 128) unit vectors between what was known and what is seen, where nothing was the latter."""
    mixed = 0.8 * before + 0.2 * now
    known = np.asarray(before.any(axis=1))
    mixed = np.where(known[:, None], mixed, now)
    length = np.sqrt((mixed * mixed).sum(1, keepdims=True))
    return np.asarray(mixed / np.where(length > 0, length, 1.0), np.float32)


def unseen(state: TrackState, seen: Int64Array, *, later: bool) -> None:
    """Count the miss of all tracks but some, in place; ``later`` than the frame before."""
    missing = np.ones(len(state), np.bool_)
    missing[seen] = False
    state.counts[missing, ROW] = -1
    if later:
        state.counts[missing, MISSES] += 1
