"""nuScenes: tracking of another detector's result file, and tracks as a result file.

Result files are those of the detection and tracking tasks (:mod:`perception.evaluate.nuscenes.files`), in
world axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from perception.data import DataSet
from perception.data.nuscenes import NuScenesDataSet
from perception.data.nuscenes.tables import LIDAR
from perception.errors import DataError
from perception.evaluate.box_table import BoxTable
from perception.evaluate.nuscenes.files import MAX_BOXES, read_results, write_results
from perception.evaluate.nuscenes.judge import RESULTS_NAME, ego_positions, labels_of, racks_of, samples_of
from perception.evaluate.nuscenes.result import TRACKING_RANGES_M
from perception.evaluate.options import MissingResults
from perception.rigid_motion import inverse
from perception.track.config import TrackerConfig
from perception.track.evaluation.nuscenes import NuScenesTracking, nuscenes_measures
from perception.track.poses import moved_boxes
from perception.track.recording import Mode, Moment, track_recording
from perception.track.state import Float64Array
from perception.track.tracks import Tracks
from perception.types import Detections


def scenes_of(data_set: DataSet) -> dict[str, list[str]]:
    """Return scene name to the tokens of its samples, by time.

    Raises:
        DataError: the data set is not nuScenes.
    """
    tables = _nuscenes(data_set).tables
    samples = [
        tables.samples[tables.sample_rows[token]] for token in samples_of(_nuscenes(data_set)).values()
    ]
    found: dict[str, list[str]] = {}
    for sample in sorted(samples, key=lambda record: int(record["timestamp"])):
        found.setdefault(tables.scene_names[sample["scene_token"]], []).append(sample["token"])
    return dict(sorted(found.items()))


def scene_moments(
    data_set: DataSet, results: Path, *, missing_results: MissingResults = "error"
) -> dict[str, list[Moment]]:
    """Return the boxes of a detection result file as moments of each scene, for the tracked classes.

    Boxes are in a level frame at the LiDAR with the heading of the vehicle; poses lead to the world.

    Args:
        data_set: nuScenes, or a split of it.
        results: file of the detection task.
        missing_results: see :func:`~perception.evaluate.nuscenes.files.read_results`.

    Raises:
        DataError: a file or record is invalid.
    """
    tables, scenes = _nuscenes(data_set).tables, scenes_of(data_set)
    tokens = [token for scene in scenes.values() for token in scene]
    ego = ego_positions(tables, tokens)
    kept, found = read_results(results, ego, missing_results=missing_results)
    found = found.rows(np.isin(found.label, list(TRACKING_RANGES_M)))
    edges = np.searchsorted(found.frame, np.arange(len(kept) + 1)).tolist()
    rows = {token: slice(edges[at], edges[at + 1]) for at, token in enumerate(kept)}

    def moment(token: str) -> Moment:
        sight = tables.sight(tables.key_sights[token][LIDAR])
        yaw = np.arctan2(sight.global_from_ego[1, 0], sight.global_from_ego[0, 0])
        pose = np.eye(4)
        pose[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
        pose[:3, 3] = sight.global_from_sensor[:3, 3]
        boxes = moved_boxes(found.boxes[rows[token]], inverse(pose)).astype(np.float32)
        scores = found.score[rows[token]].astype(np.float32)
        labels = found.label[rows[token]].tolist()
        return Moment(Detections(boxes, scores, labels, source=token), pose, sight.time_ns)

    return {
        name: [moment(token) for token in scene if token in rows]
        for name, scene in scenes.items()
        if any(token in rows for token in scene)
    }


def write_scenes(path: Path, scenes: Iterable[Sequence[tuple[str, Tracks]]]) -> int:
    """Write tracks as a result file of the tracking task, without classes that the task does not have.

    Args:
        path: of the file.
        scenes: sample tokens and tracks of the frames of each scene.

    Returns:
        Number of boxes written: per sample, the 500 most confident.
    """
    tokens, tables, offset = [], [], 0
    for frames in scenes:
        for token, tracks in frames:
            tokens.append(token)
            tables.append(_world_boxes(tracks, offset))
        # Track ids must differ between scenes.
        offset += max((int(tracks.track_id.max(initial=0)) for _, tracks in frames), default=0)
    rows = BoxTable.joined(tables)
    write_results(path, tokens, rows, task="tracking")
    return len(rows)


def track_results(
    data_set: DataSet,
    results: Path,
    out: Path,
    *,
    mode: Mode = "online",
    missing_results: MissingResults = "error",
) -> dict[str, int]:
    """Track the boxes of a detection result file and write ``OUT/results.json`` of the tracking task.

    Args:
        data_set: nuScenes, or a split of it: times, poses and scenes.
        results: file of the detection task.
        out: output folder; created if missing.
        mode: see :func:`~perception.track.track_recording`.
        missing_results: see :func:`~perception.evaluate.nuscenes.files.read_results`.

    Returns:
        Frames per scene.

    Raises:
        DataError: a file or record is invalid.
    """
    scenes = scene_moments(data_set, results, missing_results=missing_results)
    config = TrackerConfig.for_nuscenes()
    tracked = [
        [
            (str(moment.detections.source), tracks)
            for moment, tracks in zip(moments, track_recording(moments, config, mode=mode), strict=True)
        ]
        for moments in scenes.values()
    ]
    out.mkdir(parents=True, exist_ok=True)
    write_scenes(out / RESULTS_NAME, tracked)
    return {name: len(moments) for name, moments in scenes.items()}


def judge_results(
    data_set: DataSet, results: Path, *, missing_results: MissingResults = "error"
) -> NuScenesTracking:
    """Evaluate a result file of the tracking task against the labels of a data set.

    Raises:
        DataError: a file or record is invalid.
    """
    tables, scenes = _nuscenes(data_set).tables, scenes_of(data_set)
    tokens = [token for scene in scenes.values() for token in scene]
    ego = ego_positions(tables, tokens)
    frames, found = read_results(results, ego, missing_results=missing_results, task="tracking")
    scene_of = {token: number for number, scene in enumerate(scenes.values()) for token in scene}
    return nuscenes_measures(
        labels_of(tables, frames, ego),
        found,
        scene=[scene_of[token] for token in frames],
        time_us=[int(tables.samples[tables.sample_rows[token]]["timestamp"]) for token in frames],
        racks=racks_of(tables, frames),
    )


def _nuscenes(data_set: DataSet) -> NuScenesDataSet:
    if not isinstance(data_set, NuScenesDataSet):
        raise DataError(
            f"{data_set.folder}: a {data_set.kind} data set has no nuScenes tables; pass a nuScenes folder"
        )
    return data_set


def _world_boxes(tracks: Tracks, offset: int) -> BoxTable:
    kept = np.isin(np.array(tracks.labels, np.str_), list(TRACKING_RANGES_M))
    rows = np.flatnonzero(kept)[:MAX_BOXES]
    boxes: Float64Array = moved_boxes(tracks.boxes[rows].astype(np.float64), tracks.pose)
    return BoxTable.of_frame(
        boxes,
        [tracks.labels[row] for row in rows],
        score=tracks.scores[rows],
        velocity=tracks.velocity[rows, :2],
        track_id=tracks.track_id[rows] + offset,
    )
