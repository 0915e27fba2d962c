"""The frames of ``perceive detect``: detections, records and pictures of scans."""

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
from perception.cli.scans.sweeps import CommandSweeps
from perception.data import Frame, frame_beside
from perception.detector import Detector
from perception.errors import DataError
from perception.io import load_point_cloud
from perception.io.addresses import download
from perception.io.poses import ScanPose
from perception.io.transform import ScanTransform
from perception.types import Boxes3D, Detections, PointCloud
from sparse_core.common.console import LOG
from sparse_core.errors import CapacityWarning


@dataclass(frozen=True, eq=False)
class ReadScan:
    """A scan, and the frame of the data set that holds it, if any."""

    cloud: PointCloud
    beside: Frame | None

    @property
    def truth(self) -> Boxes3D | None:
        """Labels of the scan, or None."""
        return self.beside.truth if self.beside is not None and self.beside.labelled else None


@dataclass(frozen=True, eq=False)
class DetectedFrame(ReadScan):
    """A scan with its detections and its record."""

    name: str
    detections: Detections
    elapsed_ms: float
    stages_ms: dict[str, float]
    budget_title: str
    record: dict[str, Any]


class ScanReader:
    """Reader of scans, by the options of the command."""

    def __init__(self, options: argparse.Namespace, transform: ScanTransform) -> None:
        self._columns, self._transform = columns_of(options), transform

    def __call__(self, scan: Scan) -> ReadScan:
        """Read a scan, with the axes of its data set unless options describe the file.

        Raises:
            DataError: the scan is unreadable.
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
    """Detection by the options of the command.

    Args:
        options: options of the command.
        transform: transform of the scans.
        surroundings, crops: further fields of records.

    Attributes:
        read: reader of scans.
        budget: budget of time or energy, if any; known after :meth:`load`.
    """

    def __init__(
        self, options: argparse.Namespace, transform: ScanTransform, surroundings: Surroundings, crops: Crops
    ) -> None:
        self._options, self._surroundings, self._crops = options, surroundings, crops
        self.read, self._dates = ScanReader(options, transform), ScanDates(options)
        #: Past scans, for detectors that read several sweeps.
        self.sweeps = CommandSweeps(self._timed_scan)
        self._detector: Detector | None = None
        self._least_scores: dict[str, float] | None = None
        self.budget: Budget | None = None

    def load(self) -> Detector:
        """Load the detector of the options.

        Raises:
            CheckpointError: the weights do not exist or are damaged.
            ValueError: options conflict, or the device does not exist.
        """
        options, started_s = self._options, time.perf_counter()
        detector = Detector.from_pretrained(
            options.weights, device=options.device, precision=options.precision
        )
        if options.range is not None:
            detector = detector.with_range(range_of(options.range))
        if options.limits is not None:
            detector = detector.with_limits(options.limits)
        self._least_scores = detector.config.nms.report_thresholds
        if options.score is not None:
            detector = detector.with_score_threshold(options.score)
        self.budget = budget_of(options, detector)
        LOG.debug("loaded %s in %.1f s", options.weights, time.perf_counter() - started_s)
        self._detector = detector
        return detector

    def __call__(self, scan: Scan) -> DetectedFrame:
        """Detect, and draw the picture; the caller writes the record afterwards.

        Raises:
            DataError: the scan is unusable.
        """
        read = self.read(scan)
        cloud, pose = self._placed(scan, read)
        frame = self._detect(self._detector or self.load(), scan, cloud, read.beside, pose)
        if self._options.out is not None and not self._options.no_pictures:
            self._draw(scan, frame)
        return frame

    def _placed(self, scan: Scan, read: ReadScan) -> tuple[PointCloud, ScanPose | None]:
        """Return a scan with its time, and its pose."""
        surroundings, beside = self._surroundings, read.beside
        cloud = surroundings.timed(read.cloud, scan, beside)
        pose = surroundings.scan_pose(
            scan.name, scan.position, cloud.timestamp_ns, beside, bag=scan.bag, sensor=scan.sensor
        )
        return cloud, pose

    def _timed_scan(self, scan: Scan) -> tuple[PointCloud, ScanPose | None]:
        return self._placed(scan, self.read(scan))

    def _detect(
        self,
        detector: Detector,
        scan: Scan,
        cloud: PointCloud,
        beside: Frame | None,
        pose: ScanPose | None,
    ) -> DetectedFrame:
        budget = self.budget
        seen = self.sweeps.merge(detector.config.pillars, scan, cloud, pose)
        used = detector if budget is None else budget.detector
        started = time.perf_counter()
        with nullcontext() if budget is None else budget.log_levels(scan.name), warnings.catch_warnings():
            # detections.warnings has them, too.
            warnings.simplefilter("ignore", CapacityWarning)
            detections = used(seen)
        # The first call also measures the levels, which is not the time of the frame.
        elapsed_s = time.perf_counter() - started if budget is None else budget.detector.elapsed_s
        stages_ms = used.profile(seen, repeats=10) if self._options.profile else {}
        record = {"frame": scan.name, **detections.to_dict(), "elapsed_ms": round(elapsed_s * 1e3, 2)}
        pose_ns = None if pose is None else pose.time_ns
        record |= self._dates.fields(scan, known_time(cloud.timestamp_ns, pose_ns))
        # A memory imports only detections above these scores, even if --score is lower.
        if self._least_scores:
            record["least_scores"] = self._least_scores
        record |= {} if pose is None else {"pose": pose.to_dict()}
        record |= self._surroundings.fields(cloud, detections)
        record |= {} if budget is None else budget.record()
        record |= self._crops.fields(scan.name, beside, detections)
        if stages_ms:
            record["stages_ms"] = {stage: round(value, 4) for stage, value in stages_ms.items()}
        title = "" if budget is None else budget.title()
        return DetectedFrame(cloud, beside, scan.name, detections, elapsed_s * 1e3, stages_ms, title, record)

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
