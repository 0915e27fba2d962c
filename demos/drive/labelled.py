"""A real sequence with labels: detected, tracked, remembered, driven back a day later, and asked about.

Nobody drove it twice: the second pass is the same scans in reverse, with tracks of their own. What parks
there parks on both days, and what drives does so both ways.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drive.frames import DAY_NS, START_NS
from drive.remembering import Tally
from drive.truth import Sight, Truth
from memory import Filter, Memory, MemoryStore
from memory.revisiting import Looks, mark_free
from memory.tracks import Sights, TrackMemories
from perception import Detections, Detector, Tracker
from perception.data import Frame, open_data_set
from perception.errors import DataError
from perception.scans.free import free_distances
from perception.track.tracks import Tracks

#: Names of the passes, as recordings of tracks.
PASSES = ("there", "back")
#: What nuScenes calls the detector's classes.
_NAMES = {"car": "Car", "pedestrian": "Pedestrian", "bicycle": "Cyclist"}
_MAP = "sequence"
_FURTHER = "further sights of a track, which is one memory"


class Moment(NamedTuple):
    """A frame of a pass.

    Attributes:
        day: 0 there, 1 back.
        number: of the frame in the sequence.
        time_ns: of the pass.
        frame: of the data set.
    """

    day: int
    number: int
    time_ns: int
    frame: Frame


@dataclass
class Driven:
    """What a drive leaves.

    Attributes:
        truth: what the labels say.
        tally: what became of the boxes.
        path: of the sensor in the first pass.
        trails: (n, 2) ways of tracks in the first pass, each with its label.
        gone: memories that were found gone, with the reason.
        every: a memory of every box, as a store without tracks would be given them.
        since: number of the store's last operation before the way back.
    """

    truth: Truth = field(default_factory=Truth)
    tally: Tally = field(default_factory=Tally)
    path: list[tuple[float, float]] = field(default_factory=list)
    trails: dict[int, tuple[str, list[tuple[float, float]]]] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)
    every: list[Memory] = field(default_factory=list)
    since: int = 0


def open_sequence(folder: Path) -> list[Frame]:
    """Frames of a data set with poses, labels and identities, in the order of time.

    Raises:
        DataError: it has none of these; says which.
    """
    data = open_data_set(folder)
    frames = [data[position] for position in range(len(data))]
    for what, has in (
        ("poses", all(frame.pose is not None for frame in frames)),
        ("labels", any(frame.labelled for frame in frames)),
        ("identities of its labels", any(frame.track_ids is not None for frame in frames)),
        ("scans", all(frame.source is not None for frame in frames)),
    ):
        if not has or not frames:
            raise DataError(f"{folder}: the sequence has no {what}: a KITTI sequence has all of them")
    return frames


def moments(frames: Sequence[Frame]) -> Iterator[Moment]:
    """There, and a day later back."""
    times = [number * 10**8 if one.time_ns is None else one.time_ns for number, one in enumerate(frames)]
    first, last = min(times), max(times)
    for number, frame in enumerate(frames):
        yield Moment(0, number, START_NS + times[number] - first, frame)
    for number in reversed(range(len(frames))):
        yield Moment(1, number, START_NS + DAY_NS + last - times[number], frames[number])


def remember_sequence(
    store: MemoryStore,
    passed: Iterator[Moment],
    *,
    labels_seen: bool,
    detector: Callable[[], Detector],
    watch: Callable[[Moment, Sights, Sequence[Memory]], None] | None = None,
) -> Driven:
    """Drive, and remember by tracks.

    Args:
        store: empty.
        passed: of :func:`moments`.
        labels_seen: the labels are what is seen, in place of a detector's boxes.
        detector: makes it, if one is needed.
        watch: is told each moment, what is seen in it, and what the store holds by then.
    """
    driven = Driven()
    sees = _Labels() if labels_seen else _Detected(detector())
    things, looks, day = TrackMemories(PASSES[0], map_id=_MAP), Looks(), 0
    for moment in passed:
        if moment.day != day:
            _end_pass(store, driven, things, looks)
            driven.since = store.generation
            things, looks, day = TrackMemories(PASSES[1], map_id=_MAP), Looks(), moment.day
            sees.begin()
        pose = _pose(moment.frame)
        _add_truth(driven.truth, moment)
        started = time.perf_counter()
        sights = sees(moment)
        driven.tally.detection_ms.append(1e3 * (time.perf_counter() - started))
        started = time.perf_counter()
        _keep(store, driven, things.see(sights))
        driven.tally.observe_ms.append(1e3 * (time.perf_counter() - started))
        driven.tally.offered += len(sights.labels)
        driven.tally.timeline.append((driven.tally.offered, len(store)))
        if watch is not None:
            watch(moment, sights, store.find(Filter()))
        yaw = float(np.arctan2(pose[1, 0], pose[0, 0]))
        looks.add(_MAP, moment.time_ns, pose[:3, 3].tolist(), yaw, free_distances(moment.frame.cloud))
        driven.every += [_box_memory(sights, row) for row in range(len(sights.labels))]
        if day == 0:
            driven.path.append((float(pose[0, 3]), float(pose[1, 3])))
            for key, label, box in zip(sights.track_id, sights.labels, sights.boxes, strict=True):
                trail = driven.trails.setdefault(int(key), (label, []))
                trail[1].append((float(box[0]), float(box[1])))
    _end_pass(store, driven, things, looks)
    return driven


class _Labels:
    """What the labels say is seen."""

    def begin(self) -> None:
        """Another pass."""

    def __call__(self, moment: Moment) -> Sights:
        frame = moment.frame
        return _sights(moment, frame.track_ids, _in_map(frame.boxes, _pose(frame)), _labels(frame), None)


class _Detected:
    """Boxes of a detector, tracked; each scan is detected once."""

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._known: dict[int, Detections] = {}
        self.begin()

    def begin(self) -> None:
        """Another pass."""
        self._tracker = Tracker()

    def __call__(self, moment: Moment) -> Sights:
        if moment.number not in self._known:
            self._known[moment.number] = self._detector(moment.frame.cloud)
        tracks = self._tracker.update(
            self._known[moment.number], pose=_pose(moment.frame), time_ns=moment.time_ns
        )
        seen = tracks[tracks.missed_s == 0]
        return _sights(moment, seen.track_id, seen.map_boxes, seen.labels, seen)


def _sights(
    moment: Moment,
    track_id: NDArray[np.int64] | None,
    boxes: NDArray[np.floating],
    labels: Sequence[str],
    tracks: Tracks | None,
) -> Sights:
    assert track_id is not None
    return Sights(
        time_ns=moment.time_ns,
        track_id=track_id,
        boxes=boxes,
        labels=list(labels),
        scores=np.ones(len(labels)) if tracks is None else tracks.scores,
        covariance=None if tracks is None else tracks.covariance[:, :3, :3],
        evidence=moment.frame.frame_id,
    )


def _keep(store: MemoryStore, driven: Driven, memories: list[Memory]) -> None:
    result = store.observe_logged(memories)
    tally = driven.tally
    for kept in result.kept:
        if kept.id is None:
            tally.dropped[f"a track: {kept.reason}"] += 1
    tally.kept += sum(kept.id is not None for kept in result.kept)
    tally.displaced += len(result.displaced)


def _end_pass(store: MemoryStore, driven: Driven, things: TrackMemories, looks: Looks) -> None:
    """What goes on is remembered, what is one thing becomes one memory, and what is gone is found."""
    _keep(store, driven, things.end())
    started = time.perf_counter()
    merged = store.consolidate().merged
    driven.tally.consolidation_s.append(time.perf_counter() - started)
    driven.tally.merges += len(merged)
    driven.tally.merged += sum(len(sources) - 1 for _, sources in merged)
    started = time.perf_counter()
    driven.gone |= mark_free(store, looks)
    driven.tally.presence_s.append(time.perf_counter() - started)
    driven.tally.gone = len(driven.gone)
    tally = driven.tally
    tally.dropped[_FURTHER] += tally.offered - tally.kept - tally.dropped.total()


def _add_truth(truth: Truth, moment: Moment) -> None:
    """The labelled things of a frame; a pass ends with them where they were last seen."""
    frame = moment.frame
    ids = frame.track_ids
    assert ids is not None
    there = truth.days.setdefault(moment.day, {})
    for key, label, box in zip(ids.tolist(), _labels(frame), _in_map(frame.boxes, _pose(frame)), strict=True):
        place = box[:2].astype(np.float64)
        truth.sights.setdefault(key, []).append(Sight(moment.time_ns, moment.day, label, place))
        there[key] = (label, place)


def _box_memory(sights: Sights, row: int) -> Memory:
    box = np.asarray(sights.boxes[row], np.float64)
    return Memory(
        time_ns=sights.time_ns,
        position=(float(box[0]), float(box[1]), float(box[2])),
        yaw=float(box[6]),
        map_id=_MAP,
        label=sights.labels[row],
        confidence=min(float(sights.scores[row]), 1.0),
        payload={"size_m": np.round(box[3:6], 2).tolist()},
        provenance="detector",
    )


def _labels(frame: Frame) -> list[str]:
    return [_NAMES.get(label, label) for label in frame.labels]


def _pose(frame: Frame) -> NDArray[np.float64]:
    assert frame.pose is not None
    return frame.pose


def _in_map(boxes: NDArray[np.floating], pose: NDArray[np.float64]) -> NDArray[np.float64]:
    """(M, 7) boxes of the LiDAR frame in the map."""
    found = np.asarray(boxes, np.float64).copy()
    found[:, :3] = found[:, :3] @ pose[:3, :3].T + pose[:3, 3]
    ahead = np.column_stack([np.cos(boxes[:, 6]), np.sin(boxes[:, 6]), np.zeros(len(boxes))]) @ pose[:3, :3].T
    found[:, 6] = np.arctan2(ahead[:, 1], ahead[:, 0])
    return found
