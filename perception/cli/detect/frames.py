"""What ``perceive detect`` makes of a scan: detections, a record, pictures."""

from __future__ import annotations

import argparse
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from perception.cli.detect.budget import Budget, budget_of
from perception.cli.detect.crops import Crops
from perception.cli.options import range_of
from perception.cli.scans.dates import ScanDates, known_time
from perception.cli.scans.options import columns_of
from perception.cli.scans.scan import Scan
from perception.cli.scans.surroundings import Surroundings
from perception.data import Frame, frame_beside
from perception.detector import Detector
from perception.errors import DataError
from perception.io import load_point_cloud
from perception.io.addresses import download
from perception.io.transform import ScanTransform
from perception.types import Boxes3D, Detections, PointCloud
from sparse_core.errors import CapacityWarning


@dataclass(frozen=True, eq=False)
class ReadScan:
    """A scan, and the frame of the data set in which it lies."""

    cloud: PointCloud
    beside: Frame | None

    @property
    def truth(self) -> Boxes3D | None:
        """Of the data set in which the scan lies."""
        return self.beside.truth if self.beside is not None and self.beside.labelled else None


@dataclass(frozen=True, eq=False)
class DetectedFrame(ReadScan):
    """A scan, what was found in it, and what is written of that."""

    name: str
    detections: Detections
    elapsed_ms: float
    stages_ms: dict[str, float]
    budget_told: str
    record: dict[str, Any]


class ScanReader:
    """Reads scans as the options of the command say.

    Args:
        options: of the command line.
        transform: of the scans.
    """

    def __init__(self, options: argparse.Namespace, transform: ScanTransform) -> None:
        self._columns, self._transform = columns_of(options), transform

    def __call__(self, scan: Scan) -> ReadScan:
        """The scan, as its data set places it unless options say what the file is.

        Raises:
            DataError: it cannot be read.
        """
        if isinstance(scan.read, DataError):
            raise scan.read
        if scan.read is not None:
            return ReadScan(scan.read, None)
        if scan.address:
            with download(scan.address) as path:
                cloud = load_point_cloud(path, columns=self._columns, transform=self._transform)
            return ReadScan(replace(cloud, source=scan.address), None)
        beside = frame_beside(scan.path)
        if beside is not None and self._columns is None and self._transform == ScanTransform():
            return ReadScan(beside.cloud, beside)
        cloud = load_point_cloud(scan.path, columns=self._columns, transform=self._transform)
        return ReadScan(cloud, beside)


class FrameMaker:
    """Detects as the options of the command say.

    Args:
        options: of the command line.
        transform: of the scans.
        surroundings, crops: what records say beside the boxes.

    Attributes:
        read: reads a scan, without detecting.
        budget: of time or energy, if there is one.

    Raises:
        CheckpointError: no such weights.
        ValueError: options that contradict each other, no such device.
    """

    def __init__(
        self, options: argparse.Namespace, transform: ScanTransform, surroundings: Surroundings, crops: Crops
    ) -> None:
        self._options, self._surroundings, self._crops = options, surroundings, crops
        self.read, self._dates = ScanReader(options, transform), ScanDates(options)
        detector = Detector.from_pretrained(
            options.weights, device=options.device, precision=options.precision
        )
        if options.range is not None:
            detector = detector.with_range(range_of(options.range))
        self._least_scores = detector.config.nms.report_thresholds
        if options.score is not None:
            detector = detector.with_score_threshold(options.score)
        self._detector = detector
        self.budget: Budget | None = budget_of(options, detector)

    def __call__(self, scan: Scan) -> DetectedFrame:
        """Detect, and draw the picture if it was asked for; the record is the caller's to write, after.

        Raises:
            DataError: the scan cannot be used.
        """
        read, surroundings = self.read(scan), self._surroundings
        beside, cloud = read.beside, surroundings.timed(read.cloud, scan, read.beside)
        pose = surroundings.pose_of(
            scan.name, scan.position, cloud.timestamp_ns, beside, bag=scan.bag, sensor=scan.sensor
        )
        frame = self._detected(scan, cloud, beside, pose)
        if self._options.out is not None and not self._options.no_pictures:
            self._draw(scan, frame)
        return frame

    def _detected(
        self, scan: Scan, cloud: PointCloud, beside: Frame | None, pose: dict[str, Any]
    ) -> DetectedFrame:
        budget = self.budget
        used = self._detector if budget is None else budget.detector
        started = time.perf_counter()
        with nullcontext() if budget is None else budget.telling(scan.name), warnings.catch_warnings():
            # Shown with the frame: they are in detections.warnings too.
            warnings.simplefilter("ignore", CapacityWarning)
            detections = used(cloud)
        # Levels are measured in the first call, which is not the frame's time.
        elapsed_s = time.perf_counter() - started if budget is None else budget.detector.elapsed_s
        stages_ms = used.profile(cloud, repeats=10) if self._options.profile else {}
        record = {"frame": scan.name, **detections.to_dict(), "elapsed_ms": round(elapsed_s * 1e3, 2)}
        pose_ns = pose["pose"].get("time_ns") if pose else None
        record |= self._dates.fields(scan, known_time(cloud.timestamp_ns, pose_ns))
        # Also where lower scores were asked for: what a memory should take over of them.
        if self._least_scores:
            record["least_scores"] = self._least_scores
        record |= pose | self._surroundings.fields(cloud, detections)
        record |= {} if budget is None else budget.record()
        record |= self._crops.fields(scan.name, beside, detections)
        if stages_ms:
            record["stages_ms"] = {stage: round(value, 4) for stage, value in stages_ms.items()}
        told = "" if budget is None else budget.told()
        return DetectedFrame(cloud, beside, scan.name, detections, elapsed_s * 1e3, stages_ms, told, record)

    def _draw(self, scan: Scan, frame: DetectedFrame) -> None:
        from perception.visualise import draw_bev

        title = scan.path.name if scan.read is None else scan.name
        draw_bev(
            self._options.out / f"{scan.name}.png",
            frame.cloud,
            frame.detections,
            ground_truth=frame.truth,
            title=f"{title}: {len(frame.detections)} objects",
        )
