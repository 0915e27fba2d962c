"""The tracker: a frame's boxes in, identities and speeds out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.track.association import Pairs, assign, distance_cost, near_pairs
from perception.track.config import Parameters, TrackerConfig
from perception.track.filter import correct, predict
from perception.track.lifecycle import (
    Waiting,
    begun,
    come_back,
    mean_direction,
    told_tracks,
    unseen,
    usual_velocity,
)
from perception.track.odds import log_odds
from perception.track.poses import SensorPath, inverse, move_tracks, moved_boxes
from perception.track.state import (
    BOX,
    HITS,
    LABEL,
    MISSES,
    ROW,
    SCORE,
    SCORE_SUM,
    SEEN_NS,
    TOLD,
    TRACK_ID,
    BoolArray,
    Float64Array,
    Int64Array,
    TrackState,
)
from perception.track.tracks import Tracks, tracks_of
from perception.types import Detections

#: An unseen thing must lie so far within the bearings that boxes were seen at, in radians.
_MARGIN_RAD = 0.03
#: However slow the frames, a thing may be missed in three of them, a little late; slower than 1 Hz no longer.
_FRAMES_MISSED, _SLOWEST_S = 3.1, 1.0
#: Frames so far apart, in seconds, leave things time to change their speed.
_SLOW_FRAMES_S = 0.25
_NONE: Int64Array = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class TrackerBoxes:
    """The boxes of a frame that are looked at.

    Attributes:
        map_boxes: (M, 7) float64.
        score: (M,) float64 log-odds.
        labels: (M,) int64 numbers of classes.
        row: (M,) int64 of the detections.
        embeddings: (M, 128) float32, or None.
    """

    map_boxes: Float64Array
    score: Float64Array
    labels: Int64Array
    row: Int64Array
    embeddings: npt.NDArray[np.float32] | None


@dataclass(frozen=True, eq=False)
class Sightings:
    """Which boxes of a frame belong to which track, told or not: what recordings are mended from.

    Attributes:
        track_id: (S,) int64.
        boxes: of the frame.
        which: (S,) rows of ``boxes``.
        hits, mean_score: (S,) of the track so far.
        pose: (4, 4) map_from_lidar.
        time_ns: of the frame, counted from 0 where no time was given.
        stamped: the time was given.
        seconds: since the last one.
        shift: what the map was moved by before this frame, or None.
        warnings: of this frame.
        detections: of this frame.
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
    """Follows things through the frames of one sensor, as they come.

    >>> tracker = Tracker()
    >>> for detections, pose, time_ns in drive:
    ...     tracks = tracker.update(detections, pose=pose, time_ns=time_ns)
    ...     tracks.track_id, tracks.boxes, tracks.velocity

    The same frames give the same tracks, to the bit. :mod:`perception.track.keeping` saves a tracker between
    frames; :func:`~perception.track.track_recording` also gives tracks that know what came later.

    Args:
        config: what to expect of things; by default for scores that are probabilities.
    """

    def __init__(self, config: TrackerConfig | None = None) -> None:
        self.config = TrackerConfig() if config is None else config
        self.parameters = Parameters(self.config)
        self.state = TrackState.of(0)
        self.waiting = Waiting()
        self.path = SensorPath()
        self.next_id = 1
        self.time_ns: int | None = None
        #: The least time between two frames so far, seconds; 0 before the second.
        self.interval_s = 0.0
        #: Bearings between which boxes were seen, radians in the frame of the sensor.
        self.sector = (0.0, 0.0)

    def update(self, detections: Detections, *, pose: Any = None, time_ns: int | None = None) -> Tracks:
        """The tracks after a frame.

        Args:
            detections: of the frame; boxes that are not finite are passed over, with a warning.
            pose: (4, 4) map_from_lidar. Without, velocities are relative to the sensor.
            time_ns: of the frame; None is that of the detections, or ``frame_s`` after the last frame.
                The same time again is another look at the same moment.

        Raises:
            ValueError: time goes backwards, or the pose is no rigid motion; nothing has changed then.
        """
        return self._tell(self.observe(detections, pose=pose, time_ns=time_ns))

    def observe(self, detections: Detections, *, pose: Any = None, time_ns: int | None = None) -> Sightings:
        """:meth:`update`, giving which boxes belong to which track in place of what is told of them."""
        stamp = detections.timestamp_ns if time_ns is None else time_ns
        now_ns, seconds = self._clock(stamp)
        placed = self.path.place(pose, seconds)
        self.time_ns = now_ns
        boxes, warnings = self._boxes(detections, placed.pose)
        if placed.warning is not None:
            warnings += (placed.warning,)
        if placed.shift is not None:
            move_tracks(self.state.numbers, placed.shift)
            move_tracks(self.waiting.state.numbers, placed.shift)
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
        return Sightings(
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
        """The time of this frame, and seconds since the last one."""
        if self.time_ns is None:
            return (0 if time_ns is None else int(time_ns)), 0.0
        now_ns = self.time_ns + round(self.config.frame_s * 1e9) if time_ns is None else int(time_ns)
        if now_ns < self.time_ns:
            raise ValueError(
                f"time_ns must not go backwards: {now_ns} is {(self.time_ns - now_ns) * 1e-9:.3f} s before"
                " the last frame; bring frames in order, or start a new Tracker for another recording"
            )
        return now_ns, (now_ns - self.time_ns) * 1e-9

    def _boxes(self, detections: Detections, pose: Float64Array) -> tuple[TrackerBoxes, tuple[str, ...]]:
        labels = self.parameters.numbers_of(detections.labels)
        score = log_odds(detections.scores)
        rows = detections.boxes.astype(np.float64).reshape(-1, 7)
        finite = np.isfinite(rows).all(axis=1) & np.isfinite(score) & (rows[:, 3:6] >= 0).all(axis=1)
        wrong = len(rows) - int(finite.sum())
        told = (f"{wrong} boxes that are not finite or have negative sizes are passed over",) if wrong else ()
        fine = np.flatnonzero(finite & (score >= self.parameters.column("low_score")[labels]))
        vectors = None if detections.embeddings is None else detections.embeddings[fine]
        return TrackerBoxes(moved_boxes(rows[fine], pose), score[fine], labels[fine], fine, vectors), told

    def _associate(self, boxes: TrackerBoxes) -> Pairs:
        """First the boxes that are sure, then the others with the tracks that are left (ByteTrack's way)."""
        sure = boxes.score >= self.parameters.column("high_score")[boxes.labels]
        first = self._match(boxes, np.flatnonzero(sure), np.arange(len(self.state)))
        if sure.all():
            return first
        free = np.ones(len(self.state), np.bool_)
        free[first.track] = False
        second = self._match(boxes, np.flatnonzero(~sure), np.flatnonzero(free))
        return Pairs(np.concatenate([first.track, second.track]), np.concatenate([first.box, second.box]))

    def _match(self, boxes: TrackerBoxes, which: Int64Array, tracks: Int64Array) -> Pairs:
        """Some tracks and some boxes of their classes, assigned."""
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
        # Seen once a thing has no speed, and between slow frames another one: only its gate bounds it.
        unsure = (self.state.counts[tracks[track], HITS] < 2) | (self.interval_s > _SLOW_FRAMES_S)
        alone = np.maximum(column("alone_cost")[kind], np.where(unsure, 1.0, 0.0))
        chosen = assign(Pairs(track, box), cost, len(tracks), len(which), alone=alone)
        return Pairs(tracks[chosen.track], which[chosen.box])

    def _correct(self, pairs: Pairs, boxes: TrackerBoxes, *, later: bool) -> None:
        unseen(self.state, pairs.track, later=later)
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
        velocity = np.zeros(3) if self.path.given else usual_velocity(self.state)
        new = begun(
            self.parameters,
            boxes.map_boxes[free],
            boxes.score[free],
            boxes.labels[free],
            velocity,
            self.next_id,
        )
        new.counts[:, SEEN_NS] = self._now_ns
        new.counts[:, ROW] = boxes.row[free]
        self.next_id += len(new)
        if boxes.embeddings is not None:
            new.embeddings[:] = boxes.embeddings[free]
            come_back(new, *self.waiting.back(self.parameters, new, self._now_ns))
        self.state = self.state.joined(new)

    def _end(self) -> None:
        forget_s = self.parameters.column("forget_s")[self.state.counts[:, LABEL]]
        longest_s = np.maximum(forget_s, _FRAMES_MISSED * self.interval_s)
        kept = self._missed_s(self.state) <= longest_s + 1e-6
        if not kept.all():
            self.waiting.add(self.state.take(~kept))
            self.state = self.state.take(kept)

    @property
    def _now_ns(self) -> int:
        assert self.time_ns is not None
        return self.time_ns

    def _missed_s(self, state: TrackState) -> Float64Array:
        return np.asarray((self._now_ns - state.counts[:, SEEN_NS]) * 1e-9)

    def _tell(self, seen: Sightings) -> Tracks:
        state = self.state
        boxes = moved_boxes(state.numbers[:, BOX], inverse(seen.pose))
        range_m = np.sqrt((boxes[:, :2] ** 2).sum(1))
        missed_s = self._missed_s(state)
        inside = self._inside(boxes, state.counts[:, MISSES] == 0)
        told = told_tracks(self.parameters, state, range_m, inside, missed_s)
        state.counts[told, TOLD] = 1
        # Of what is seen the score of its box: who takes the mean over a track would count its first boxes
        # many times in means so far.
        mean = state.numbers[told, SCORE_SUM] / state.counts[told, HITS]
        odds = np.where(state.counts[told, MISSES] == 0, state.numbers[told, SCORE], mean)
        order = np.lexsort((state.counts[told, TRACK_ID], -odds))
        rows = np.flatnonzero(told)[order]
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
        """Which boxes lie at bearings that the sensor, or what cuts its scans, lets things be seen at."""
        bearing = np.arctan2(boxes[:, 1], boxes[:, 0])
        if seen.any():
            low, high = self.sector
            self.sector = min(low, float(bearing[seen].min())), max(high, float(bearing[seen].max()))
        return (bearing > self.sector[0] + _MARGIN_RAD) & (bearing < self.sector[1] - _MARGIN_RAD)
