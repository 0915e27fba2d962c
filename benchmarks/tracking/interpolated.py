"""Labels of a drive at any time between two frames, interpolated in the world frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation, Slerp

from perception.data import CameraObject, Frame, objects_from_boxes
from perception.data.camera import DONT_CARE
from perception.rigid_motion import inverse
from perception.track.filter import wrapped
from perception.track.poses import moved_boxes

Float64Array = npt.NDArray[np.float64]
#: Occlusion that no difficulty of the KITTI protocol counts.
_UNCOUNTED = 3


class Truth(NamedTuple):
    """Labels at one time.

    Attributes:
        objects: labels in the camera, DontCare included. Those that only one of the two frames has are not
            counted, neither as found nor as missed.
        boxes, labels: (M, 7) boxes in the sensor frame of that time and M classes, of labels in both frames.
        pose: (4, 4) world_from_lidar at that time.
    """

    objects: list[CameraObject]
    boxes: Float64Array
    labels: list[str]
    pose: Float64Array


class _Label(NamedTuple):
    """A label of one frame: its object in the camera and its box in the world."""

    item: CameraObject
    box: Float64Array


class InterpolatedLabels:
    """Labels of a drive at any time.

    Args:
        frames: of the drive, with poses, times and track ids.
    """

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.times_ns = np.array([frame.time_ns for frame in frames], np.int64)
        self._frames = frames
        poses = np.stack([frame.pose for frame in frames if frame.pose is not None])
        self._places = poses[:, :3, 3]
        self._turns = Slerp(self.times_ns - self.times_ns[0], Rotation.from_matrix(poses[:, :3, :3]))
        self._labels = [
            _labels(frame, pose) for frame, pose in zip(frames, poses.astype(np.float64), strict=True)
        ]
        self._known: dict[int, Truth] = {}

    def at(self, time_ns: int) -> Truth | None:
        """Return the labels at a time; None if it is not between the first and the last frame."""
        if not self.times_ns[0] <= time_ns < self.times_ns[-1]:
            return None
        if time_ns not in self._known:
            self._known[time_ns] = self._between(time_ns)
        return self._known[time_ns]

    def _between(self, time_ns: int) -> Truth:
        low = int(np.searchsorted(self.times_ns, time_ns, side="right")) - 1
        span_ns = int(self.times_ns[low + 1] - self.times_ns[low])
        share = (time_ns - int(self.times_ns[low])) / span_ns
        pose = np.eye(4)
        pose[:3, :3] = self._turns(time_ns - int(self.times_ns[0])).as_matrix()
        pose[:3, 3] = (1 - share) * self._places[low] + share * self._places[low + 1]
        before, after = self._labels[low], self._labels[low + 1]
        objects = [item for item in self._frames[low].objects if item.type == DONT_CARE]
        objects += [
            replace(before.get(key, after.get(key)).item, occluded=_UNCOUNTED)  # type: ignore[union-attr]
            for key in sorted(before.keys() ^ after.keys())
        ]
        both = sorted(before.keys() & after.keys())
        pairs = [(before[key], after[key]) for key in both]
        world = np.array([_between(old.box, new.box, share) for old, new in pairs]).reshape(-1, 7)
        boxes, labels = moved_boxes(world, inverse(pose)), [old.item.type for old, _ in pairs]
        projected = objects_from_boxes(boxes, labels, None, self._frames[low].calibration)
        for item, (old, new) in zip(projected, pairs, strict=True):
            nearer = (old if share < 0.5 else new).item
            picture = (1 - share) * np.array(old.item.box_2d) + share * np.array(new.item.box_2d)
            left, top, right, bottom = picture.tolist()
            objects.append(
                replace(
                    item,
                    box_2d=(left, top, right, bottom),
                    truncated=nearer.truncated,
                    occluded=nearer.occluded,
                )
            )
        return Truth(objects, boxes, labels, pose)


def _labels(frame: Frame, pose: Float64Array) -> dict[int, _Label]:
    """Return the labels of a frame by track id."""
    items = [item for item in frame.objects if item.type != DONT_CARE]
    boxes = moved_boxes(frame.boxes.astype(np.float64), pose)
    identities = [] if frame.track_ids is None else frame.track_ids.tolist()
    return {key: _Label(*pair) for key, *pair in zip(identities, items, boxes, strict=True)}


def _between(old: Float64Array, new: Float64Array, share: float) -> Float64Array:
    box = (1 - share) * old + share * new
    box[6] = old[6] + share * wrapped(new[6] - old[6])
    return box
