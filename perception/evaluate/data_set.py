"""Run a detector over a KITTI-layout data set and evaluate what it finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perception.detector import Detector
from perception.evaluate.kitti import KittiResult, evaluate_kitti
from perception.io.kitti import KittiCalibration, KittiDataset, KittiObject, objects_from_boxes, write_objects
from perception.types import Detections


def detections_to_objects(detections: Detections, calibration: KittiCalibration) -> list[KittiObject]:
    """KITTI result objects of the detections that the camera sees; the protocol knows no others."""
    objects = objects_from_boxes(detections.boxes, detections.labels, detections.scores, calibration)
    return [entry for entry in objects if _visible(entry)]


def _visible(entry: KittiObject) -> bool:
    left, top, right, bottom = entry.box_2d
    return entry.location[2] > 0 and right - left > 1 and bottom - top > 1


def write_results(
    detector: Detector,
    data_set: KittiDataset,
    directory: str | Path,
    *,
    on_frame: Callable[[str, Detections], None] | None = None,
) -> Path:
    """Detect in every frame and write KITTI result files, with all scores from ``nms.score_threshold`` on.

    Args:
        detector: what finds the objects; what it reports by class (``nms.report_thresholds``) is not looked
            at, as average precision needs low scores too.
        data_set: frames; their calibration turns boxes into the camera frame.
        directory: one ``<frame>.txt`` each is written here.
        on_frame: called after each frame.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    detector = detector.reporting_everything()
    for frame_id in data_set.frame_ids:
        frame = data_set.load(frame_id)
        detections = detector(frame.cloud)
        write_objects(directory / f"{frame_id}.txt", detections_to_objects(detections, frame.calibration))
        if on_frame is not None:
            on_frame(frame_id, detections)
    return directory


def evaluate_detector(
    detector: Detector,
    data_set: KittiDataset,
    directory: str | Path,
    *,
    on_frame: Callable[[str, Detections], None] | None = None,
) -> KittiResult:
    """AP of a detector on a data set with labels; result files are left in ``directory``."""
    results = write_results(detector, data_set, directory, on_frame=on_frame)
    return evaluate_kitti(
        data_set.folder / "label_2",
        results,
        classes=detector.config.head.classes,
        frame_ids=list(data_set.frame_ids),
    )
