"""Training frames of real sensors and of simulated ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perception.boxes import points_in_boxes
from perception.config import TrainConfig
from perception.data import open_data_set
from perception.scans.tensors import as_tensor, raised_m
from perception.simulate import NUSCENES_DENSITY, SceneConfig, SensorModel, simulate_scan
from perception.train.data.frames import IGNORED, SensorKind, TrainingFrame, load_frames

CLASSES = ("Car", "Pedestrian", "Cyclist")
#: Points this far outside of the detector's range in x or y, or higher, are left out.
_MARGIN_M, _TOP_M = 5.7, 3.5
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
        repeat_ten: the same for nuScenes' ten classes, most of which the other data sets do not label.
        step_ten: distance of the frames used for ten classes; frames at 10 Hz are much alike.
        names: class by name in labels, "" to ignore; other names become background.
    """

    folder: str
    beams: int
    repeat: int
    repeat_ten: int
    step_ten: int
    names: Mapping[str, str]


#: The loss ignores vans, which are cars in nuScenes, riders of motorcycles and tricycles, which look like
#: cyclists, and nuScenes' bicycles and motorcycles, many of which have no rider.
SOURCES = {
    "kitti": Source("kitti", 64, 2, 1, 1, {"Van": "", "Person_sitting": ""}),
    "nuscenes": Source(
        "nuscenes", 32, 3, 6, 1, {"car": "Car", "pedestrian": "Pedestrian", "bicycle": "", "motorcycle": ""}
    ),
    "dair-vehicle": Source(
        "dair_v2x/vehicle-side", 40, 1, 2, 2, {"Van": "", "Motorcyclist": "", "Tricyclist": ""}
    ),
    "dair-roadside": Source(
        "dair_v2x/infrastructure-side", 128, 1, 2, 2, {"Van": "", "Motorcyclist": "", "Tricyclist": ""}
    ),
}


#: Drives with poses, for detectors that read several sweeps, and the distance of the frames used.
DRIVES = ("kitti_sequences/2011_09_26_drive_0001", "kitti_sequences/2011_09_26_drive_0060")
_DRIVE_STEP = 12
#: Job that leaves out the last frames of nuScenes' scene, and their number.
LATE_NUSCENES, LATE_FRAMES = "nuscenes-late", 10


def real_frames(data: Path, name: str, config: TrainConfig) -> list[TrainingFrame]:
    """Return the frames of a real sensor, cropped to what is labelled and within reach."""
    source = SOURCES[name]
    frames = _frames_of(data / source.folder, SensorKind(name, source.beams), source.names, config)
    return frames[:: source.step_ten] if config.names else frames


def drive_frames(data: Path, config: TrainConfig) -> list[TrainingFrame]:
    """Return every twelfth frame of KITTI's drives, with past sweeps and velocities."""
    sensor = SensorKind("kitti", SOURCES["kitti"].beams)
    return [
        frame
        for folder in DRIVES
        for frame in _frames_of(data / folder, sensor, SOURCES["kitti"].names, config)[::_DRIVE_STEP]
    ]


def _frames_of(
    folder: Path, sensor: SensorKind, names: Mapping[str, str], config: TrainConfig
) -> list[TrainingFrame]:
    detector = config.detector
    frames = load_frames(
        open_data_set(folder),
        detector.head.classes,
        names=config.names or names,
        sensor=sensor,
        pillars=detector.pillars,
        velocity=detector.head.velocity,
    )
    return [_within_reach(frame, config) for frame in frames]


def simulated_frames(beams: int, seeds: Sequence[int], config: TrainConfig) -> Iterator[TrainingFrame]:
    """Simulate full turns; every third scene has no lorries, buses, barriers and cones."""
    sensor, kind = SensorModel.preset(str(beams)), SensorKind(f"simulated-{beams}", beams)
    classes, pillars = config.detector.head.classes, config.detector.pillars
    rows = {label: row for row, label in enumerate(classes)}
    index = {"Van": IGNORED, "motorcycle": IGNORED} | rows
    index |= {name: rows[meant] for name, meant in config.names.items() if meant}
    for seed in seeds:
        further = {} if seed % 3 == 0 else NUSCENES_DENSITY
        height_m = float(np.random.default_rng([seed, 3]).uniform(*_HEIGHTS_M))
        scan = simulate_scan(
            seed, scene=SceneConfig(further_per_100m=further), sensor=replace(sensor, height_m=height_m)
        )
        kept = [row for row, label in enumerate(scan.boxes.labels) if label in index]
        boxes = scan.boxes.boxes[kept].copy()
        boxes[:, 2] += np.float32(raised_m(scan.cloud))
        labels = np.array([index[scan.boxes.labels[row]] for row in kept], np.int64)
        points = as_tensor(scan.cloud, pillars).numpy()
        yield _within_reach(TrainingFrame(f"{beams}-{seed:06d}", points, boxes, labels, sensor=kind), config)


def _within_reach(frame: TrainingFrame, config: TrainConfig) -> TrainingFrame:
    """Leave out distant points and boxes, and ignore labels that hardly a point shows."""
    reach_m = max((config.detector.pillars.range_m or ())[3:5], default=math.inf) + _MARGIN_M
    near = (np.abs(frame.points[:, :2]) < reach_m).all(axis=1) & (frame.points[:, 2] < _TOP_M)
    kept = (np.abs(frame.boxes[:, :2]) < reach_m).all(axis=1)
    points, boxes = frame.points[near], frame.boxes[kept]
    count = points_in_boxes(points[:, :3], boxes).sum(axis=1)
    labels = np.where(count < _LEAST_POINTS, IGNORED, frame.labels[kept])
    return replace(frame, points=points, boxes=boxes, labels=labels, velocities=frame.velocities[kept])
