"""The boxes protocol on any labelled data set; its results are ``detections.jsonl``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perception.boxes import along_axes
from perception.data import CameraObject, Frame, objects_from_boxes
from perception.data.camera import DONT_CARE
from perception.errors import DataError
from perception.evaluate.box_table import BoxTable, Mask
from perception.evaluate.boxes.evaluation import ClassMatching, evaluate_boxes, judge_boxes, judged_classes
from perception.evaluate.boxes.result import METRICS, BoxesResult
from perception.evaluate.judge import Judge, points_in_labels
from perception.evaluate.kitti.judge import in_picture
from perception.evaluate.resampling import RankingSampler
from perception.types import Boxes3D, Detections
from sparse_core.common.files import replacing

RESULTS_NAME = "detections.jsonl"


class BoxesJudge(Judge):
    """Judge for 3D and BEV AP, recall and errors, in the LiDAR frame.

    Some data sets are labelled inside a camera image only. There, boxes outside are excluded and reported.
    In KITTI, these are boxes that do not reach into the image, and detections that an unlabelled region
    covers by half. Elsewhere, they are boxes whose centre :meth:`~perception.data.Frame.covered` excludes.

    If the labels have no headings, detections become boxes along the axes.
    """

    protocol = "boxes"
    results = f"{RESULTS_NAME} written by perceive detect or perceive eval, or its folder"

    def write(self, directory: Path, detected: Iterable[tuple[Frame, Detections]]) -> Path:
        """Write one record per frame."""
        path = directory / RESULTS_NAME
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
            for frame, found in detected:
                record = {"frame": frame.frame_id, **found.to_dict()}
                record.pop("embeddings", None)
                stream.write(json.dumps(record) + "\n")
        return path

    def evaluate(self, results: Path) -> BoxesResult:
        """Evaluate results; see :func:`~perception.evaluate.boxes.evaluation.evaluate_boxes`."""
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

    def judged(self, results: Path) -> tuple[tuple[str, ...], dict[str, ClassMatching]]:
        """Return the frames, and the matches of each class."""
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
        """Return a sampler of 3D and BEV AP, with parts by range and points for 3D."""
        frames, judged = self.judged(results)
        rankings = {
            (name, metric.upper()): part.rankings[metric]
            for name, part in judged.items()
            for metric in METRICS
        }
        return RankingSampler(frames, rankings, main="3D")

    def tables(self, results: Path) -> tuple[tuple[str, ...], BoxTable, BoxTable, dict[str, int]]:
        """Return frames, labels, detections, and the number of excluded detections by reason."""
        records = read_records(results)
        wanted = list(self.data_set.frame_ids)
        missing = [frame_id for frame_id in wanted if frame_id not in records]
        choice = self.options.missing_results
        if missing and (choice == "error" or len(missing) == len(wanted)):
            raise DataError(
                f"{results}: no results for {len(missing)} of {len(wanted)} frames"
                f" ({', '.join(missing[:5])}). Detect in these frames too, or add"
                " --missing empty or --missing skip"
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
                left_out["labels outside the image"] += int((~seen).sum())
                truth = Boxes3D(truth.boxes[seen], [truth.labels[row] for row in np.flatnonzero(seen)])
                points, found = points[seen], _labelled_part(frame, found, left_out)
            elif (covered := frame.covered(truth.boxes)) is not None:
                left_out["labels with a centre outside the image"] += int((~covered).sum())
                truth = Boxes3D(truth.boxes[covered], [truth.labels[row] for row in np.flatnonzero(covered)])
                points, inside = points[covered], frame.covered(found.boxes)
                assert inside is not None
                reason = "detections with a centre outside the image, where nothing is labelled"
                left_out[reason] += int((~inside).sum())
                found = found[inside]
            if not self.data_set.headings:
                found = replace(found, boxes=along_axes(found.boxes))
            labels.append(BoxTable.of_frame(truth.boxes, truth.labels, points=points))
            detections.append(BoxTable.of_frame(found.boxes, found.labels, score=found.scores))
        return tuple(used), BoxTable.joined(labels), BoxTable.joined(detections), dict(+left_out)

    def _classes(self, labels: BoxTable, found: BoxTable) -> tuple[str, ...]:
        """Return all classes, without similar classes that are never detected."""
        names = judged_classes(labels, found, self.options.classes)
        if self.options.classes is not None:
            return names
        similar, detected = set(self.data_set.neighbours.values()), set(found.label.tolist())
        return tuple(name for name in names if name not in similar or name in detected)


def read_records(path: Path) -> dict[str, Detections]:
    """Read detections by frame. In records of ``perceive detect``, the scan's file name is the frame id.

    Raises:
        DataError: the file is missing or a line is not a record.
    """
    path = path / RESULTS_NAME if path.is_dir() else path
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read ({error}). Pass a {RESULTS_NAME}") from error
    records: dict[str, Detections] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record: dict[str, Any] = json.loads(line)
            name = str(record["frame"])
            found = Detections.from_dict(record)
            if not (np.isfinite(found.boxes).all() and np.isfinite(found.scores).all()):
                raise ValueError("a value is not finite")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path}: line {number} is not a detection record ({error}). Write the file anew with"
                " perceive detect"
            ) from error
        records[name] = found
    return records


def _in_picture(frame: Frame, boxes: Boxes3D | Detections) -> Mask:
    """Return an (M,) mask of boxes inside the camera image."""
    objects = _projected(frame, boxes)
    return np.array([in_picture(entry) for entry in objects], np.bool_)


def _projected(frame: Frame, boxes: Boxes3D | Detections) -> list[CameraObject]:
    return objects_from_boxes(boxes.boxes, boxes.labels, None, frame.calibration, image_size=frame.image_size)


def _labelled_part(frame: Frame, found: Detections, left_out: Counter[str]) -> Detections:
    """Return the detections inside the image and outside unlabelled regions."""
    seen = _in_picture(frame, found)
    left_out["detections outside the image, where nothing is labelled"] += int((~seen).sum())
    found = found[seen]
    objects = _projected(frame, found)
    boxes = np.array([entry.box_2d for entry in objects], np.float64).reshape(-1, 4)
    regions = [entry.box_2d for entry in frame.objects if entry.type == DONT_CARE]
    covered = _covered(boxes, np.array(regions, np.float64).reshape(-1, 4))
    left_out["detections in a region without labels"] += int(covered.sum())
    return found[~covered]


def _covered(boxes: np.ndarray[Any, Any], regions: np.ndarray[Any, Any]) -> Mask:
    """Return an (M,) mask of (M, 4) boxes that one (K, 4) region covers by at least half."""
    low = np.maximum(boxes[:, None, :2], regions[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], regions[None, :, 2:])
    shared = np.maximum(high - low, 0).prod(axis=2)
    area = np.maximum((boxes[:, 2:] - boxes[:, :2]).prod(axis=1), 1e-9)
    return np.asarray((shared >= 0.5 * area[:, None]).any(axis=1))
