"""The frames of ``perceive detect``: detections, records and pictures of scans."""

from __future__ import annotations

import argparse
import threading
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from perception.cli.console import counted
from perception.cli.detect.budget import Budget, budget_of
from perception.cli.detect.crops import Crops
from perception.cli.options import range_of
from perception.cli.scans.dates import ScanDates, known_time
from perception.cli.scans.reading import ReadScan, ScanReader
from perception.cli.scans.scan import Scan
from perception.cli.scans.surroundings import Surroundings
from perception.cli.scans.sweeps import CommandSweeps
from perception.detector import Detector
from perception.io.poses import ScanPose
from perception.io.transform import ScanTransform
from perception.types import Detections, PointCloud
from sparse_core.common.console import LOG
from sparse_core.errors import CapacityWarning


@dataclass(frozen=True, eq=False)
class PreparedScan(ReadScan):
    """A scan with its time, its pose and the fields of its record about places."""

    pose: ScanPose | None
    places: dict[str, Any]


@dataclass(frozen=True, eq=False)
class DetectedFrame(ReadScan):
    """A scan with its detections and its record."""

    name: str
    detections: Detections
    elapsed_ms: float
    stages_ms: dict[str, float]
    budget_title: str
    record: dict[str, Any]


class FrameMaker:
    """Detection by the options of the command.

    Args:
        options: options of the command.
        transform: transform of the scans.
        surroundings, crops: further fields of records.

    Attributes:
        crops: pictures of objects.
        budget: budget of time or energy, if any; known after :meth:`load`.
    """

    def __init__(
        self, options: argparse.Namespace, transform: ScanTransform, surroundings: Surroundings, crops: Crops
    ) -> None:
        self._options, self._surroundings, self.crops = options, surroundings, crops
        self._read, self._dates = ScanReader(options, transform), ScanDates(options)
        # Data sets and poses stay open between scans, for one thread at a time.
        self._reading = threading.Lock()
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

    def read(self, scan: Scan) -> ReadScan:
        """Read a scan; raise ``DataError`` if it is unreadable."""
        with self._reading:
            return self._read(scan)

    def prepare(self, scan: Scan) -> PreparedScan:
        """Do what a scan needs before its detection, in any thread.

        Raises:
            DataError: the scan is unusable.
        """
        with self._reading:
            read = self._read(scan)
            cloud, pose = self._surroundings.with_pose(scan, read)
            return PreparedScan(cloud, read.frame, pose, self._surroundings.places(cloud))

    def __call__(self, scan: Scan, read: PreparedScan) -> DetectedFrame:
        """Detect, and draw the picture; the caller writes the record afterwards.

        Raises:
            DataError: a file of the scan's data set is damaged.
        """
        frame = self._detect(self._detector or self.load(), scan, read)
        if self._options.out is not None and not self._options.no_pictures:
            self._draw(scan, frame)
        return frame

    def _timed_scan(self, scan: Scan) -> tuple[PointCloud, ScanPose | None]:
        with self._reading:
            return self._surroundings.with_pose(scan, self._read(scan))

    def _detect(self, detector: Detector, scan: Scan, read: PreparedScan) -> DetectedFrame:
        budget, cloud, pose = self.budget, read.cloud, read.pose
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
        record |= self._surroundings.fields(detections) | read.places
        record |= {} if budget is None else budget.record()
        record |= self.crops.fields(scan.name, read.frame, detections)
        if stages_ms:
            record["stages_ms"] = {stage: round(value, 4) for stage, value in stages_ms.items()}
        title = "" if budget is None else budget.title()
        elapsed_ms = elapsed_s * 1e3
        return DetectedFrame(cloud, read.frame, scan.name, detections, elapsed_ms, stages_ms, title, record)

    def _draw(self, scan: Scan, frame: DetectedFrame) -> None:
        from perception.visualise import draw_bev

        title = scan.path.name if scan.read is None else scan.name
        draw_bev(
            self._options.out / f"{scan.name}.png",
            frame.cloud,
            frame.detections,
            ground_truth=frame.truth,
            title=f"{title}: {counted(len(frame.detections), 'object')}",
        )
