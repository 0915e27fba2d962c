"""The KITTI protocol on a data set with a camera; results are a folder of KITTI files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perception.data import CameraCalibration, CameraObject, Frame, objects_from_boxes
from perception.data.camera import DEFAULT_IMAGE_SIZE
from perception.data.kitti import write_objects
from perception.evaluate.judge import Judge, points_in_labels
from perception.evaluate.kitti.evaluation import evaluate_kitti
from perception.evaluate.kitti.protocol import CLASSES
from perception.evaluate.kitti.resampling import KittiSampler
from perception.evaluate.kitti.result import KittiResult
from perception.types import Detections


def detections_to_objects(
    detections: Detections,
    calibration: CameraCalibration,
    image_size: tuple[int, int] = DEFAULT_IMAGE_SIZE,
) -> list[CameraObject]:
    """Convert the detections inside the camera image to KITTI result objects.

    Args:
        detections: of a frame.
        calibration: of its camera.
        image_size: width and height in pixels.
    """
    objects = objects_from_boxes(
        detections.boxes, detections.labels, detections.scores, calibration, image_size=image_size
    )
    return [entry for entry in objects if in_picture(entry)]


def in_picture(entry: CameraObject) -> bool:
    """True if an object lies in front of the camera and at least partly inside the image."""
    x0, y0, x1, y1 = entry.box_2d
    return entry.location[2] > 0 and x1 - x0 > 1 and y1 - y0 > 1


class KittiJudge(Judge):
    """Judge for the KITTI object benchmark."""

    protocol = "kitti"
    results = "a folder of KITTI result files, one .txt per frame"

    def write(self, directory: Path, detected: Iterable[tuple[Frame, Detections]]) -> Path:
        """Write one ``<frame>.txt`` per frame."""
        for frame, found in detected:
            objects = detections_to_objects(found, frame.calibration, frame.image_size)
            write_objects(directory / f"{frame.frame_id}.txt", objects)
        return directory

    def evaluate(self, results: Path) -> KittiResult:
        """Evaluate results; see :func:`~perception.evaluate.kitti.evaluate_kitti`."""
        labels = {frame.frame_id: frame.objects for frame in self.data_set}
        return evaluate_kitti(
            labels,
            results,
            classes=self.options.classes or CLASSES,
            missing_results=self.options.missing_results,
        )

    def sampler(self, results: Path) -> KittiSampler:
        """Return a sampler of AP, with recall by points if all scans and calibrations exist."""
        labels = {frame.frame_id: frame.objects for frame in self.data_set}
        counted = all(frame.calibrated and frame.source is not None for frame in self.data_set)
        points = (
            {frame.frame_id: points_in_labels(frame, frame.truth) for frame in self.data_set}
            if counted
            else None
        )
        return KittiSampler(
            labels,
            results,
            classes=self.options.classes or CLASSES,
            points=points,
            missing_results=self.options.missing_results,
        )
