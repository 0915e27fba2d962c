"""Run a detector over a data set and evaluate what it finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perception.data import CameraCalibration, CameraObject, DataSet, Frame, objects_from_boxes
from perception.data.kitti import write_objects
from perception.detector import Detector
from perception.errors import DataError
from perception.evaluate.kitti import KittiResult, evaluate_kitti
from perception.types import Detections


def detections_to_objects(detections: Detections, calibration: CameraCalibration) -> list[CameraObject]:
    """KITTI result objects of the detections that the camera sees; the protocol knows no others."""
    objects = objects_from_boxes(detections.boxes, detections.labels, detections.scores, calibration)
    corners = [(entry, *entry.box_2d) for entry in objects if entry.location[2] > 0]
    return [entry for entry, x0, y0, x1, y1 in corners if x1 - x0 > 1 and y1 - y0 > 1]


def evaluate_detector(
    detector: Detector,
    data_set: DataSet,
    directory: str | Path,
    *,
    on_frame: Callable[[Frame, Detections], None] | None = None,
) -> KittiResult:
    """Detect in every frame, write KITTI result files, and evaluate these against the labels.

    Args:
        detector: what finds the objects; what it reports by class (``nms.report_thresholds``) is not looked
            at: all scores from ``nms.score_threshold`` on count.
        data_set: frames with labels; their calibration turns boxes into the camera frame.
        directory: one ``<frame>.txt`` each is written here, and left.
        on_frame: called after each frame.

    Raises:
        DataError: the data set has no labels, or a frame cannot be read.
    """
    if data_set.evaluation != "kitti" or not any(frame.labelled for frame in data_set):
        raise DataError(f"{data_set.folder}: no labels to evaluate with; name a data set that has labels")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    detector, labels = detector.reporting_everything(), {}
    for frame in data_set:
        detections = detector(frame.cloud)
        objects = detections_to_objects(detections, frame.calibration)
        write_objects(directory / f"{frame.frame_id}.txt", objects)
        labels[frame.frame_id] = frame.objects
        if on_frame is not None:
            on_frame(frame, detections)
    return evaluate_kitti(labels, directory, classes=detector.config.head.classes)
