"""Sensor poses per frame: given, missing, or jumping."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from perception.rigid_motion import checked_pose, inverse, jumps
from perception.track.filter import wrapped
from perception.track.state import CENTRE, VELOCITY, YAW, Float64Array


class FramePose(NamedTuple):
    """The pose of a frame, (4, 4) float64 map_from_lidar.

    Attributes:
        pose: pose to use.
        shift: (4, 4) transform of all tracks when the map restarts; else None.
        warning: message for the user; else None.
    """

    pose: Float64Array
    shift: Float64Array | None = None
    warning: str | None = None


@dataclass
class SensorPath:
    """The sensor's trajectory so far.

    Attributes:
        pose: (4, 4) of the last frame; None before the first.
        motion: (4, 4) motion over the last frame.
        seconds: duration of that motion.
        given: True if a pose was given so far.
    """

    pose: Float64Array | None = None
    motion: Float64Array = field(default_factory=lambda: np.eye(4))
    seconds: float = 0.0
    given: bool = False

    def place(self, pose: Any, seconds: float) -> FramePose:
        """Return the pose of the next frame.

        Without any pose, the map is the sensor frame. If poses stop, the last motion is continued. If they
        jump, or start late, tracks keep their position relative to the sensor.

        Args:
            pose: (4, 4) map_from_lidar, or None.
            seconds: since the last frame.

        Raises:
            ValueError: the pose is not a rigid motion.
        """
        given = None if pose is None else checked_pose(pose)
        if self.pose is None:
            placed = FramePose(np.eye(4) if given is None else given)
        elif given is None:
            warning = (
                "This frame has no pose; continuing the last motion of the sensor." if self.given else None
            )
            placed = FramePose(self.expected(seconds), warning=warning)
        elif not self.given or jumps(self.pose, given, seconds):
            shift = given @ inverse(self.expected(seconds))
            event = "The pose jumped" if self.given else "Poses start at this frame"
            placed = FramePose(given, shift, f"{event}; tracks keep their position relative to the sensor.")
        else:
            placed = FramePose(given)
        if self.pose is not None and placed.shift is None and given is not None and seconds > 0:
            self.motion, self.seconds = inverse(self.pose) @ given, seconds
        self.pose, self.given = placed.pose, self.given or given is not None
        return placed

    def expected(self, seconds: float) -> Float64Array:
        """Return the (4, 4) pose after some seconds of the last motion: its translation, and its rotation
        about z.
        """
        assert self.pose is not None
        if self.seconds == 0 or seconds == 0:
            return self.pose
        share = seconds / self.seconds
        step = np.eye(4)
        yaw = share * np.arctan2(self.motion[1, 0], self.motion[0, 0])
        step[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
        step[:3, 3] = share * self.motion[:3, 3]
        return self.pose @ step


def moved_boxes(boxes: Float64Array, transform: Float64Array) -> Float64Array:
    """Return (M, 7) boxes in another frame; headings turn about z only."""
    found = boxes.copy()
    found[:, :3] = boxes[:, :3] @ transform[:3, :3].T + transform[:3, 3]
    found[:, 6] = wrapped(boxes[:, 6] + np.arctan2(transform[1, 0], transform[0, 0]))
    return found


def move_tracks(numbers: Float64Array, transform: Float64Array) -> None:
    """Move tracks to another map, in place: (N, 18) of a :class:`~perception.track.state.TrackState`."""
    turn = transform[:3, :3]
    numbers[:, CENTRE] = numbers[:, CENTRE] @ turn.T + transform[:3, 3]
    numbers[:, VELOCITY] = numbers[:, VELOCITY] @ turn.T
    numbers[:, YAW] = wrapped(numbers[:, YAW] + np.arctan2(transform[1, 0], transform[0, 0]))
