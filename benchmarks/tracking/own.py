"""Our own detector's boxes over the real sequences: its tracks, what tracks do for its AP, what moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perception import Detections, Detector
from perception.data import DataSet, Frame, open_data_set
from perception.data.kitti.tracking import TrackRows, read_tracks
from perception.evaluate.kitti import evaluate_kitti
from perception.evaluate.kitti.judge import detections_to_objects
from perception.track import track_recording
from perception.track.evaluation import SequencePair, clear_measures, hota_measures
from perception.track.folders import rows_of_tracks
from perception.track.poses import moved_boxes
from perception.track.recording import MODES, Moment
from perception.track.tracks import Tracks

_CLASSES = ("Car", "Pedestrian", "Cyclist")
_FIGURES = ("samota", "mota", "motp", "id_switches", "fragments", "hota", "deta", "assa")
#: A labelled thing moves where it goes further than this in a second; a track this near it is of it.
_MOVES_M_S, _SAME_M = 0.5, 1.5


def own_tracks(folders: Sequence[Path], weights: str) -> dict[str, Any]:
    """By mode: figures of tracks by class, AP of the tracks' boxes, and how often moving is said rightly.

    Args:
        folders: of the sequences, with labels and poses.
        weights: of the detector.
    """
    detector = Detector.from_pretrained(weights)
    data = [open_data_set(folder) for folder in folders]
    found = [[detector(frame.cloud) for frame in frames] for frames in data]
    labels = [read_tracks(folder / "labels.txt") for folder in folders]
    cases: dict[str, Any] = {"detector alone": {"ap": _precision(data, found)}}
    for mode in MODES:
        tracked = [
            list(track_recording(_moments(frames, boxes), mode=mode))
            for frames, boxes in zip(data, found, strict=True)
        ]
        rows = [
            _by_frame(rows_of_tracks(told, frames[0].calibration))
            for frames, told in zip(data, tracked, strict=True)
        ]
        pairs = [
            SequencePair(folder.name, len(frames), _by_frame(truth), told)
            for folder, frames, truth, told in zip(folders, data, labels, rows, strict=True)
        ]
        cases[mode] = {
            "ap": _precision(data, tracked),
            "classes": {name: _figures(pairs, name) for name in _CLASSES},
            "moving": _moving(data, tracked),
        }
    return cases


def _moments(frames: DataSet, boxes: Sequence[Detections]) -> list[Moment]:
    return [Moment(one, frame.pose, frame.time_ns) for frame, one in zip(frames, boxes, strict=True)]


def _precision(data: Sequence[DataSet], found: Sequence[Sequence[Detections]]) -> dict[str, float]:
    """3-D AP, moderate, of all frames together."""
    labels, results = {}, {}
    for number, (frames, boxes) in enumerate(zip(data, found, strict=True)):
        for frame, one in zip(frames, boxes, strict=True):
            labels[f"{number}-{frame.frame_id}"] = frame.objects
            results[f"{number}-{frame.frame_id}"] = detections_to_objects(
                one, frame.calibration, frame.image_size
            )
    judged = evaluate_kitti(labels, results)
    return {name: round(judged.ap(name, "3d", "moderate"), 2) for name in _CLASSES}


def _figures(pairs: list[SequencePair], name: str) -> dict[str, Any]:
    found = clear_measures(pairs, name).to_dict() | hota_measures(pairs, name).to_dict()
    return {figure: round(found[figure], 4) for figure in _FIGURES}


def _moving(data: Sequence[DataSet], tracked: Sequence[Sequence[Tracks]]) -> dict[str, int]:
    """Count observations of labelled objects by their motion and by the motion reported for the nearest
    track."""
    counts = dict.fromkeys(("moves, said", "moves, not said", "stands, said to move", "stands, not said"), 0)
    for frames, told in zip(data, tracked, strict=True):
        speeds = _speeds(list(frames))
        for frame, tracks in zip(frames, told, strict=True):
            places = moved_boxes(frame.boxes.astype(np.float64), _pose(frame))[:, :2]
            for row, key in enumerate([] if frame.track_ids is None else frame.track_ids.tolist()):
                away = np.hypot(*(tracks.map_boxes[:, :2] - places[row]).T)
                if frame.labels[row] not in _CLASSES or not len(away) or away.min() > _SAME_M:
                    continue
                said = bool(tracks.moving[int(away.argmin())])
                if speeds[key] > _MOVES_M_S:
                    counts["moves, said" if said else "moves, not said"] += 1
                else:
                    counts["stands, said to move" if said else "stands, not said"] += 1
    return counts


def _speeds(frames: Sequence[Frame]) -> dict[int, float]:
    """Return the speed of labelled objects in m/s, between the first and the last label."""
    seen: dict[int, list[tuple[int, Any]]] = {}
    for frame in frames:
        places = moved_boxes(frame.boxes.astype(np.float64), _pose(frame))
        for row, key in enumerate([] if frame.track_ids is None else frame.track_ids.tolist()):
            seen.setdefault(key, []).append((frame.time_ns or 0, places[row, :2]))
    return {
        key: float(np.hypot(*(sights[-1][1] - sights[0][1]))) / max((sights[-1][0] - sights[0][0]) / 1e9, 0.1)
        for key, sights in seen.items()
    }


def _pose(frame: Frame) -> Any:
    return np.eye(4) if frame.pose is None else frame.pose


def _by_frame(rows: TrackRows) -> TrackRows:
    return rows.rows(np.argsort(rows.frame, kind="stable"))
