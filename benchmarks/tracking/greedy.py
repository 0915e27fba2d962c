"""The other side on nuScenes: a greedy tracker of constant velocity, as CenterPoint has (Yin et al., 2021).

Boxes, by descending score, take the nearest track of their class within a distance. A track moves as its last
two boxes did (these boxes have no velocities) and ends after three frames without a box. Every box is
reported with its score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.tracking.baseline import Float64Array
from perception.track.poses import moved_boxes
from perception.track.recording import Moment
from perception.track.tracks import Tracks

#: CenterPoint's distances, metres in half a second.
GATES_M = {
    "car": 4.0, "truck": 4.0, "bus": 5.5, "trailer": 3.0, "pedestrian": 1.0, "motorcycle": 13.0,
    "bicycle": 3.0,
}  # fmt: skip
_MOST_MISSES = 3


@dataclass
class _Track:
    identity: int
    label: str
    place: Float64Array
    time_s: float
    speed: Float64Array
    misses: int = 0


class Greedy:
    """Follows boxes in the map."""

    def __init__(self) -> None:
        self._tracks: list[_Track] = []
        self._next = 1

    def update(self, moment: Moment) -> Tracks:
        """The tracks after a frame."""
        found = moment.detections
        boxes = moved_boxes(found.boxes.astype(np.float64), moment.pose)
        time_s = (moment.time_ns or 0) * 1e-9
        expected = np.array([
            track.place + track.speed * (time_s - track.time_s) for track in self._tracks
        ]).reshape(-1, 2)  # fmt: skip
        free = np.ones(len(self._tracks), np.bool_)
        kinds = np.array([track.label for track in self._tracks], np.str_)
        identities = np.zeros(len(found), np.int64)
        new = []
        for row in np.argsort(-found.scores, kind="stable").tolist():
            label, place = found.labels[row], boxes[row, :2]
            distance = np.where(free & (kinds == label), np.hypot(*(expected - place).T), np.inf)
            at = int(distance.argmin()) if len(distance) else -1
            if at >= 0 and distance[at] <= GATES_M[label]:
                track = self._tracks[at]
                passed = time_s - track.time_s
                track.speed = (place - track.place) / passed if passed > 0 else track.speed
                track.place, track.time_s, track.misses = place, time_s, -1
                free[at] = False
            else:
                track = _Track(self._next, label, place, time_s, np.zeros(2), -1)
                self._next += 1
                new.append(track)
            identities[row] = track.identity
        for track in [*self._tracks, *new]:
            track.misses += 1
        self._tracks = [track for track in [*self._tracks, *new] if track.misses <= _MOST_MISSES]
        count = len(found)
        return Tracks(
            boxes=found.boxes,
            scores=found.scores,
            labels=found.labels,
            track_id=identities,
            velocity=np.zeros((count, 3), np.float32),
            covariance=np.zeros((count, 6, 6), np.float32),
            moving=np.zeros(count, np.bool_),
            hits=np.ones(count, np.int64),
            missed_s=np.zeros(count, np.float32),
            row=np.arange(count),
            pose=np.asarray(moment.pose),
        )
