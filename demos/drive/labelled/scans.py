"""Observations of a labelled sequence, driven there and a day later back: tracked boxes, and the truth.

The second pass is the same scans in reverse, with new tracks. Objects parked on the way there are therefore
parked on the way back, and moving objects move in both passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from drive.frames import DAY_NS, START_NS
from drive.truth import Sight, Truth
from memory.tracks import Sights
from perception import Detections, Tracker
from perception.data import Frame, open_data_set
from perception.errors import DataError
from perception.scans.free import free_distances
from perception.track.tracks import Tracks

#: Names of the passes, as recordings of tracks.
PASSES = ("there", "back")
#: nuScenes' names of the detector's classes.
_NAMES = {"car": "Car", "pedestrian": "Pedestrian", "bicycle": "Cyclist"}


class Moment(NamedTuple):
    """A frame of a pass.

    Attributes:
        day: 0 there, 1 back.
        number: of the frame in the sequence.
        time_ns: of the pass.
        frame: of the data set.
        pose: (4, 4) float64 map_from_lidar, as localized by the robot.
    """

    day: int
    number: int
    time_ns: int
    frame: Frame
    pose: NDArray[np.float64]


class Observation(NamedTuple):
    """Everything observed at a moment.

    Attributes:
        moment: frame of the pass.
        sights: tracked boxes in the map.
        free_m: (bins,) float32 free distance per bearing (:mod:`perception.scans.free`); None without a scan.
        took_ms: time of detection and tracking.
    """

    moment: Moment
    sights: Sights
    free_m: NDArray[np.floating] | None
    took_ms: float


class Observer(Protocol):
    """A source of tracked boxes."""

    def begin(self) -> None:
        """Start another pass with new tracks."""

    def __call__(self, moment: Moment) -> Sights:
        """Return the tracked boxes of a moment."""


class LabelObserver:
    """Observer of the labels and their track ids."""

    def begin(self) -> None:
        """See :class:`Observer`."""

    def __call__(self, moment: Moment) -> Sights:
        """See :class:`Observer`."""
        frame, boxes = moment.frame, in_map(moment.frame.boxes, moment.pose)
        assert frame.track_ids is not None
        return _sights(moment, frame.track_ids, boxes, labels_of(frame), None)


class TrackObserver:
    """Observer of tracked detections.

    Args:
        detect: returns the detections of a frame; called once per frame.
    """

    def __init__(self, detect: Callable[[Frame], Detections]) -> None:
        self._detect = detect
        self._known: dict[int, Detections] = {}
        self.begin()

    def begin(self) -> None:
        """See :class:`Observer`."""
        self._tracker = Tracker()

    def __call__(self, moment: Moment) -> Sights:
        """See :class:`Observer`."""
        if moment.number not in self._known:
            self._known[moment.number] = self._detect(moment.frame)
        tracks = self._tracker.update(self._known[moment.number], pose=moment.pose, time_ns=moment.time_ns)
        seen = tracks[tracks.missed_s == 0]
        return _sights(moment, seen.track_id, seen.map_boxes, seen.labels, seen)


def open_sequence(folder: Path) -> list[Frame]:
    """Open a data set with poses, labels and track ids; return its frames in time order.

    Raises:
        DataError: one of these is missing (named).
    """
    data = open_data_set(folder)
    frames = [data[position] for position in range(len(data))]
    for what, has in (
        ("poses", all(frame.pose is not None for frame in frames)),
        ("labels", any(frame.labelled for frame in frames)),
        ("track ids", any(frame.track_ids is not None for frame in frames)),
        ("scans", all(frame.source is not None for frame in frames)),
    ):
        if not has or not frames:
            raise DataError(f"{folder}: the sequence has no {what}; use a KITTI sequence, for example")
    return frames


def moments(
    frames: Sequence[Frame], *, back: bool = True, offset_m: tuple[float, float] = (0.0, 0.0)
) -> Iterator[Moment]:
    """Yield the frames there, and a day later back.

    Args:
        frames: of a sequence; frames without a pose get the identity.
        back: False for the way there alone.
        offset_m: localization error on the way back, along x and y.
    """
    times = [number * 10**8 if one.time_ns is None else one.time_ns for number, one in enumerate(frames)]
    first, last = min(times), max(times)
    poses = [np.eye(4) if frame.pose is None else frame.pose for frame in frames]
    for number, frame in enumerate(frames):
        yield Moment(0, number, START_NS + times[number] - first, frame, poses[number])
    for number in reversed(range(len(frames))) if back else ():
        pose = poses[number].copy()
        pose[:2, 3] += offset_m
        yield Moment(1, number, START_NS + DAY_NS + last - times[number], frames[number], pose)


def observe(passed: Iterator[Moment], sees: Observer) -> Iterator[Observation]:
    """Yield the observations of moments.

    Args:
        passed: from :func:`moments`.
        sees: source of tracked boxes.
    """
    day = 0
    for moment in passed:
        if moment.day != day:
            sees.begin()
            day = moment.day
        started = time.perf_counter()
        sights = sees(moment)
        took = 1e3 * (time.perf_counter() - started)
        free = None if moment.frame.source is None else free_distances(moment.frame.cloud)
        yield Observation(moment, sights, free, took)


def add_truth(truth: Truth, moment: Moment, keys: Collection[int] | None = None) -> None:
    """Add the labelled objects of a frame to the truth; a pass ends with their last positions.

    Args:
        truth: updated.
        moment: a frame of a pass.
        keys: only these track ids; None for all.
    """
    frame = moment.frame
    ids = frame.track_ids
    assert ids is not None
    there = truth.days.setdefault(moment.day, {})
    boxes = in_map(frame.boxes, np.eye(4) if frame.pose is None else frame.pose)
    for key, label, box in zip(ids.tolist(), labels_of(frame), boxes, strict=True):
        if keys is not None and key not in keys:
            continue
        place = box[:2].astype(np.float64)
        truth.sights.setdefault(key, []).append(Sight(moment.time_ns, moment.day, label, place))
        there[key] = (label, place)


def labels_of(frame: Frame) -> list[str]:
    """Return the class names of labels as the detector names them."""
    return [named(label) for label in frame.labels]


def named(label: str) -> str:
    """Return a class name as the detector names it."""
    return _NAMES.get(label, label)


def in_map(boxes: NDArray[np.floating], pose: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (M, 7) boxes of the LiDAR frame in the map."""
    found = np.asarray(boxes, np.float64).copy()
    found[:, :3] = found[:, :3] @ pose[:3, :3].T + pose[:3, 3]
    ahead = np.column_stack([np.cos(boxes[:, 6]), np.sin(boxes[:, 6]), np.zeros(len(boxes))]) @ pose[:3, :3].T
    found[:, 6] = np.arctan2(ahead[:, 1], ahead[:, 0])
    return found


def _sights(
    moment: Moment,
    track_id: NDArray[np.int64],
    boxes: NDArray[np.floating],
    labels: Sequence[str],
    tracks: Tracks | None,
) -> Sights:
    return Sights(
        time_ns=moment.time_ns,
        track_id=track_id,
        boxes=boxes,
        labels=list(labels),
        scores=np.ones(len(labels)) if tracks is None else tracks.scores,
        covariance=None if tracks is None else tracks.covariance[:, :3, :3],
        velocities=None if tracks is None else tracks.velocity,
        evidence=moment.frame.frame_id,
    )
