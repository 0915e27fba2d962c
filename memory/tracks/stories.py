"""Memories of a track: static objects, motions, or both in sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.merging.tracks import TRACKS
from memory.merging.trajectories import MOST_POINTS, Trajectory, motion_caption, trajectory_payload
from memory.tracks.collection import TrackSamples
from memory.tracks.phases import Phase, phases_of
from memory.types import Memory, Velocity, Visit

#: Noise of the boxes, maximum acceleration, and time over which the speed is measured.
_WANDERS_M, _GAINS_M_S2, _OVER_S = 1.0, 5.0, 1.0


def pieces_of(time_ns: NDArray[np.int64], place: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Split a track at jumps to another object.

    A jump is a step that is longer than the speed before and after it, a car's acceleration and the noise of
    the boxes allow.

    Args:
        time_ns: (n,) int64, increasing, n at least 1.
        place: (n, 2) metres in the map.

    Returns:
        First and last row of each piece, both included.
    """
    count = len(time_ns)
    seconds = (time_ns - time_ns[0]) / 1e9
    took_s = np.diff(seconds)
    steps = np.hypot(*np.diff(place, axis=0).T)
    cuts = [0]
    for step in np.flatnonzero(steps > _WANDERS_M + 0.5 * _GAINS_M_S2 * took_s**2).tolist():
        before, after = _speed(seconds, place, step, -1), _speed(seconds, place, step + 1, 1)
        known = [speed for speed in (before, after) if speed is not None]
        # With only two boxes there is no speed to compare, so do not split.
        if not known:
            continue
        reach = max(known) * took_s[step] + 0.5 * _GAINS_M_S2 * took_s[step] ** 2
        if steps[step] > reach + _WANDERS_M:
            cuts.append(step + 1)
    return list(zip(cuts, [cut - 1 for cut in cuts[1:]] + [count - 1], strict=True))


def _speed(seconds: NDArray[np.float64], place: NDArray[np.float64], row: int, way: int) -> float | None:
    """Return the speed around a row in metres per second, backwards or forwards; ``None`` at the end."""
    end = row
    while 0 <= end + way < len(seconds) and abs(seconds[end + way] - seconds[row]) <= _OVER_S:
        end += way
    if end == row:
        return None
    apart = abs(seconds[end] - seconds[row])
    return float(np.hypot(*(place[end] - place[row])) / max(apart, 1e-3))


#: Time over which boxes show a velocity, and the least time and number of boxes that do.
_VELOCITY_NS, _LEAST_NS, _LEAST_BOXES = 1_000_000_000, 300_000_000, 3


