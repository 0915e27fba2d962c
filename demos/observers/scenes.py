"""Scenes that two observers saw: real ones of DAIR-V2X, and simulated ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.observe.views import Views
from perception import Detections, Detector, PointCloud, Tracker
from perception.data import open_data_set
from perception.errors import ScanWarning
from perception.scans.free import free_distances
from perception.simulate import Scanner, SceneConfig, SensorModel, Spot, build_scene
from perception.track.poses import moved_boxes
from perception.vectors import packed

#: Names of the observers; the first one's map is the shared one.
NAMES = ("vehicle", "roadside")
#: Largest distance at which an observer is expected to see an object.
RANGE_M = 60.0
#: Labels of two observers this close are of one object.
SAME_LABEL_M = 2.0
#: Views of the cameras of DAIR-V2X, in whose pictures objects are labelled: right and left edge.
_LABELLED_DEG = {"vehicle": (-19.0, 75.0), "roadside": (-31.0, 16.0)}
#: Interval and start of simulated scans.
_INTERVAL_S, _START_NS = 0.1, 1_767_600_000 * 10**9

Matrix = NDArray[np.float64]
#: Returns boxes of a scan, in the frame of the LiDAR.
Detect = Callable[[PointCloud], Detections]


class Observer(NamedTuple):
    """What one observer saw.

    Attributes:
        name: of the observer.
        records: lines of its ``detections.jsonl``.
        views: where it looked, and how far it saw.
    """

    name: str
    records: list[dict[str, Any]]
    views: Views


class Instant(NamedTuple):
    """Labelled objects of both observers at one time.

    Attributes:
        time_ns: time.
        boxes: (n, 7) float64 in the map of the first observer.
        labels: n class names.
        judged: returns which (k, 3) positions of the map are labelled at all.
    """

    time_ns: int
    boxes: NDArray[np.float64]
    labels: list[str]
    judged: Callable[[NDArray[np.float64]], NDArray[np.bool_]]


class SharedScene(NamedTuple):
    """A scene that two observers saw.

    Attributes:
        title: its name.
        observers: the two.
        truth: joint labels.
        offset_m: median shift from an object of the second observer to the same one of the first, by labels.
        stated_m: the same as the data set states it.
    """

    title: str
    observers: tuple[Observer, Observer]
    truth: list[Instant]
    offset_m: tuple[float, float]
    stated_m: tuple[float, float]


class _Look(NamedTuple):
    """A scan of an observer, before it is a record."""

    name: str
    time_ns: int
    pose: Matrix
    cloud: PointCloud
    labelled: Detections


def dair_scene(folder: Path, detect: Detect | None) -> SharedScene:
    """Read the pairs of DAIR-V2X, with the poses that the roadside unit itself claims.

    Args:
        folder: folder of ``vehicle-side``, ``infrastructure-side`` and ``cooperative``.
        detect: the detector; None: the labels of each side are its boxes.
    """
    observers = []
    for name, side in zip(NAMES, ("vehicle-side", "infrastructure-side"), strict=True):
        looks = []
        for frame in open_data_set(folder / side):
            pose = frame.pose.copy()
            # The data set corrects the poses of pairs; the observer does not know of that.
            pose[:3, 3] -= frame.files.offsets.get(frame.frame_id, np.zeros(3))
            labels = Detections(frame.boxes, np.ones(len(frame.boxes), np.float32), list(frame.labels))
            looks.append(_Look(frame.frame_id, frame.time_ns, pose, frame.cloud, labels))
        edges = _LABELLED_DEG[name] if detect is None else (-180.0, 180.0)
        observers.append(_observed(name, looks, detect, edges))
    truth, offsets, apart = [], [], []
    for pair in open_data_set(folder / "cooperative"):
        boxes = moved_boxes(np.asarray(pair.boxes, np.float64), pair.pose)
        truth.append(Instant(pair.time_ns, boxes, list(pair.labels), _covered(pair)))
        stated = pair.roadside.files.offsets.get(pair.roadside.frame_id, np.zeros(3))[:2]
        offsets.append(stated)
        apart += _labels_apart(pair, stated)
    (x, y), (own_x, own_y) = (np.median(np.array(some), axis=0).tolist() for some in (offsets, apart))
    title = "DAIR-V2X, vehicle and roadside unit"
    return SharedScene(title, (observers[0], observers[1]), truth, (own_x, own_y), (x, y))


def simulated_scene(
    seed: int = 3,
    detect: Detect | None = None,
    *,
    frames: int = 40,
    offset_m: tuple[float, float] = (0.66, 0.66),
) -> SharedScene:
    """Simulate a vehicle that drives towards a roadside unit whose calibration is wrong.

    Args:
        seed: of the town.
        detect: the detector; None: the visible boxes.
        frames: scans of each observer, 0.1 s apart.
        offset_m: error of the roadside unit's position.
    """
    settings = SceneConfig(
        extent_m=60.0, characters=("city",), moving_cars_per_100m=6.0, pedestrians_per_100m=4.0, slope=0.0
    )
    scene, sensor = build_scene(seed, settings), SensorModel.preset("32")
    scanner, start = Scanner(scene, sensor), scene.start
    spots = (
        [Spot(start.u + 6.0 * _INTERVAL_S * at, start.v, 0.0) for at in range(frames)],
        [Spot(start.u + 45.0, start.v + 7.0, math.pi)] * frames,
    )
    shift = np.array([*offset_m, 0.0])
    observers, seen = [], []
    for number, (name, places) in enumerate(zip(NAMES, spots, strict=True)):
        looks, boxes = [], []
        for at, spot in enumerate(places):
            time_s = at * _INTERVAL_S
            pose = scene.world_from_lidar(spot, sensor.height_m)
            scan = scanner.scan(pose, seed=np.random.SeedSequence([seed, number, at]), time_s=time_s)
            near = np.hypot(*scan.boxes.boxes[:, :2].T) <= RANGE_M
            rows = np.flatnonzero(near & (scan.point_counts >= 10))
            labelled = Detections(
                scan.boxes.boxes[rows],
                np.ones(len(rows), np.float32),
                [scan.boxes.labels[row] for row in rows],
            )
            boxes.append(
                (scan.track_ids[rows], moved_boxes(labelled.boxes.astype(np.float64), pose), labelled.labels)
            )
            claimed = pose.copy()
            claimed[:3, 3] -= shift * number
            looks.append(_Look(f"{at:06d}", _START_NS + round(time_s * 1e9), claimed, scan.cloud, labelled))
        observers.append(_observed(name, looks, detect, (-180.0, 180.0)))
        seen.append(boxes)
    truth = [
        _joint(_START_NS + round(at * _INTERVAL_S * 1e9), one, other)
        for at, (one, other) in enumerate(zip(*seen, strict=True))
    ]
    title = f"simulated street {seed}"
    return SharedScene(title, (observers[0], observers[1]), truth, offset_m, offset_m)


def detecting(weights: str) -> Detect:
    """Return a detector as a function of scans; it looks all around, so it gets more room for proposals."""
    detector = Detector.from_pretrained(weights).with_limits(2)

    def detect(cloud: PointCloud) -> Detections:
        with warnings.catch_warnings():
            # Both sensors see farther than the weights.
            warnings.simplefilter("ignore", ScanWarning)
            return detector(cloud)

    return detect


def _observed(
    name: str, looks: list[_Look], detect: Detect | None, edges_deg: tuple[float, float]
) -> Observer:
    """Return the records of an observer: tracks of its detections, or its labels without identities."""
    tracker, records, free = Tracker(), [], []
    for look in looks:
        around = free_distances(look.cloud)
        free.append(around)
        record: dict[str, Any] = {
            "frame": look.name,
            "source": None,
            "timestamp_ns": look.time_ns,
            "pose": {"map_from_lidar": look.pose[:3].tolist()},
            "free": packed(around[None]),
        }
        if detect is None:
            boxes, scores, labels = look.labelled.boxes, look.labelled.scores, look.labelled.labels
        else:
            tracks = tracker.update(detect(look.cloud), pose=look.pose, time_ns=look.time_ns)
            boxes, scores, labels = tracks.boxes, tracks.scores, tracks.labels
            record |= {"track_id": tracks.track_id.tolist(), "missed_s": tracks.missed_s.tolist()}
        record |= {"boxes": boxes.tolist(), "scores": scores.tolist(), "labels": list(labels)}
        records.append(record)
    return Observer(name, records, _views(looks, np.array(free, np.float64), edges_deg))


def _views(looks: list[_Look], free_m: NDArray[np.float64], edges_deg: tuple[float, float]) -> Views:
    right, left = (math.radians(edge) for edge in edges_deg)
    bins = free_m.shape[1]
    first, last = (round((edge + math.pi) / math.tau * bins) for edge in (right, left))
    yaw = np.array([math.atan2(look.pose[1, 0], look.pose[0, 0]) for look in looks])
    return Views(
        np.array([look.pose[:3, 3] for look in looks]),
        yaw + (right + left) / 2.0,
        np.array([look.time_ns for look in looks], np.int64),
        range_m=RANGE_M,
        field_of_view_rad=left - right,
        free_m=free_m[:, first:last],
    )


def _covered(pair: Any) -> Callable[[NDArray[np.float64]], NDArray[np.bool_]]:
    back = np.linalg.inv(pair.pose)
    return lambda places: np.asarray(pair.covered(places @ back[:3, :3].T + back[:3, 3]))


def _labels_apart(pair: Any, stated_m: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return the shifts from labels of the roadside to labels of the vehicle that are of one object."""
    vehicle, roadside = (
        moved_boxes(np.asarray(side.boxes, np.float64), side.pose)[:, :2]
        for side in (pair.vehicle, pair.roadside)
    )
    found = []
    for place, label in zip(roadside, pair.roadside.labels, strict=True):
        same = [row for row, other in enumerate(pair.vehicle.labels) if other == label]
        if same:
            shifts = vehicle[same] - place
            closest = shifts[np.argmin(np.hypot(*shifts.T))]
            if np.hypot(*closest) < SAME_LABEL_M:
                # The pose of the pair has the stated shift already.
                found.append(closest + stated_m)
    return found


