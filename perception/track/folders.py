"""Tracking of another detector's boxes, stored in KITTI's tracking layout.

seqmap.txt                     a line "SSSS empty 000000 frames" per sequence
detections*/CLASS/SSSS.txt     boxes, as AB3DMOT stores them (perception.data.kitti.tracking)
calib/SSSS.txt                 camera and LiDAR calibration
poses/SSSS.txt                 optional; a 3x4 row map_from_lidar per frame. SSSS/poses.txt is read too, and
                               poses.txt with the rows of all sequences in order
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from perception.data.camera import CameraCalibration, CameraObject
from perception.data.images import assumed_image_size
from perception.data.kitti.files import read_calibration
from perception.data.kitti.tracking import (
    TrackRows,
    read_detections,
    read_sequence_lengths,
    write_tracks,
)
from perception.data.projection import boxes_from_objects, objects_from_boxes
from perception.errors import DataError
from perception.io.poses import ScanPoses
from perception.track.config import TrackerConfig
from perception.track.odds import log_odds, probability
from perception.track.recording import Mode, Moment, track_recording
from perception.track.tracks import Tracks
from perception.types import Detections


@dataclass(frozen=True, eq=False)
class DetectionFolder:
    """A folder in the layout above.

    Raises:
        DataError: a file is missing or invalid.
    """

    path: Path

    @cached_property
    def lengths(self) -> dict[str, int]:
        """Frames per sequence."""
        return read_sequence_lengths(self.path / "seqmap.txt")

    @cached_property
    def classes(self) -> dict[str, Path]:
        """Folder of each class."""
        found = [folder for folder in sorted(self.path.glob("detections*")) if folder.is_dir()]
        if len(found) != 1:
            names = ", ".join(folder.name for folder in found) or "none"
            raise DataError(
                f"{self.path}: found {names}; keep exactly one folder detections*/ with one folder per class"
            )
        classes = {folder.name: folder for folder in sorted(found[0].iterdir()) if folder.is_dir()}
        if not classes:
            raise DataError(f"{found[0]}: no class folders; add one per class, such as Car/")
        return classes

    @cached_property
    def rows(self) -> dict[str, TrackRows]:
        """Boxes of each sequence, by frame."""
        found = {}
        for name, frames in self.lengths.items():
            parts = [read_detections(folder / f"{name}.txt", label) for label, folder in self.classes.items()]
            joined = TrackRows.joined(parts)
            if len(joined) and joined.frame.max() >= frames:
                raise DataError(
                    f"{self.path}: sequence {name} has boxes in frame {joined.frame.max()}, but seqmap.txt"
                    f" lists {frames} frames, numbered from 0; correct one of the two"
                )
            found[name] = joined.rows(np.argsort(joined.frame, kind="stable"))
        return found

    @cached_property
    def scores_are_log_odds(self) -> bool:
        """True if any score lies outside [0, 1]."""
        return any(((rows.score < 0) | (rows.score > 1)).any() for rows in self.rows.values())

    def calibration(self, name: str) -> CameraCalibration:
        """Return the calibration of a sequence."""
        return read_calibration(self.path / "calib" / f"{name}.txt")

    def poses(self, name: str) -> Callable[[int], np.ndarray] | None:
        """Return a function from frame to pose, (4, 4) map_from_lidar; None if the sequence has no poses."""
        for path in (self.path / "poses" / f"{name}.txt", self.path / name / "poses.txt"):
            if path.is_file():
                own = ScanPoses(path)
                return lambda frame: own.find(str(frame), frame).map_from_lidar
        path = self.path / "poses.txt"
        if not path.is_file():
            return None
        every = ScanPoses(path)
        before = sum(list(self.lengths.values())[: list(self.lengths).index(name)])
        return lambda frame: every.find(str(before + frame), before + frame).map_from_lidar

    def moments(self, name: str) -> list[Moment]:
        """Return the frames of a sequence, with boxes in the LiDAR frame and scores as probabilities."""
        rows, calibration, poses = self.rows[name], self.calibration(name), self.poses(name)
        boxes = boxes_from_objects(camera_objects(rows), calibration).boxes
        scores = (probability(rows.score) if self.scores_are_log_odds else rows.score).astype(np.float32)
        edges = np.searchsorted(rows.frame, np.arange(self.lengths[name] + 1)).tolist()
        labels = rows.type.tolist()
        return [
            Moment(
                Detections(boxes[low:high], scores[low:high], labels[low:high], source=f"{name}/{frame:06d}"),
                None if poses is None else poses(frame),
            )
            for frame, (low, high) in enumerate(pairwise(edges))
        ]

    @property
    def config(self) -> TrackerConfig:
        """Tracker settings for the scores of this folder."""
        return TrackerConfig.for_log_odds() if self.scores_are_log_odds else TrackerConfig()

    def track(self, name: str, mode: Mode, config: TrackerConfig | None = None) -> TrackRows:
        """Return the tracks of a sequence as rows of a result file, scored like the input boxes."""
        tracks = track_recording(self.moments(name), self.config if config is None else config, mode=mode)
        return rows_of_tracks(list(tracks), self.calibration(name), log_odds_scores=self.scores_are_log_odds)


def rows_of_tracks(
    frames: list[Tracks], calibration: CameraCalibration, *, log_odds_scores: bool = False
) -> TrackRows:
    """Return the tracks of a sequence as rows of a KITTI tracking file.

    Args:
        frames: tracks of each frame, from 0. Boxes behind the camera or outside its image are dropped.
        calibration: of the camera.
        log_odds_scores: write scores as log-odds, not as probabilities.
    """
    parts, size = [TrackRows.empty()], assumed_image_size(calibration)
    for number, tracks in enumerate(frames):
        scores = log_odds(tracks.scores) if log_odds_scores else tracks.scores.astype(np.float64)
        objects = objects_from_boxes(tracks.boxes, tracks.labels, scores, calibration, image_size=size)
        seen = [at for at, item in enumerate(objects) if _has_area(item)]
        if seen:
            parts.append(_rows(number, [objects[at] for at in seen], tracks.track_id[seen]))
    return TrackRows.joined(parts)


def track_folder(path: Path, out: Path, *, mode: Mode = "online") -> dict[str, int]:
    """Track all sequences of a folder and write ``OUT/SSSS.txt`` for each.

    Args:
        path: folder in the layout of this module.
        out: output folder; created if missing.
        mode: see :func:`~perception.track.track_recording`.

    Returns:
        Frames per sequence.

    Raises:
        DataError: a file is missing or invalid.
    """
    folder = DetectionFolder(path)
    out.mkdir(parents=True, exist_ok=True)
    for name in folder.lengths:
        write_tracks(out / f"{name}.txt", folder.track(name, mode))
    return folder.lengths


def _has_area(item: CameraObject) -> bool:
    left, top, right, bottom = item.box_2d
    return right > left and bottom > top


def camera_objects(rows: TrackRows) -> list[CameraObject]:
    """Return rows as camera objects that carry only a class and a 3D box."""
    nowhere = (0.0, 0.0, 0.0, 0.0)
    return [
        CameraObject(label, -1.0, -1, 0.0, nowhere, height, width, length, (x, y, z), turn)
        for label, (height, width, length), (x, y, z), turn in zip(
            rows.type.tolist(),
            rows.size_m.tolist(),
            rows.location.tolist(),
            rows.rotation_y.tolist(),
            strict=True,
        )
    ]


def _rows(frame: int, objects: list[CameraObject], track_id: np.ndarray) -> TrackRows:
    count = len(objects)
    return TrackRows(
        frame=np.full(count, frame, np.int64),
        track_id=track_id,
        type=np.array([item.type for item in objects], np.str_),
        truncated=np.full(count, -1.0),
        occluded=np.full(count, -1, np.int64),
        alpha=np.array([item.alpha for item in objects]),
        box_2d=np.array([item.box_2d for item in objects]),
        size_m=np.array([(item.height_m, item.width_m, item.length_m) for item in objects]),
        location=np.array([item.location for item in objects]),
        rotation_y=np.array([item.rotation_y for item in objects]),
        score=np.array([item.score for item in objects], np.float64),
    )
