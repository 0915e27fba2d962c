"""The nuScenes protocol on a data set with nuScenes tables; results are a nuScenes result file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from perception.data import DataSet, Frame
from perception.data.nuscenes import NuScenesDataSet
from perception.data.nuscenes.tables import LIDAR, Tables
from perception.errors import DataError
from perception.evaluate.box_table import BoxTable, Float64Array
from perception.evaluate.judge import Judge
from perception.evaluate.nuscenes.evaluation import evaluate_nuscenes
from perception.evaluate.nuscenes.files import MAX_BOXES, read_results, write_results, yaw_of
from perception.evaluate.nuscenes.resampling import NuScenesSampler
from perception.evaluate.nuscenes.result import CLASS_RANGES_M, NuScenesResult
from perception.evaluate.options import JudgeOptions
from perception.types import Detections

RESULTS_NAME = "results.json"


class NuScenesJudge(Judge):
    """Judge for the nuScenes detection benchmark, in world axes."""

    protocol = "nuscenes"
    results = "a nuScenes result file (.json)"

    def __init__(self, data_set: DataSet, options: JudgeOptions) -> None:
        super().__init__(data_set, options)
        if not isinstance(data_set, NuScenesDataSet):
            raise DataError(
                f"{data_set.folder}: a {data_set.kind} data set has no nuScenes tables; pass nuScenes"
            )
        if options.classes is not None and not set(options.classes) & set(CLASS_RANGES_M):
            raise DataError(
                f"{data_set.folder}: {', '.join(options.classes)}: not classes of nuScenes; choose from"
                f" {', '.join(CLASS_RANGES_M)}"
            )
        self._tables = data_set.tables
        self._samples = samples_of(data_set)

    def write(self, directory: Path, detected: Iterable[tuple[Frame, Detections]]) -> Path:
        """Write boxes of the ten classes in world axes, at most 500 per frame; unknown velocities are 0."""
        tokens, tables = [], []
        for frame, found in detected:
            tokens.append(self._samples[frame.frame_id])
            tables.append(_world_boxes(frame, found))
        path = directory / RESULTS_NAME
        write_results(path, tokens, BoxTable.joined(tables))
        return path

    def evaluate(self, results: Path) -> NuScenesResult:
        """Evaluate results; see :func:`~perception.evaluate.nuscenes.evaluation.evaluate_nuscenes`."""
        frames, labels, found, racks = self._read(results)
        return evaluate_nuscenes(labels, found, racks=racks, frame_count=len(frames))

    def sampler(self, results: Path) -> NuScenesSampler:
        """Return a sampler of mAP, NDS and AP."""
        frames, labels, found, racks = self._read(results)
        return NuScenesSampler(frames, labels, found, racks=racks)

    def _read(self, results: Path) -> tuple[tuple[str, ...], BoxTable, BoxTable, BoxTable]:
        """Return samples, labels, detections and bicycle racks."""
        ego = ego_positions(self._tables, self._samples.values())
        frames, found = read_results(results, ego, missing_results=self.options.missing_results)
        return frames, labels_of(self._tables, frames, ego), found, racks_of(self._tables, frames)


def samples_of(data_set: NuScenesDataSet) -> dict[str, str]:
    """Return frame names to sample tokens, from the tables alone, without reading scans or images."""
    return {frame_id: data_set.sample_token(frame_id) for frame_id in data_set.frame_ids}


def ego_positions(tables: Tables, samples: Iterable[str]) -> dict[str, Float64Array]:
    """Return sample token to the vehicle's position at the LiDAR scan: (3,), metres, world axes."""
    sights = {sample: tables.sight(tables.key_sights[sample][LIDAR]) for sample in samples}
    return {sample: sight.global_from_ego[:3, 3] for sample, sight in sights.items()}


def labels_of(tables: Tables, samples: Iterable[str], ego: Mapping[str, Float64Array]) -> BoxTable:
    """Return the labels of samples in world axes, with distances from the vehicle; one frame per sample."""
    return BoxTable.joined([_labels(tables, sample, ego[sample]) for sample in samples])


def racks_of(tables: Tables, samples: Iterable[str]) -> BoxTable:
    """Return the bicycle racks of samples; one frame per sample."""
    racks = [tables.bicycle_racks(sample) for sample in samples]
    return BoxTable.joined([BoxTable.of_frame(rack, ["rack"] * len(rack)) for rack in racks])


def _labels(tables: Tables, sample: str, ego: Float64Array) -> BoxTable:
    labels = tables.labels(sample)
    yaw = yaw_of(labels.rotations[:, [3, 0, 1, 2]])
    offset = labels.centres[:, :2] - ego[:2]
    return BoxTable.of_frame(
        np.column_stack([labels.centres, labels.sizes, yaw]),
        labels.classes,
        velocity=labels.velocities[:, :2],
        attribute=np.array(labels.attributes, np.str_),
        points=labels.points,
        distance_m=np.sqrt((offset**2).sum(axis=1)),
        track_id=labels.instances,
    )


def _world_boxes(frame: Frame, found: Detections) -> BoxTable:
    """Move the boxes of a frame to world axes; other classes are dropped."""
    if frame.pose is None:
        raise DataError(f"frame {frame.frame_id!r} has no pose, which world axes need; add poses")
    rows = np.flatnonzero(np.isin(np.array(found.labels, np.str_), list(CLASS_RANGES_M)))[:MAX_BOXES]
    boxes = found.boxes[rows].astype(np.float64)
    turn = frame.pose[:3, :3]
    heading = np.column_stack([np.cos(boxes[:, 6]), np.sin(boxes[:, 6]), np.zeros(len(boxes))]) @ turn.T
    centre = boxes[:, :3] @ turn.T + frame.pose[:3, 3]
    yaw = np.arctan2(heading[:, 1], heading[:, 0])
    velocity = np.full((len(rows), 2), np.nan)
    if found.velocities is not None:
        velocity = (found.velocities[rows].astype(np.float64) @ turn[:, :2].T)[:, :2]
    return BoxTable.of_frame(
        np.column_stack([centre, boxes[:, 3:6], yaw]),
        [found.labels[row] for row in rows],
        score=found.scores[rows],
        velocity=velocity,
    )
