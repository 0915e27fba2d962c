"""The tracker: detections of a frame in, identities and velocities out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.rigid_motion import inverse
from perception.track.association import Pairs, assign, distance_cost, near_pairs
from perception.track.config import Parameters, TrackerConfig
from perception.track.filter import correct, correct_velocity, predict
from perception.track.lifecycle import (
    LostTracks,
    count_misses,
    mean_direction,
    median_velocity,
    new_tracks,
    reported_tracks,
    restore_tracks,
)
from perception.track.odds import log_odds
from perception.track.poses import SensorPath, move_tracks, moved_boxes
from perception.track.prediction import TrackPredictor
from perception.track.state import (
    BOX,
    HITS,
    LABEL,
    MISSES,
    REPORTED,
    ROW,
    SCORE,
    SCORE_SUM,
    SEEN_NS,
    TRACK_ID,
    BoolArray,
    Float64Array,
    Int64Array,
    TrackState,
)
from perception.track.tracks import Tracks, tracks_of
from perception.types import Detections

#: Margin of unseen objects inside the observed range of bearings, in radians.
_MARGIN_RAD = 0.03
#: A track survives three missed frames plus jitter, at frame rates down to 1 Hz.
_FRAMES_MISSED, _SLOWEST_S = 3.1, 1.0
#: Between frames this far apart, objects can change their speed.
_SLOW_FRAMES_S = 0.25
_NONE: Int64Array = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class TrackerBoxes:
    """The boxes of a frame that enter the tracker.

    Attributes:
        map_boxes: (M, 7) float64.
        score: (M,) float64 log-odds.
        labels: (M,) int64 class numbers.
        row: (M,) int64 rows of the detections.
        embeddings: (M, 128) float32, or None.
        velocities: (M, 3) float64 in the map, m/s, NaN where unknown; None without poses or estimates.
    """

    map_boxes: Float64Array
    score: Float64Array
    labels: Int64Array
    row: Int64Array
    embeddings: npt.NDArray[np.float32] | None
    velocities: Float64Array | None = None


@dataclass(frozen=True, eq=False)
class FrameAssignment:
    """Boxes of a frame with their tracks, reported or not: the input of :mod:`perception.track.refinement`.

    Attributes:
        track_id: (S,) int64.
        boxes: of the frame.
        which: (S,) rows of ``boxes``.
        hits, mean_score: (S,) of the track so far.
        pose: (4, 4) map_from_lidar.
        time_ns: of the frame, counted from 0 if no time was given.
        stamped: True if the time was given.
        seconds: since the last frame.
        shift: transform of the map before this frame, or None.
        warnings, detections: of this frame.
    """

    track_id: Int64Array
    boxes: TrackerBoxes
    which: Int64Array
    hits: Int64Array
    mean_score: Float64Array
    pose: Float64Array
    time_ns: int
    stamped: bool
    seconds: float
    shift: Float64Array | None
    warnings: tuple[str, ...]
    detections: Detections


class Tracker:
    """Tracker of objects through the frames of one sensor.

    >>> tracker = Tracker()
    >>> for detections, pose, time_ns in drive:
    ...     tracks = tracker.update(detections, pose=pose, time_ns=time_ns)
    ...     tracks.track_id, tracks.boxes, tracks.velocity

    Results are deterministic, bit for bit. :mod:`perception.track.persistence` saves a tracker between
    frames; :func:`~perception.track.track_recording` also uses later frames.

    Args:
        config: expected motion and noise per class; by default for scores that are probabilities.
    """

    def __init__(self, config: TrackerConfig | None = None) -> None:
        self.config = TrackerConfig() if config is None else config
        self.parameters = Parameters(self.config)
        self.state = TrackState.of(0)
        self.lost = LostTracks()
        self.path = SensorPath()
        self.next_id = 1
        self.time_ns: int | None = None
        #: Shortest time between two frames so far, seconds; 0 before the second.
        self.interval_s = 0.0
        #: Range of bearings where boxes were seen, radians in the sensor frame.
        self.sector = (0.0, 0.0)
        self._reported: Tracks | None = None

    def update(self, detections: Detections, *, pose: Any = None, time_ns: int | None = None) -> Tracks:
        """Update the tracks with a frame and return them.

        Args:
            detections: of the frame. Boxes that are not finite are skipped with a warning. With poses,
                ``velocities`` of the detector start the velocity of a track and update it.
            pose: (4, 4) map_from_lidar. Without it, velocities are relative to the sensor.
            time_ns: of the frame; by default that of the detections, or ``frame_s`` after the last frame. The
                same time again is a second look at the same moment.

        Raises:
            ValueError: time goes backwards, or the pose is not a rigid motion. The tracker is unchanged then.
        """
        self._reported = self._report(self.observe(detections, pose=pose, time_ns=time_ns))
        return self._reported

    def predict(self, time_ns: int, *, pose: Any = None) -> Tracks:
        """Return the tracks of the last :meth:`update`, predicted to a later time; the tracker is unchanged.

        Arguments and errors are those of :meth:`TrackPredictor.predict`.
        """
        return self.predictor().predict(time_ns, pose=pose)

    def predictor(self) -> TrackPredictor:
        """Return the tracks of the last :meth:`update` with what predicts them, for use in another thread.

        Raises:
            ValueError: there was no update yet, or none since the tracker was loaded.
        """
        if self._reported is None:
            raise ValueError("the tracker has no tracks to predict yet. Call update first")
        labels = self.parameters.numbers_of(self._reported.labels)
        return TrackPredictor(
            self._reported,
            self._now_ns,
            replace(self.path),
            self.parameters.density[labels],
            self._longest_s(labels),
            self.parameters.column("moving_m_s")[labels],
        )

    def observe(
        self, detections: Detections, *, pose: Any = None, time_ns: int | None = None
    ) -> FrameAssignment:
        """Update the tracks like :meth:`update`, but return the boxes of each track instead of a report."""
        stamp = detections.timestamp_ns if time_ns is None else time_ns
        now_ns, seconds = self._clock(stamp)
        placed = self.path.place(pose, seconds)
        self.time_ns = now_ns
        boxes, warnings = self._boxes(detections, placed.pose)
        if placed.warning is not None:
            warnings += (placed.warning,)
        if placed.shift is not None:
            move_tracks(self.state.numbers, placed.shift)
            move_tracks(self.lost.state.numbers, placed.shift)
        if seconds > 0:
            self.interval_s = min(seconds, self.interval_s or _SLOWEST_S)
        self._end()
        labels = self.state.counts[:, LABEL]
        if seconds > 0:
            predict(
                self.state.numbers, seconds, self.parameters.density[labels], self.parameters.turning[labels]
            )
        pairs = self._associate(boxes)
        self._correct(pairs, boxes, later=seconds > 0)
        self._begin(pairs, boxes)
        seen = np.flatnonzero(self.state.counts[:, ROW] >= 0)
        counts = self.state.counts[seen]
        return FrameAssignment(
            counts[:, TRACK_ID],
            boxes,
            np.searchsorted(boxes.row, counts[:, ROW]),
            counts[:, HITS],
            self.state.numbers[seen, SCORE_SUM] / counts[:, HITS],
            placed.pose,
            now_ns,
            stamp is not None,
            seconds,
            placed.shift,
            warnings,
            detections,
        )

    def _clock(self, time_ns: int | None) -> tuple[int, float]:
        """Return the time of this frame, and the seconds since the last one."""
        if self.time_ns is None:
            return (0 if time_ns is None else int(time_ns)), 0.0
        now_ns = self.time_ns + round(self.config.frame_s * 1e9) if time_ns is None else int(time_ns)
        if now_ns < self.time_ns:
            raise ValueError(
                f"time_ns {now_ns} is {(self.time_ns - now_ns) * 1e-9:.3f} s before the last frame. Sort the"
                " frames by time, or start a new Tracker for another recording"
            )
        return now_ns, (now_ns - self.time_ns) * 1e-9

    def _boxes(self, detections: Detections, pose: Float64Array) -> tuple[TrackerBoxes, tuple[str, ...]]:
        labels = self.parameters.numbers_of(detections.labels)
        score = log_odds(detections.scores)
        rows = detections.boxes.astype(np.float64).reshape(-1, 7)
        finite = np.isfinite(rows).all(axis=1) & np.isfinite(score) & (rows[:, 3:6] >= 0).all(axis=1)
        wrong = len(rows) - int(finite.sum())
        warnings = (f"Skipped {wrong} boxes that are not finite or have a negative size.",) if wrong else ()
        fine = np.flatnonzero(finite & (score >= self.parameters.column("low_score")[labels]))
        vectors = None if detections.embeddings is None else detections.embeddings[fine]
        velocities = None
        # Without poses the map moves with the sensor, but estimates are over the ground.
        if detections.velocities is not None and self.path.given:
            velocities = detections.velocities[fine].astype(np.float64) @ pose[:3, :2].T
        moved = moved_boxes(rows[fine], pose)
        return TrackerBoxes(moved, score[fine], labels[fine], fine, vectors, velocities), warnings

    def _associate(self, boxes: TrackerBoxes) -> Pairs:
        """Match confident boxes first, then the others with the remaining tracks, as ByteTrack does."""
        sure = boxes.score >= self.parameters.column("high_score")[boxes.labels]
        first = self._match(boxes, np.flatnonzero(sure), np.arange(len(self.state)))
        if sure.all():
            return first
        free = np.ones(len(self.state), np.bool_)
        free[first.track] = False
        second = self._match(boxes, np.flatnonzero(~sure), np.flatnonzero(free))
        return Pairs(np.concatenate([first.track, second.track]), np.concatenate([first.box, second.box]))

    def _match(self, boxes: TrackerBoxes, which: Int64Array, tracks: Int64Array) -> Pairs:
        """Assign the given boxes to the given tracks of their classes."""
        if not len(which) or not len(tracks):
            return Pairs(_NONE, _NONE)
        column = self.parameters.column
        labels, expected = self.state.counts[tracks, LABEL], self.state.numbers[tracks, BOX]
        missed_s = self._missed_s(self.state)[tracks]
        gates = column("gate_m")[labels] + column("gate_growth_m_s")[labels] * np.maximum(
            0.0, missed_s - self.config.frame_s
        )
        found = boxes.map_boxes[which]
        pairs = near_pairs(expected[:, :2], found[:, :2], gates)
        same = labels[pairs.track] == boxes.labels[which[pairs.box]]
        track, box = pairs.track[same], pairs.box[same]
        kind = labels[track]
        cost = distance_cost(
            expected[track], found[box], gates[track], column("turn_cost")[kind], column("size_cost")[kind]
        )
        # Speed is unknown after one box, and unreliable between slow frames: only the gate bounds the object.
        unsure = (self.state.counts[tracks[track], HITS] < 2) | (self.interval_s > _SLOW_FRAMES_S)
        alone = np.maximum(column("alone_cost")[kind], np.where(unsure, 1.0, 0.0))
        chosen = assign(Pairs(track, box), cost, len(tracks), len(which), alone=alone)
        return Pairs(tracks[chosen.track], which[chosen.box])

    def _correct(self, pairs: Pairs, boxes: TrackerBoxes, *, later: bool) -> None:
        count_misses(self.state, pairs.track, later=later)
        track, box = pairs
        if not len(track):
            return
        kind, parameters = boxes.labels[box], self.parameters
        numbers = correct(
            self.state.numbers[track],
            boxes.map_boxes[box],
            parameters.noise[kind],
            parameters.yaw_noise[kind],
            parameters.column("size_memory")[kind],
        )
        if boxes.velocities is not None:
            numbers = correct_velocity(numbers, boxes.velocities[box], parameters.velocity_noise[kind])
        numbers[:, SCORE] = boxes.score[box]
        numbers[:, SCORE_SUM] += boxes.score[box]
        self.state.numbers[track] = numbers
        counts = self.state.counts[track]
        counts[:, HITS] += 1
        counts[:, MISSES] = 0
        counts[:, SEEN_NS] = self._now_ns
        counts[:, ROW] = boxes.row[box]
        self.state.counts[track] = counts
        if boxes.embeddings is not None:
            self.state.embeddings[track] = mean_direction(self.state.embeddings[track], boxes.embeddings[box])

    def _begin(self, pairs: Pairs, boxes: TrackerBoxes) -> None:
        free = boxes.score >= self.parameters.column("high_score")[boxes.labels]
        free[pairs.box] = False
        if not free.any():
            return
        velocity = np.zeros(3) if self.path.given else median_velocity(self.state)
        new = new_tracks(
            self.parameters,
            boxes.map_boxes[free],
            boxes.score[free],
            boxes.labels[free],
            velocity,
            self.next_id,
            None if boxes.velocities is None else boxes.velocities[free],
        )
        new.counts[:, SEEN_NS] = self._now_ns
        new.counts[:, ROW] = boxes.row[free]
        self.next_id += len(new)
        if boxes.embeddings is not None:
            new.embeddings[:] = boxes.embeddings[free]
            restore_tracks(new, *self.lost.match(self.parameters, new, self._now_ns))
        self.state = self.state.joined(new)

    def _end(self) -> None:
        kept = self._missed_s(self.state) <= self._longest_s(self.state.counts[:, LABEL]) + 1e-6
        if not kept.all():
            self.lost.add(self.state.take(~kept))
            self.state = self.state.take(kept)

    def _longest_s(self, labels: Int64Array) -> Float64Array:
        """Return the longest time without a box of tracks with these class numbers."""
        return np.maximum(self.parameters.column("forget_s")[labels], _FRAMES_MISSED * self.interval_s)

    @property
    def _now_ns(self) -> int:
        assert self.time_ns is not None
        return self.time_ns

    def _missed_s(self, state: TrackState) -> Float64Array:
        return np.asarray((self._now_ns - state.counts[:, SEEN_NS]) * 1e-9)

    def _report(self, seen: FrameAssignment) -> Tracks:
        state = self.state
        boxes = moved_boxes(state.numbers[:, BOX], inverse(seen.pose))
        range_m = np.sqrt((boxes[:, :2] ** 2).sum(1))
        missed_s = self._missed_s(state)
        inside = self._inside(boxes, state.counts[:, MISSES] == 0)
        reported = reported_tracks(self.parameters, state, range_m, inside, missed_s)
        state.counts[reported, REPORTED] = 1
        # Seen tracks carry the score of their box. A running mean would count early boxes repeatedly in
        # evaluations that average the scores of a track.
        mean = state.numbers[reported, SCORE_SUM] / state.counts[reported, HITS]
        odds = np.where(state.counts[reported, MISSES] == 0, state.numbers[reported, SCORE], mean)
        order = np.lexsort((state.counts[reported, TRACK_ID], -odds))
        rows = np.flatnonzero(reported)[order]
        return tracks_of(
            state.take(rows),
            boxes[rows],
            odds[order],
            missed_s[rows],
            parameters=self.parameters,
            pose=seen.pose,
            time_ns=seen.time_ns if seen.stamped else None,
            warnings=seen.warnings,
            detections=seen.detections,
        )

    def _inside(self, boxes: Float64Array, seen: BoolArray) -> BoolArray:
        """Mark boxes at bearings where the sensor, or a crop of its scans, has shown objects before."""
        bearing = np.arctan2(boxes[:, 1], boxes[:, 0])
        if seen.any():
            low, high = self.sector
            self.sector = min(low, float(bearing[seen].min())), max(high, float(bearing[seen].max()))
        return (bearing > self.sector[0] + _MARGIN_RAD) & (bearing < self.sector[1] - _MARGIN_RAD)