def _joint(time_ns: int, one: Any, other: Any) -> Instant:
    """Return the objects that at least one observer sees."""
    known = {int(key): (box, label) for some in (one, other) for key, box, label in zip(*some, strict=True)}
    boxes = np.array([box for box, _ in known.values()]).reshape(-1, 7)
    return Instant(
        time_ns, boxes, [label for _, label in known.values()], lambda places: np.ones(len(places), bool)
    )


def disturbed(
    observer: Observer,
    *,
    shift_m: tuple[float, float] = (0.0, 0.0),
    turn_rad: float = 0.0,
    clock_s: float = 0.0,
    lost: float = 0.0,
    seed: int = 0,
) -> Observer:
    """Return an observer with wrong poses, a wrong clock or lost frames.

    Args:
        observer: the observer.
        shift_m, turn_rad: error of its poses; the turn is about its first position.
        clock_s: how late its clock is.
        lost: share of frames that never arrive.
        seed: of the lost frames.
    """
    error = np.eye(4)
    sine, cosine = math.sin(turn_rad), math.cos(turn_rad)
    error[:2, :2] = [[cosine, -sine], [sine, cosine]]
    middle = observer.views.position[0]
    error[:3, 3] = middle - error[:3, :3] @ middle + np.array([*shift_m, 0.0])
    kept = np.random.default_rng(seed).random(len(observer.records)) >= lost
    late_ns = round(clock_s * 1e9)
    records = []
    for record, there in zip(observer.records, kept.tolist(), strict=True):
        if there:
            pose = error @ np.vstack([record["pose"]["map_from_lidar"], [0.0, 0.0, 0.0, 1.0]])
            stamp = record["timestamp_ns"] + late_ns
            records.append(record | {"pose": {"map_from_lidar": pose[:3].tolist()}, "timestamp_ns": stamp})
    views = observer.views
    position = views.position @ error[:3, :3].T + error[:3, 3]
    moved = replace(views, position=position, yaw=views.yaw + turn_rad, time_ns=views.time_ns + late_ns)
    return observer._replace(records=records, views=moved)
