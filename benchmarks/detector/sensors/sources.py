"""Training frames of four real sensors and of simulated ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perception.boxes import points_in_boxes
from perception.data import open_data_set
from perception.scans.tensors import as_tensor, raised_m
from perception.simulate import NUSCENES_DENSITY, SceneConfig, SensorModel, simulate_scan
from perception.train.data.frames import IGNORED, SensorKind, TrainingFrame, load_frames

CLASSES = ("Car", "Pedestrian", "Cyclist")
#: Points farther away in x or y, or higher, are left out: no training range reaches them.
_REACH_M, _TOP_M = 62.0, 3.5
#: Labels with fewer points are ignored, because nothing in the scan shows them.
_LEAST_POINTS = 3
#: Simulated frames by number of beams; more beams have more points.
SIMULATED = {16: 28, 32: 32, 64: 15, 128: 5}
_HEIGHTS_M = (1.0, 2.6)


class Source(NamedTuple):
    """The data set of a real sensor.

    Attributes:
        folder: below the folder of all data.
        beams: of the sensor; the roadside sensor has no beams, but is as dense as one with 128.
        repeat: how often a training uses each frame compared with others.
        names: class by name in labels, "" to ignore; other names become background.
    """

    folder: str
    beams: int
    repeat: int
    names: Mapping[str, str]


#: The loss ignores vans, which are cars in nuScenes, riders of motorcycles and tricycles, which look like
#: cyclists, and nuScenes' bicycles and motorcycles, many of which have no rider.
SOURCES = {
    "kitti": Source("kitti", 64, 2, {"Van": "", "Person_sitting": ""}),
    "nuscenes": Source(
        "nuscenes", 32, 3, {"car": "Car", "pedestrian": "Pedestrian", "bicycle": "", "motorcycle": ""}
    ),
    "dair-vehicle": Source("dair_v2x/vehicle-side", 40, 1, {"Van": "", "Motorcyclist": "", "Tricyclist": ""}),
    "dair-roadside": Source(
        "dair_v2x/infrastructure-side", 128, 1, {"Van": "", "Motorcyclist": "", "Tricyclist": ""}
    ),
}


def real_frames(data: Path, name: str) -> list[TrainingFrame]:
    """Return the frames of a real sensor, cropped to what is labelled and within reach."""
    source = SOURCES[name]
    data_set = open_data_set(data / source.folder)
    frames = load_frames(data_set, CLASSES, names=source.names, sensor=SensorKind(name, source.beams))
    return [_within_reach(frame) for frame in frames]


def simulated_frames(beams: int, seeds: Sequence[int]) -> Iterator[TrainingFrame]:
    """Simulate full turns; every third scene has no lorries, buses, barriers and cones."""
    sensor, kind = SensorModel.preset(str(beams)), SensorKind(f"simulated-{beams}", beams)
    for seed in seeds:
        further = {} if seed % 3 == 0 else NUSCENES_DENSITY
        height_m = float(np.random.default_rng([seed, 3]).uniform(*_HEIGHTS_M))
        scan = simulate_scan(
            seed, scene=SceneConfig(further_per_100m=further), sensor=replace(sensor, height_m=height_m)
        )
        index = {"Van": IGNORED, "motorcycle": IGNORED} | {label: row for row, label in enumerate(CLASSES)}
        kept = [row for row, label in enumerate(scan.boxes.labels) if label in index]
        boxes = scan.boxes.boxes[kept].copy()
        boxes[:, 2] += np.float32(raised_m(scan.cloud))
        labels = np.array([index[scan.boxes.labels[row]] for row in kept], np.int64)
        points = as_tensor(scan.cloud).numpy()
        yield _within_reach(TrainingFrame(f"{beams}-{seed:06d}", points, boxes, labels, sensor=kind))


def _within_reach(frame: TrainingFrame) -> TrainingFrame:
    """Leave out distant points and boxes, and ignore labels that hardly a point shows."""
    near = (np.abs(frame.points[:, :2]) < _REACH_M).all(axis=1) & (frame.points[:, 2] < _TOP_M)
    kept = (np.abs(frame.boxes[:, :2]) < _REACH_M).all(axis=1)
    points, boxes = frame.points[near], frame.boxes[kept]
    count = points_in_boxes(points[:, :3], boxes).sum(axis=1)
    labels = np.where(count < _LEAST_POINTS, IGNORED, frame.labels[kept])
    return replace(frame, points=points, boxes=boxes, labels=labels)
