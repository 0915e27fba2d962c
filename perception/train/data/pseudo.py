"""Pseudo-labels: confident detections that neighbouring scans confirm.

A detection becomes a label if its score is high enough and neighbouring scans have a detection of its class
at a consistent position in the world. With a memory, the mean score of its object decides if it is known
(:mod:`perception.train.data.evidence`). Doubtful detections are cut out of the scan together with their
points, so that they are learned neither as objects nor as background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from perception.data import CameraCalibration, Frame, objects_from_boxes
from perception.data.kitti import WHOLE_SCANS, KittiWriter
from perception.detector import Detector
from perception.train.data.evidence import BoolArray, KnownObjects, Pose, ScanDetections, evidence_of
from perception.train.data.objects import points_in_box
from perception.types import Detections, FloatArray, PointCloud


@dataclass(frozen=True)
class PseudoLabelling:
    """Settings of pseudo-labelling.

    Attributes:
        score: least score of a label, one for all classes; None: the detector's reporting thresholds.
        doubt: detections from this score on that do not become labels are cut out.
        window: number of scans before and after that can confirm a detection.
        agree: number of scans that must confirm a detection; fewer if fewer exist.
        near_m: greatest distance between centres of a static object.
        fastest_m_s: growth of that distance per second for moving objects.
        frame_s: time between scans without time stamps.
        mean_score: with a memory, least mean score of an object whose detections become labels, and least
            score of other labels.
        sights: number of observations from which the mean score of an object counts.
        faint: with a memory, detections from this score on can become labels.

    Raises:
        ValueError: a value is out of range.
    """

    score: float | None = None
    doubt: float = 0.2
    window: int = 2
    agree: int = 3
    near_m: float = 0.6
    fastest_m_s: float = 15.0
    frame_s: float = 0.1
    mean_score: float = 0.5
    sights: int = 10
    faint: float = 0.1

    def __post_init__(self) -> None:
        for name in ("score", "doubt", "mean_score", "faint"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {value}")
        if not 0 <= self.agree <= 2 * self.window:
            raise ValueError(f"agree must be at most twice the window of {self.window}, got {self.agree}")
        if min(self.near_m, self.fastest_m_s) < 0 or self.frame_s <= 0:
            raise ValueError("near_m and fastest_m_s must not be negative, and frame_s above 0")
        if self.sights < 1:
            raise ValueError(f"sights must be at least 1, got {self.sights}")


def seen_again(scans: Sequence[ScanDetections], at: int, options: PseudoLabelling) -> BoolArray:
    """Return an (M,) mask of detections in scan ``at`` that enough neighbouring scans confirm.

    Scans without poses confirm everything, because positions in the world are unknown.
    """
    scan = scans[at]
    first, last = max(0, at - options.window), min(len(scans), at + options.window + 1)
    others = [
        scans[number]
        for number in range(first, last)
        if number != at and scans[number].pose is not None and scan.pose is not None
    ]
    found = np.zeros(len(scan.detections), np.int64)
    labels, places = np.array(scan.detections.labels, dtype=object), scan.places()
    for other in others:
        theirs = np.array(other.detections.labels, dtype=object)
        reach_m = options.near_m + options.fastest_m_s * abs(other.time_s - scan.time_s)
        apart = np.linalg.norm(places[:, None] - other.places()[None], axis=2)
        found += ((apart <= reach_m) & (labels[:, None] == theirs[None])).any(axis=1)
    again: BoolArray = found >= min(options.agree, len(others))
    return again


@dataclass(frozen=True, eq=False)
class PseudoFrame:
    """A scan with pseudo-labels.

    Attributes:
        frame_id: of the scan.
        points: (N, 4) float32, without those of doubtful detections.
        boxes: (M, 7) float32; labels: M class names.
        doubtful: number of detections that were cut out.
    """

    frame_id: str
    points: FloatArray
    boxes: FloatArray
    labels: list[str]
    doubtful: int


def pseudo_labels(
    detector: Detector,
    frames: Sequence[Frame],
    options: PseudoLabelling | None = None,
    *,
    known: KnownObjects | None = None,
    poses: Callable[[Frame, int], tuple[Pose | None, int | None]] | None = None,
    on_frame: Callable[[int], None] | None = None,
) -> Iterator[PseudoFrame]:
    """Label the scans of one drive, in time order.

    Args:
        detector: source of the labels.
        frames: scans; read twice, and not kept in memory.
        options: settings.
        known: objects of a memory in the map of the poses; then tracks count as evidence too.
        poses: returns world_from_lidar and time in nanoseconds of a frame and its number; by default those of
            the frame.
        on_frame: called with the number of processed scans.

    Raises:
        DataError: a scan is unreadable.
    """
    settings = PseudoLabelling() if options is None else options
    everything, scans = detector.reporting_everything(), []
    least_score = settings.doubt if known is None else min(settings.doubt, settings.faint)
    for number, frame in enumerate(frames):
        pose, time_ns = (frame.pose, frame.time_ns) if poses is None else poses(frame, number)
        time_s = number * settings.frame_s if time_ns is None else time_ns / 1e9
        found = everything(frame.cloud)
        scans.append(ScanDetections(found[found.scores >= least_score], pose, time_s))
        if on_frame is not None:
            on_frame(number + 1)
    thresholds = detector.config.nms.report_thresholds
    chosen = choose_labels(scans, settings, thresholds, known=known)
    for frame, scan, sure in zip(frames, scans, chosen, strict=True):
        found = scan.detections
        yield _labelled(frame, found, sure, sure | (found.scores >= settings.doubt))


def choose_labels(
    scans: Sequence[ScanDetections],
    settings: PseudoLabelling,
    thresholds: Mapping[str, float],
    *,
    known: KnownObjects | None = None,
) -> list[BoolArray]:
    """Return which detections of each scan become labels.

    Args:
        scans: of one drive, in time order.
        settings: settings; their ``score`` overrides ``thresholds``.
        thresholds: least score of a label by class; ``doubt`` for other classes.
        known: see :func:`pseudo_labels`.
    """
    lowest = settings.doubt if settings.score is None else settings.score
    least = thresholds if settings.score is None else {}
    evidence = None if known is None else evidence_of(scans, known, sights=settings.sights)
    certain = [_without_faint(scan, settings.doubt) for scan in scans]
    chosen = []
    for number, scan in enumerate(scans):
        found = scan.detections
        sure = np.zeros(len(found), np.bool_)
        sure[found.scores >= settings.doubt] = seen_again(certain, number, settings)
        sure &= found.scores >= np.array([least.get(label, lowest) for label in found.labels])
        if evidence is not None:
            sure &= found.scores >= settings.mean_score
            sure |= evidence[number].supports(settings.mean_score)
            sure &= ~evidence[number].denies(settings.mean_score)
        chosen.append(sure)
    return chosen


def _without_faint(scan: ScanDetections, doubt: float) -> ScanDetections:
    return replace(scan, detections=scan.detections[scan.detections.scores >= doubt])


def _labelled(frame: Frame, found: Detections, sure: BoolArray, noticed: BoolArray) -> PseudoFrame:
    points, kept = frame.points, found[sure]
    doubtful = found[noticed & ~sure]
    covered = np.zeros(len(points), bool)
    for box in doubtful.boxes:
        covered |= points_in_box(points, box, margin_m=0.2)
    for box in kept.boxes:
        covered &= ~points_in_box(points, box)
    return PseudoFrame(frame.frame_id, points[~covered], kept.boxes, list(kept.labels), len(doubtful))


def write_pseudo_labels(frames: Iterator[PseudoFrame], folder: Path) -> dict[str, int]:
    """Write scans and labels as a KITTI object folder for ``perceive train --extra``.

    Args:
        frames: from :func:`pseudo_labels`.
        folder: created if missing; its split ``train`` lists all frames.

    Returns:
        Labels by class name; ``""`` counts the detections that were cut out.

    Raises:
        DataError: a file cannot be written.
    """
    writer, camera = KittiWriter(folder, WHOLE_SCANS), CameraCalibration.default()
    names, counts = [], {"": 0}
    for frame in frames:
        writer.write(
            frame.frame_id,
            PointCloud(frame.points),
            objects_from_boxes(frame.boxes, frame.labels, None, camera),
            camera,
        )
        names.append(frame.frame_id)
        counts[""] += frame.doubtful
        for label in frame.labels:
            counts[label] = counts.get(label, 0) + 1
    writer.write_split("train", names)
    return counts