@dataclass(frozen=True, kw_only=True)
class TrackOptions:
    """Options for turning tracks into memories.

    Attributes:
        ended_s: a track that was not seen for this long has ended.
        at_most_s: longer tracks get intermediate memories, which consolidation merges.
        stay_m: noise of the box of a static object, in metres.
        stay_s: minimum duration of a stay.
        least_sights: minimum number of observations of a memory.
        least_evidence: minimum sum of their scores: three boxes with score 0.5, or two with score 0.75.
        sigma_m: minimum standard deviation of a position, because the errors of one track are correlated.

    Raises:
        ValueError: a number is out of range.
    """

    ended_s: float = 2.0
    at_most_s: float = 60.0
    stay_m: float = 1.5
    stay_s: float = 2.0
    least_sights: int = 2
    least_evidence: float = 1.5
    sigma_m: float = 0.15

    def __post_init__(self) -> None:
        for name in ("ended_s", "at_most_s", "stay_m", "stay_s", "sigma_m"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {value}")
        if not (math.isfinite(self.least_evidence) and self.least_evidence >= 0.0):
            raise ValueError(f"least_evidence must be finite and not negative, got {self.least_evidence}")
        if self.least_sights < 1:
            raise ValueError(f"least_sights must be at least 1, got {self.least_sights}")


def memories_of(
    track: TrackSamples, name: str, *, map_id: str, provenance: str, options: TrackOptions
) -> list[Memory]:
    """Return the memories of a track in order of time: an object per stay, an event per motion.

    After a jump to another object, the rest of the track is named ``NAME.2``.

    Args:
        track: track with at least one observation.
        name: name of the track, with its recording.
        map_id, provenance: of the memories.
        options: how tracks become memories.
    """
    times, boxes = np.array(track.times_ns, np.int64), np.stack(track.boxes)
    vectors = track.vectors
    default = vectors.pop("default", None)
    found = []
    for number, (start, stop) in enumerate(pieces_of(times, boxes[:, :2])):
        share = (stop + 1 - start) / len(times)
        if round(track.sights * share) < options.least_sights or track.score * share < options.least_evidence:
            continue
        here = slice(start, stop + 1)
        phases = phases_of(times[here], boxes[here, :2], stay_m=options.stay_m, stay_s=options.stay_s)
        for phase in phases:
            last = phase is phases[-1]
            phase = phase._replace(first=phase.first + start, last=phase.last + start)
            ends = last and stop == len(times) - 1
            begin, end = int(times[phase.first]), track.last_ns if ends else int(times[phase.last])
            sights = max(1, round(track.sights * (phase.last + 1 - phase.first) / len(times)))
            velocity = _velocity(track, phase, times, boxes)
            tell = _stay if phase.stood else _way
            parts = tell(track, phase, times, boxes, (end - begin) / 1e9, options)
            named = {f"{name}.{number + 1}" if number else name: [begin, end]}
            payload = {**track.payload, **parts.pop("payload"), TRACKS: named}
            found.append(
                Memory(
                    **parts,
                    map_id=map_id,
                    label=track.label,
                    velocity=velocity,
                    confidence=track.confidence,
                    payload=payload,
                    embedding=default,
                    embeddings=vectors,
                    evidence=track.evidence,
                    provenance=provenance,
                    time_ns=end,
                    count=sights,
                    first_seen_ns=begin,
                    last_seen_ns=end,
                    visits=(Visit(begin, end, sights),) if sights > 1 else (),
                    state="present" if last and phase.stood else "moved",
                )
            )
    return found


def _velocity(
    track: TrackSamples, phase: Phase, times: NDArray[np.int64], boxes: NDArray[np.float64]
) -> Velocity | None:
    """Return the velocity at the end of a phase: as observed, or else that of its last second.

    It is unknown if neither the tracker nor enough boxes show it.
    """
    observed = track.velocities[phase.last]
    if observed is not None:
        return observed
    rows = np.arange(phase.first, phase.last + 1)
    rows = rows[times[rows] >= times[phase.last] - _VELOCITY_NS]
    if len(rows) < _LEAST_BOXES or times[rows[-1]] - times[rows[0]] < _LEAST_NS:
        return None
    seconds = (times[rows] - times[rows].mean()) / 1e9
    x, y, z = (seconds @ boxes[rows, :3] / (seconds @ seconds)).tolist()
    return x, y, z


def _stay(
    track: TrackSamples,
    phase: Phase,
    times: NDArray[np.int64],
    boxes: NDArray[np.float64],
    took_s: float,
    options: TrackOptions,
) -> dict[str, Any]:
    rows = np.arange(phase.first, phase.last + 1)
    away = boxes[rows, :2] - np.median(boxes[rows, :2], axis=0)
    rows = rows[np.hypot(away[:, 0], away[:, 1]) <= options.stay_m]
    if not len(rows):
        rows = np.arange(phase.first, phase.last + 1)
    variance = np.maximum(np.array(track.variances)[rows], 1e-6)
    weights = 1.0 / variance
    weights /= weights.sum()
    # Errors of one track are correlated, so the mean is no better than the best observation.
    sigma2 = max(options.sigma_m**2, float(variance.min()))
    return {
        "kind": "object",
        "position": tuple((weights @ boxes[rows, :3]).tolist()),
        "yaw": _heading(boxes[rows, 6], weights),
        "covariance": np.eye(3) * sigma2,
        "caption": f"{_noun(track)} that stood for {took_s:.0f} s",
        "payload": {"size_m": _size(boxes[rows])},
    }


def _way(
    track: TrackSamples,
    phase: Phase,
    times: NDArray[np.int64],
    boxes: NDArray[np.float64],
    took_s: float,
    options: TrackOptions,
) -> dict[str, Any]:
    rows = np.arange(phase.first, phase.last + 1)
    few = rows[np.unique(np.linspace(0, len(rows) - 1, min(MOST_POINTS, len(rows))).round().astype(np.int64))]
    places = boxes[few, :3]
    trajectory = Trajectory(times[few], places[:, :2])
    payload = {
        "size_m": _size(boxes[rows]),
        "from": np.round(places[0], 2).tolist(),
        "to": np.round(places[-1], 2).tolist(),
        **trajectory_payload(trajectory, float(boxes[phase.last, 6])),
    }
    return {
        "kind": "event",
        "position": tuple(places[-1].tolist()),
        "yaw": float(boxes[phase.last, 6]),
        "covariance": np.eye(3) * options.sigma_m**2,
        "caption": motion_caption(track.label, payload),
        "payload": payload,
    }


def _noun(track: TrackSamples) -> str:
    return track.label.lower() or "thing"


def _size(boxes: NDArray[np.float64]) -> list[float]:
    return [round(float(value), 2) for value in np.median(boxes[:, 3:6], axis=0)]


def _heading(yaw: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the mean direction when some are reversed: along the common line, as most of them."""
    line = 0.5 * math.atan2(float(weights @ np.sin(2 * yaw)), float(weights @ np.cos(2 * yaw)))
    ahead = float(weights @ np.cos(yaw - line)) >= 0.0
    found = line if ahead else line + math.pi
    return math.atan2(math.sin(found), math.cos(found))
