"""Prediction of tracks to the time at which somebody reads them.

A scan is old when its boxes are ready: by the time of the detector, and longer if the computer is busy. The
prediction moves every object by its velocity and the sensor by its last motion. Model and noise are those of
:mod:`perception.track.filter`, so the covariance grows with the time ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perception.rigid_motion import checked_pose, inverse
from perception.track.filter import predict
from perception.track.poses import SensorPath, moved_boxes
from perception.track.state import BOX, NUMBERS, SPREAD, VELOCITY, Float64Array
from perception.track.tracks import Tracks, covariances


@dataclass(frozen=True, eq=False)
class TrackPredictor:
    """The tracks of one frame with the data to predict them; it stays the same while the tracker continues.

    >>> predictor = tracker.predictor()
    >>> predictor.predict(predictor.time_ns + 84_000_000).map_boxes

    Attributes:
        tracks: reported tracks of the frame.
        time_ns: time of the frame, counted from 0 if no time was given.
        path: trajectory of the sensor up to the frame.
        density: (M,) spectral density of the acceleration of each track, m^2/s^3.
        lasting_s: (M,) horizon of each track: longest time after its last box, seconds.
        moving_m_s: (M,) least speed at which an object is taken for a moving one, if there are poses.
    """

    tracks: Tracks
    time_ns: int
    path: SensorPath
    density: Float64Array
    lasting_s: Float64Array
    moving_m_s: Float64Array

    def predict(self, time_ns: int, *, pose: Any = None) -> Tracks:
        """Return the tracks at a later time.

        Boxes are in the sensor frame of that time, and ``covariance`` has grown. Tracks end at the same age
        as in the tracker, by default one second after the last box. Ended tracks are left out with a warning,
        because their objects may be anywhere.

        Args:
            time_ns: time of the prediction, on the clock of the frames.
            pose: (4, 4) map_from_lidar at that time. By default the sensor continues its last motion.

        Raises:
            ValueError: the time is before the frame, or the pose is not a rigid motion or has no map.
        """
        ahead_s = (time_ns - self.time_ns) * 1e-9
        if ahead_s < 0:
            raise ValueError(
                f"time_ns {time_ns} is {-ahead_s:.3f} s before the last frame. Pass a later time of the"
                " frames' clock"
            )
        if pose is not None and not self.path.given:
            raise ValueError("the tracker has no poses, so it has no map for this pose. Pass poses to update")
        there = self.path.expected(ahead_s) if pose is None else checked_pose(pose)
        missed_s = self.tracks.missed_s + np.float32(ahead_s)
        known = missed_s <= self.lasting_s + 1e-6
        tracks = self.tracks[known]
        numbers = np.zeros((len(tracks), NUMBERS))
        numbers[:, BOX] = moved_boxes(tracks.boxes.astype(np.float64), tracks.pose)
        numbers[:, VELOCITY] = tracks.velocity
        if self.path.given:
            # Slow objects are parked more often than not, and their velocity is noise.
            slow = (tracks.velocity[:, :2] ** 2).sum(1) < self.moving_m_s[known] ** 2
            numbers[slow, VELOCITY] = 0.0
        numbers[:, SPREAD] = tracks.covariance[:, [0, 0, 3], [0, 3, 3]]
        predict(numbers, ahead_s, self.density[known], np.zeros(len(tracks)))
        warnings = tracks.warnings
        if not known.all():
            warnings += (
                f"{int((~known).sum())} tracks are not predicted: their last box is too old"
                f" ({ahead_s:.2f} s after the scan).",
            )
        return replace(
            tracks,
            boxes=moved_boxes(numbers[:, BOX], inverse(there)).astype(np.float32),
            covariance=covariances(numbers[:, SPREAD]),
            missed_s=missed_s[known],
            pose=there,
            timestamp_ns=None if tracks.timestamp_ns is None else time_ns,
            warnings=warnings,
        )
