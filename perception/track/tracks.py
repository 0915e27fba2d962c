"""The result of tracking: detections with identity, velocity and history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from perception.track.config import Parameters
from perception.track.odds import probability
from perception.track.poses import moved_boxes
from perception.track.state import HITS, LABEL, ROW, SPREAD, TRACK_ID, VELOCITY, Float64Array, TrackState
from perception.types import Detection, Detections, FloatArray, RowChoice


@dataclass(frozen=True, eq=False, kw_only=True)
class Tracks(Detections):
    """The tracked objects of one moment, most confident first, with everything that :class:`Detections`
    offers.

    >>> moving = tracks[tracks.moving]
    >>> for box, score, label in tracks: ...

    ``boxes`` are in the sensor frame and smoothed by the filter. ``scores`` of seen objects are those of
    their boxes; those of unseen objects are means over the track. Delayed and global tracks use means over
    one second before and after. ``velocity`` and ``covariance`` are over ground, in map axes. Without poses,
    they are relative to the sensor, in its axes.

    Attributes:
        track_id: (M,) int64, from 1, constant for an object and never reused.
        velocity: (M, 3) float32, m/s, in the map.
        covariance: (M, 6, 6) float32 of centre and velocity, metres and seconds, in the map.
        moving: (M,) bool, True if the speed clearly exceeds its uncertainty.
        hits: (M,) int64 number of boxes of the track so far.
        missed_s: (M,) float32 seconds since the last box; 0 if seen now.
        row: (M,) int64 row of the detection, or -1 if unseen.
        pose: (4, 4) float64 map_from_lidar that was used.
    """

    track_id: npt.NDArray[np.int64]
    velocity: FloatArray
    covariance: FloatArray
    moving: npt.NDArray[np.bool_]
    hits: npt.NDArray[np.int64]
    missed_s: FloatArray
    row: npt.NDArray[np.int64]
    pose: npt.NDArray[np.float64]

    @overload
    def __getitem__(self, which: int) -> Detection: ...
    @overload
    def __getitem__(self, which: slice | Sequence[int] | Sequence[bool] | RowChoice) -> Tracks: ...
    def __getitem__(
        self, which: int | slice | Sequence[int] | Sequence[bool] | RowChoice
    ) -> Detection | Tracks:
        """Return one detection by number, or the tracks of a slice, numbers or a mask."""
        if isinstance(which, int | np.integer):
            return super().__getitem__(int(which))
        if not isinstance(which, slice) and len(which) == 0:
            which = slice(0, 0)
        rows = np.arange(len(self))[which]
        columns: dict[str, Any] = {
            item.name: getattr(self, item.name)[rows]
            for item in fields(self)
            if isinstance(getattr(self, item.name), np.ndarray) and item.name != "pose"
        }
        return replace(self, labels=[self.labels[row] for row in rows], **columns)

    @property
    def map_boxes(self) -> FloatArray:
        """(M, 7) float32 boxes in the map."""
        return moved_boxes(self.boxes.astype(np.float64), self.pose).astype(np.float32)

    def radius_m(self, share: float = 0.9) -> FloatArray:
        """Return the (M,) radius on the ground that holds the true centre with this probability, metres.

        Raises:
            ValueError: the share is not between 0 and 1.
        """
        if not 0 < share < 1:
            raise ValueError(f"share must be between 0 and 1, got {share}")
        # The variance is the same along all axes, so the ellipse of a Gaussian is a circle.
        return np.asarray(np.sqrt(-2.0 * np.log1p(-share) * self.covariance[:, 0, 0]), np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: a record of ``detections.jsonl`` with identities and velocities."""
        return super().to_dict() | {
            "track_id": self.track_id.tolist(),
            "velocity": [[round(float(value), 4) for value in row] for row in self.velocity],
            "moving": self.moving.tolist(),
            "hits": self.hits.tolist(),
            "missed_s": [round(float(value), 4) for value in self.missed_s],
        }


def tracks_of(
    state: TrackState,
    boxes: Float64Array,
    odds: Float64Array,
    missed_s: Float64Array,
    *,
    parameters: Parameters,
    pose: Float64Array,
    time_ns: int | None,
    warnings: tuple[str, ...],
    detections: Detections,
) -> Tracks:
    """Return tracks from rows of the state.

    Args:
        state: rows to report, most confident first.
        boxes: (M, 7) in the sensor frame.
        odds: (M,) log-odds, converted to scores.
        missed_s: (M,) since the last box.
        parameters: of the classes.
        pose: (4, 4) of the sensor.
        time_ns: of the frame.
        warnings: of the frame, appended to those of the detections.
        detections: of the frame.
    """
    numbers, counts = state.numbers, state.counts
    labels = counts[:, LABEL]
    vectors = None if detections.embeddings is None or not state.embeddings.any(1).all() else state.embeddings
    return Tracks(
        boxes=boxes.astype(np.float32),
        scores=probability(odds).astype(np.float32),
        labels=[parameters.names[label] for label in labels.tolist()],
        timestamp_ns=time_ns,
        source=detections.source,
        warnings=(*detections.warnings, *warnings),
        embeddings=vectors,
        classes=detections.classes,
        track_id=counts[:, TRACK_ID],
        velocity=numbers[:, VELOCITY].astype(np.float32),
        covariance=covariances(numbers[:, SPREAD]),
        moving=moving(numbers[:, VELOCITY], numbers[:, SPREAD], parameters.column("moving_m_s")[labels]),
        hits=counts[:, HITS],
        missed_s=missed_s.astype(np.float32),
        row=counts[:, ROW],
        pose=pose,
    )


def covariances(spread: Float64Array) -> FloatArray:
    """Return (M, 6, 6) float32 covariances from the (M, 3) entries that all axes share."""
    found = np.zeros((len(spread), 6, 6), np.float32)
    axis = np.arange(3)
    found[:, axis, axis] = spread[:, :1]
    found[:, axis + 3, axis + 3] = spread[:, 2:]
    found[:, axis, axis + 3] = found[:, axis + 3, axis] = spread[:, 1:2]
    return found


def moving(velocity: Float64Array, spread: Float64Array, least_m_s: Float64Array) -> npt.NDArray[np.bool_]:
    """Return an (M,) mask: speed at least the limit and at least three standard deviations."""
    squared = (velocity[:, :2] ** 2).sum(1)
    return np.asarray((squared >= least_m_s**2) & (squared >= 9.0 * spread[:, 2]))
