"""Evidence for and against detections: mean scores of tracks and of remembered objects.

A false detection can recur in every scan: a pole that looks like a person also does so from the next place.
Its scores stay low, while those of a real object rise as the sensor comes nearer. So the mean score over all
observations of an object decides about each of its detections.

A memory has the mean scores of static objects, over all visits. Tracks have those of the objects of a drive,
also moving ones. The memory does not decide about moving objects, which only pass the places of others.
``perception`` does not import ``memory``: the entry point group ``sparsight.evidence`` returns what a store
knows as plain values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.extensions import as_value_error, installed
from perception.track.recording import Moment, track_recording
from perception.types import Detections

GROUP = "sparsight.evidence"
BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
Pose = npt.NDArray[np.float64]

#: Greatest distance on the ground between a detection and a remembered object at its place.
_NEAR_M = 1.0


@dataclass(frozen=True, eq=False)
class ScanDetections:
    """Detections of a scan.

    Attributes:
        detections: in the LiDAR frame.
        pose: (4, 4) world_from_lidar, or None.
        time_s: of the scan.
    """

    detections: Detections
    pose: Pose | None
    time_s: float

    def places(self) -> Float64Array:
        """Return (M, 3) centres in the world; in the LiDAR frame without a pose."""
        centres = self.detections.boxes[:, :3].astype(np.float64)
        return centres if self.pose is None else centres @ self.pose[:3, :3].T + self.pose[:3, 3]


class KnownObjects(NamedTuple):
    """Static objects that a memory knows.

    Attributes:
        labels: (K,) class names.
        places: (K, 3) float64 centres in metres of the map.
        scores: (K,) float64 mean scores of their observations.
        sights: (K,) int64 number of observations.
        away: (K,) bool, True if the object was seen to have left.
        last_s: (K,) float64 time of the last observation, seconds since the epoch.
    """

    labels: npt.NDArray[np.object_]
    places: Float64Array
    scores: Float64Array
    sights: npt.NDArray[np.int64]
    away: BoolArray
    last_s: Float64Array

    @classmethod
    def of(cls, objects: Sequence[dict[str, Any]]) -> KnownObjects:
        """Return objects that an entry point of ``sparsight.evidence`` gave."""
        return cls(
            np.array([item["label"] for item in objects], dtype=object),
            np.array([item["position"] for item in objects], np.float64).reshape(-1, 3),
            np.array([item["confidence"] for item in objects], np.float64),
            np.array([item["sights"] for item in objects], np.int64),
            np.array([item["state"] in ("gone", "moved") for item in objects], np.bool_),
            np.array([item["last_ns"] for item in objects], np.float64) / 1e9,
        )


def read_known(store: str, map_id: str = "default") -> KnownObjects:
    """Return the objects of a memory store.

    Args:
        store: folder, or address of a database.
        map_id: map of the poses.

    Raises:
        ImportError: no memory is installed.
        ValueError: the store cannot be read.
    """
    known_objects = installed(GROUP, "memory")
    with as_value_error(store):
        return KnownObjects.of(known_objects(store, map_id))


class DetectionEvidence(NamedTuple):
    """Evidence about the detections of a scan.

    Attributes:
        remembered: (M,) float64 mean score of the remembered object at the place, NaN without one, and for
            moving objects.
        tracked: (M,) float64 mean score of the track, NaN without one.
        vacant: (M,) bool, True if the object at the place had been seen to have left.
    """

    remembered: Float64Array
    tracked: Float64Array
    vacant: BoolArray

    def supports(self, least: float) -> BoolArray:
        """Return which detections an object with at least this mean score confirms."""
        return (self.remembered >= least) | (self.tracked >= least)

    def denies(self, least: float) -> BoolArray:
        """Return which detections belong to an object with a lower mean score, or to one that left."""
        return (self.remembered < least) | (self.tracked < least) | self.vacant


def evidence_of(
    scans: Sequence[ScanDetections], known: KnownObjects, *, sights: int
) -> list[DetectionEvidence]:
    """Return the evidence about all detections of a drive.

    Args:
        scans: of the drive, in order of time.
        known: objects of a memory, in the map of the poses.
        sights: number of observations from which the mean score of an object counts.
    """
    evidence = []
    for scan, (tracked, moving) in zip(scans, _track_scores(scans, sights), strict=True):
        remembered, vacant = _remembered(scan, known, sights)
        remembered[moving] = np.nan
        evidence.append(DetectionEvidence(remembered, tracked, vacant & ~moving))
    return evidence


def _remembered(scan: ScanDetections, known: KnownObjects, sights: int) -> tuple[Float64Array, BoolArray]:
    """Return the mean scores of remembered objects, and which detections are of objects that left."""
    count = len(scan.detections)
    scores, vacant = np.full(count, np.nan), np.zeros(count, np.bool_)
    if scan.pose is None or not count or not len(known.labels):
        return scores, vacant
    labels = np.array(scan.detections.labels, dtype=object)
    apart = np.linalg.norm(scan.places()[:, None, :2] - known.places[None, :, :2], axis=2)
    here = (apart <= _NEAR_M) & (labels[:, None] == known.labels[None])
    left = known.away & (known.last_s < scan.time_s)
    enough = here & (known.sights >= sights) & ~left
    nearest = np.where(enough, apart, np.inf).argmin(axis=1)
    found = enough.any(axis=1)
    scores[found] = known.scores[nearest[found]]
    vacant |= (here & left).any(axis=1) & ~(here & ~left).any(axis=1)
    return scores, vacant


def _track_scores(scans: Sequence[ScanDetections], sights: int) -> list[tuple[Float64Array, BoolArray]]:
    """Return mean score and motion of the track of each detection.

    The mean is NaN for short tracks, and for detections of another class than the track's.
    """
    moments = (Moment(scan.detections, scan.pose, round(scan.time_s * 1e9)) for scan in scans)
    members: dict[int, list[_Member]] = defaultdict(list)
    labels: dict[int, str] = {}
    for number, tracks in enumerate(track_recording(moments, mode="global")):
        for at in np.flatnonzero(tracks.row >= 0).tolist():
            track, row = int(tracks.track_id[at]), int(tracks.row[at])
            score = float(scans[number].detections.scores[row])
            members[track].append(_Member(number, row, score, bool(tracks.moving[at])))
            labels[track] = tracks.labels[at]
    found = [
        (np.full(len(scan.detections), np.nan), np.zeros(len(scan.detections), np.bool_)) for scan in scans
    ]
    for track, seen in members.items():
        mean = float(np.mean([member.score for member in seen])) if len(seen) >= sights else np.nan
        moving = 2 * sum(member.moving for member in seen) > len(seen)
        for member in seen:
            if scans[member.scan].detections.labels[member.row] == labels[track]:
                found[member.scan][0][member.row] = mean
            found[member.scan][1][member.row] = moving
    return found


class _Member(NamedTuple):
    scan: int
    row: int
    score: float
    moving: bool
