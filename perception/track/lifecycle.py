"""Start, belief and end of tracks."""

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
    REPORTED,
    ROW,
    SCORE,
    SCORE_SUM,
    SEEN_NS,
    SIZES,
    SPREAD,
    TRACK_ID,
    VELOCITY,
    VOTES,
    YAW_SPREAD,
    BoolArray,
    Float64Array,
    Int64Array,
    TrackState,
)

#: Scores and ranges are clipped here before they enter the belief.
_MOST_SCORE, _FARTHEST_M = 8.0, 60.0
#: Most lost tracks that are stored.
_WAITING = 1000
#: Speed that a lost object may have gained.
_WANDER_M_S = 1.0


def belief(
    parameters: Parameters,
    labels: Int64Array,
    score: Float64Array,
    mean: Float64Array,
    hits: Float64Array,
    range_m: Float64Array,
) -> Float64Array:
    """Return (N,) log-odds that tracks are real objects; see
    :class:`~perception.track.config.ClassConfig`.
    """
    column = parameters.column
    return np.asarray(
        column("bias")[labels]
        + column("score_weight")[labels] * np.minimum(score, _MOST_SCORE)
        + column("mean_weight")[labels] * np.minimum(mean, _MOST_SCORE)
        + column("hits_weight")[labels] * np.log(hits)
        + column("range_weight")[labels] * np.minimum(range_m, _FARTHEST_M)
    )


def new_tracks(
    parameters: Parameters,
    boxes: Float64Array,
    score: Float64Array,
    labels: Int64Array,
    velocity: Float64Array,
    first_id: int,
    estimated: Float64Array | None = None,
) -> TrackState:
    """Return tracks that start at unmatched boxes.

    Args:
        parameters: of the classes.
        boxes: (M, 7) in the map.
        score: (M,) log-odds.
        labels: (M,) class numbers.
        velocity: (3,) initial velocity.
        first_id: id of the first track; the others count up.
        estimated: (M, 3) velocities that the detector estimates, NaN where unknown; None: none.
    """
    state = TrackState.of(len(boxes))
    numbers, counts = state.numbers, state.counts
    numbers[:, BOX] = boxes
    numbers[:, VELOCITY] = velocity
    numbers[:, SPREAD.start] = parameters.noise[labels]
    numbers[:, SPREAD.start + 2] = parameters.speed_noise[labels]
    if estimated is not None:
        known = np.isfinite(estimated).all(axis=1)
        numbers[known, VELOCITY] = estimated[known]
        numbers[known, SPREAD.start + 2] = parameters.velocity_noise[labels[known]]
    numbers[:, YAW_SPREAD] = parameters.yaw_noise[labels]
    numbers[:, VOTES] = numbers[:, SIZES] = 1.0
    numbers[:, SCORE] = numbers[:, SCORE_SUM] = score
    counts[:, TRACK_ID] = np.arange(first_id, first_id + len(boxes))
    counts[:, LABEL] = labels
    counts[:, HITS] = 1
    return state


def median_velocity(state: TrackState) -> Float64Array:
    """Return the (3,) median velocity of established tracks; without poses, new tracks start with it."""
    known = state.counts[:, HITS] >= 3
    return np.median(state.numbers[known, VELOCITY], axis=0) if known.any() else np.zeros(3)


def reported_tracks(
    parameters: Parameters,
    state: TrackState,
    range_m: Float64Array,
    inside: BoolArray,
    missed_s: Float64Array,
) -> BoolArray:
    """Return an (N,) mask of tracks to report: seen and believed in, or briefly unseen within view."""
    counts, labels = state.counts, state.counts[:, LABEL]
    hits = counts[:, HITS].astype(np.float64)
    misses = counts[:, MISSES]
    # The last score is no evidence while unseen: objects about to be occluded have weak scores.
    score = np.where(misses == 0, state.numbers[:, SCORE], 0.0)
    believed = belief(parameters, labels, score, state.numbers[:, SCORE_SUM] / hits, hits, range_m)
    column = parameters.column
    coasting = believed + column("coast_bias")[labels] - column("coast_weight")[labels] * misses
    coasting_reported = (
        (coasting >= column("coast_from")[labels]) & inside & (missed_s <= column("coast_s")[labels] + 1e-6)
    )
    return np.where(misses == 0, believed >= column("tell_from")[labels], coasting_reported)


class LostTracks:
    """Tracks that ended and can return by the embeddings of their boxes."""

    def __init__(self, state: TrackState | None = None) -> None:
        self.state = TrackState.of(0) if state is None else state

    def add(self, ended: TrackState) -> None:
        """Add ended tracks that were reported and have an embedding; the oldest drop out first."""
        fine = (ended.counts[:, REPORTED] == 1) & ended.embeddings.any(axis=1)
        if fine.any():
            every = self.state.joined(ended.take(fine))
            self.state = every.take(np.arange(max(0, len(every) - _WAITING), len(every)))

    def match(self, parameters: Parameters, new: TrackState, now_ns: int) -> tuple[Int64Array, TrackState]:
        """Return rows of new tracks that continue lost ones, and the lost tracks, which are removed here."""
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


def restore_tracks(new: TrackState, rows: Int64Array, old: TrackState) -> None:
    """Give new tracks the identity, history and size of lost ones; position and velocity stay as observed."""
    new.counts[rows, TRACK_ID] = old.counts[:, TRACK_ID]
    new.counts[rows, HITS] = old.counts[:, HITS] + 1
    new.counts[rows, REPORTED] = 1
    new.numbers[rows, SCORE_SUM] += old.numbers[:, SCORE_SUM]
    new.embeddings[rows] = mean_direction(old.embeddings, new.embeddings[rows])


def mean_direction(before: npt.NDArray[np.float32], now: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return (N, 128) unit vectors: a moving average of embeddings, or ``now`` where ``before`` is zero."""
    mixed = 0.8 * before + 0.2 * now
    known = np.asarray(before.any(axis=1))
    mixed = np.where(known[:, None], mixed, now)
    length = np.sqrt((mixed * mixed).sum(1, keepdims=True))
    return np.asarray(mixed / np.where(length > 0, length, 1.0), np.float32)


def count_misses(state: TrackState, seen: Int64Array, *, later: bool) -> None:
    """Count a miss of all other tracks, in place; ``later`` is False for a second look at one moment."""
    missing = np.ones(len(state), np.bool_)
    missing[seen] = False
    state.counts[missing, ROW] = -1
    if later:
        state.counts[missing, MISSES] += 1
