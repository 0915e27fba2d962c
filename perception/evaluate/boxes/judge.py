"""The protocol of boxes on any labelled data set: results are ``detections.jsonl``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from perception.data import CameraObject, Frame, objects_from_boxes
from perception.data.camera import DONT_CARE
from perception.errors import DataError
from perception.evaluate.box_table import BoxTable, Mask
from perception.evaluate.boxes.evaluation import Judged, evaluate_boxes, judge_boxes, judged_classes
from perception.evaluate.boxes.result import METRICS, BoxesResult
from perception.evaluate.judge import Judge, points_in_labels
from perception.evaluate.kitti.judge import in_picture
from perception.evaluate.resampling import RankingSampler
from perception.types import Boxes3D, Detections
from sparse_core.common.files import replacing

RESULTS_NAME = "detections.jsonl"


class BoxesJudge(Judge):
    """3-D and BEV AP, recall and errors, in the LiDAR frame.

    Where a data set is labelled in a camera's picture only (KITTI), boxes outside of it, and detections that
    a region without labels covers by half, are left out and told.
    """

    protocol = "boxes"
    results = f"{RESULTS_NAME} of perceive detect or perceive eval, or the folder of it"

    def write(self, directory: Path, detected: Iterable[tuple[Frame, Detections]]) -> Path:
        """A record a frame."""
        path = directory / RESULTS_NAME
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
            for frame, found in detected:
                record = {"frame": frame.frame_id, **found.to_dict()}
                record.pop("embeddings", None)
                stream.write(json.dumps(record) + "\n")
        return path

    def evaluate(self, results: Path) -> BoxesResult:
        """See :func:`~perception.evaluate.boxes.evaluate_boxes`."""
        frames, labels, found, left_out = self.tables(results)
        return evaluate_boxes(
            labels,
            found,
            classes=self._classes(labels, found),
            rules=self.options.rules,
            neighbours=self.data_set.neighbours,
            min_points=self.options.min_points,
            frame_count=len(frames),
            left_out=left_out,
        )

    def judged(self, results: Path) -> tuple[tuple[str, ...], dict[str, Judged]]:
        """The frames, and what is right of each class."""
        frames, labels, found, _ = self.tables(results)
        return frames, judge_boxes(
            labels,
            found,
            self._classes(labels, found),
            rules=self.options.rules,
            neighbours=self.data_set.neighbours,
            min_points=self.options.min_points,
        )

    def sampler(self, results: Path) -> RankingSampler:
        """3-D and BEV AP; the parts are of 3-D."""
        frames, judged = self.judged(results)
        rankings = {
            (name, metric.upper()): part.rankings[metric]
            for name, part in judged.items()
            for metric in METRICS
        }
        return RankingSampler(frames, rankings, main="3D")

    def tables(self, results: Path) -> tuple[tuple[str, ...], BoxTable, BoxTable, dict[str, int]]:
        """Frames, labels, detections, and how many detections were left out, by reason."""
        records = read_records(results)
        wanted = list(self.data_set.frame_ids)
        missing = [frame_id for frame_id in wanted if frame_id not in records]
        choice = self.options.missing_results
        if missing and (choice == "error" or len(missing) == len(wanted)):
            raise DataError(
                f"{results}: no results for {len(missing)} of {len(wanted)} frames ({', '.join(missing[:5])}"
                "); detect in these too, or say --missing empty or --missing skip"
            )
        used = [frame_id for frame_id in wanted if choice != "skip" or frame_id in records]
        labels, detections = [], []
        left_out: Counter[str] = Counter()
        for frame_id in used:
            frame = self.data_set.frame(frame_id)
            truth, points = frame.truth, points_in_labels(frame, frame.truth)
            found = records.get(frame_id) or Detections.empty()
            if self.data_set.evaluation == "kitti":
                seen = _in_picture(frame, truth)
                left_out["labels outside of the picture"] += int((~seen).sum())
                truth = Boxes3D(truth.boxes[seen], [truth.labels[row] for row in np.flatnonzero(seen)])
                points, found = points[seen], _labelled_part(frame, found, left_out)
            labels.append(BoxTable.of_frame(truth.boxes, truth.labels, points=points))
            detections.append(BoxTable.of_frame(found.boxes, found.labels, score=found.scores))
        return tuple(used), BoxTable.joined(labels), BoxTable.joined(detections), dict(+left_out)

    def _classes(self, labels: BoxTable, found: BoxTable) -> tuple[str, ...]:
        """All that occur; a neighbour that is never detected is only what its class may find."""
        names = judged_classes(labels, found, self.options.classes)
        if self.options.classes is not None:
            return names
        beside, detected = set(self.data_set.neighbours.values()), set(found.label.tolist())
        return tuple(name for name in names if name not in beside or name in detected)


def read_records(path: Path) -> dict[str, Detections]:
    """Detections by frame; the name of the scan's file counts where a record is of ``perceive detect``.

    Raises:
        DataError: no such file, or a line that is no record: both are named.
    """
    path = path / RESULTS_NAME if path.is_dir() else path
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); name a {RESULTS_NAME}") from error
    records: dict[str, Detections] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record: dict[str, Any] = json.loads(line)
            name = str(record["frame"])
            found = Detections.from_dict(record)
            if not (np.isfinite(found.boxes).all() and np.isfinite(found.scores).all()):
                raise ValueError("a number is not finite")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: line {number} is no record of a frame ({error})") from error
        records[name] = found
    return records


def _in_picture(frame: Frame, boxes: Boxes3D | Detections) -> Mask:
    """(M,) bool: boxes that the camera sees."""
    objects = _projected(frame, boxes)
    return np.array([in_picture(entry) for entry in objects], np.bool_)


def _projected(frame: Frame, boxes: Boxes3D | Detections) -> list[CameraObject]:
    return objects_from_boxes(boxes.boxes, boxes.labels, None, frame.calibration, image_size=frame.image_size)


def _labelled_part(frame: Frame, found: Detections, left_out: Counter[str]) -> Detections:
    """The detections where the camera sees and somebody labelled."""
    seen = _in_picture(frame, found)
    left_out["detections outside of the picture, where nothing is labelled"] += int((~seen).sum())
    found = found[seen]
    objects = _projected(frame, found)
    boxes = np.array([entry.box_2d for entry in objects], np.float64).reshape(-1, 4)
    regions = [entry.box_2d for entry in frame.objects if entry.type == DONT_CARE]
    covered = _covered(boxes, np.array(regions, np.float64).reshape(-1, 4))
    left_out["detections in a region without labels"] += int(covered.sum())
    return found[~covered]


def _covered(boxes: np.ndarray[Any, Any], regions: np.ndarray[Any, Any]) -> Mask:
    """(M,) bool: at least half of a box (M, 4) lies in one region (K, 4)."""
    low = np.maximum(boxes[:, None, :2], regions[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], regions[None, :, 2:])
    shared = np.maximum(high - low, 0).prod(axis=2)
    area = np.maximum((boxes[:, 2:] - boxes[:, :2]).prod(axis=1), 1e-9)
    return np.asarray((shared >= 0.5 * area[:, None]).any(axis=1))
