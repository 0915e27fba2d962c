"""A constant-velocity tracker like AB3DMOT, one filter object per track: the other side of `tracking`.

Weng et al. (IROS 2020): match boxes by 3D overlap with the Hungarian method, report a track after three
boxes, and end it after two frames without one. The score is that of the last box.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from perception.boxes import rotated_iou_3d
from perception.types import Detections

_FIRST_HITS, _MOST_MISSES, _LEAST_OVERLAP = 3, 2, 0.01
Float64Array = npt.NDArray[np.float64]


def _model() -> tuple[Float64Array, Float64Array, Float64Array]:
    move = np.eye(10)
    move[:3, 7:] = np.eye(3)
    start = np.diag([10.0] * 7 + [10_000.0] * 3)
    noise = np.diag([1.0] * 7 + [0.01] * 3)
    return move, start, noise


_MOVE, _START, _NOISE = _model()


@dataclass
class _Track:
    """A box (x, y, z, length, width, height, yaw), its velocity a frame, and their covariance."""

    identity: int
    label: str
    state: Float64Array
    row: int
    score: float
    spread: Float64Array = field(default_factory=_START.copy)
    hits: int = 1
    misses: int = 0

    def predict(self) -> None:
        self.state = _MOVE @ self.state
        self.spread = _MOVE @ self.spread @ _MOVE.T + _NOISE
        self.misses += 1
        self.row = -1

    def correct(self, box: Float64Array, row: int, score: float) -> None:
        off = box - self.state[:7]
        off[6] = (off[6] + np.pi / 2) % np.pi - np.pi / 2
        gain = self.spread[:, :7] @ np.linalg.inv(self.spread[:7, :7] + np.eye(7))
        self.state = self.state + gain @ off
        self.spread = self.spread - gain @ self.spread[:7]
        self.hits, self.misses, self.row, self.score = self.hits + 1, 0, row, score


@dataclass(frozen=True, eq=False)
class BaselineTracks:
    """Tracks of a frame, in the sensor frame."""

    track_id: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    labels: list[str]


class Baseline:
    """Follows boxes in the frame of the sensor."""

    def __init__(self) -> None:
        self._tracks: list[_Track] = []
        self._next, self._frames = 1, 0

    def update(self, detections: Detections) -> BaselineTracks:
        """The tracks after a frame."""
        self._frames += 1
        for track in self._tracks:
            track.predict()
        boxes = detections.boxes.astype(np.float64)
        expected = np.array([track.state[:7] for track in self._tracks]).reshape(-1, 7)
        expected[:, 3:6] = np.maximum(expected[:, 3:6], 0.0)
        overlap = np.asarray(rotated_iou_3d(expected, boxes))
        kinds = np.array([[track.label == label for label in detections.labels] for track in self._tracks])
        overlap = np.where(kinds.reshape(overlap.shape), overlap, 0.0)
        free = set(range(len(boxes)))
        for row, column in zip(*linear_sum_assignment(-overlap), strict=True):
            if overlap[row, column] >= _LEAST_OVERLAP:
                self._tracks[row].correct(boxes[column], int(column), float(detections.scores[column]))
                free.discard(int(column))
        for column in sorted(free):
            state = np.concatenate([boxes[column], np.zeros(3)])
            score = float(detections.scores[column])
            self._tracks.append(_Track(self._next, detections.labels[column], state, column, score))
            self._next += 1
        told = [
            track
            for track in self._tracks
            if track.misses < _MOST_MISSES and (track.hits >= _FIRST_HITS or self._frames <= _FIRST_HITS)
        ]
        self._tracks = [track for track in self._tracks if track.misses < _MOST_MISSES]
        return BaselineTracks(
            np.array([track.identity for track in told], np.int64),
            np.array([track.state[:7] for track in told], np.float32).reshape(-1, 7),
            np.array([track.score for track in told], np.float32),
            [track.label for track in told],
        )
