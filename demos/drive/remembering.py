"""From scans to memories: detect, bring into the map, observe, consolidate, and look what is gone."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drive.frames import FIELD_DEG, RANGE_M, Frame
from memory import Memory, MemoryStore
from memory.config import StoreConfig
from memory.encode import SceneEncoder, detection_tokens, structure_tokens
from memory.merging import MergeOptions
from memory.persistence.filters import Filter
from memory.presence import PresenceOptions, look_again
from memory.reservoir import ReservoirConfig
from memory.visibility import Views
from perception import Detections, Detector

MAP, DETECTOR = "town", "pointpillars-kitti"
#: Least score of a detection that is remembered: people and cyclists raise more false alarms than cars.
LEAST_SCORE = {"Car": 0.5, "Pedestrian": 0.6, "Cyclist": 0.6}
#: Height above the ground between which a point hides what is behind it, relative to the sensor.
HIDING_M = (-1.4, -0.3)
MERGING = MergeOptions(max_distance_m=2.0)
#: Four sights of a thing an hour instead of one: their mean is a better place than the first.
CONFIG = StoreConfig(reservoir=ReservoirConfig(least=4), merging=MERGING)
#: Of ten parked cars about three leave their bay in a day; scans are less than a second apart.
PRESENCE = PresenceOptions(same=MERGING, prior=0.75, apart_s=0.5)


@dataclass
class Tally:
    """What became of the observations.

    Attributes:
        offered, kept: observations, and those of them that were stored when they came.
        dropped: not stored, by reason.
        displaced: stored, and later given up for better ones.
        merges: how many times memories became one.
        merged: memories that went into them, less their results.
        forgotten: over the capacity, by reason.
        gone: memories whose things were found to be gone.
        timeline: (offered, held) after each scan.
        detection_ms, observe_ms: of each scan; consolidation_s, presence_s: of each day.
    """

    offered: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    displaced: int = 0
    merges: int = 0
    merged: int = 0
    forgotten: Counter[str] = field(default_factory=Counter)
    gone: int = 0
    timeline: list[tuple[int, int]] = field(default_factory=list)
    detection_ms: list[float] = field(default_factory=list)
    observe_ms: list[float] = field(default_factory=list)
    consolidation_s: list[float] = field(default_factory=list)
    presence_s: list[float] = field(default_factory=list)

    @property
    def held(self) -> int:
        """Memories that there must be now: kept, less what was displaced, merged away and forgotten."""
        return self.kept - self.displaced - self.merged - self.forgotten.total()


class Look(NamedTuple):
    """A look at the world.

    Attributes:
        map_from_lidar: (4, 4) float64.
        time_ns: when.
        free_m: (bins,) float64, see :func:`free_distances`.
    """

    map_from_lidar: NDArray[np.float64]
    time_ns: int
    free_m: NDArray[np.float64]


class Robot:
    """Detects, remembers, and at the end of a day tidies up.

    Args:
        store: of 256 numbers a vector, that of :class:`SceneEncoder`.
        detector: finds objects in a scan; by default the shipped one.
        map_id: of the memories.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        detector: Callable[..., Detections] | None = None,
        map_id: str = MAP,
    ) -> None:
        self.store = store
        self.map_id = map_id
        self.tally = Tally()
        self.observations: list[Memory] = []
        self.lost: list[Memory] = []
        self.path: list[tuple[float, float]] = []
        self._detector = Detector.from_pretrained(DETECTOR) if detector is None else detector
        self._encoder = SceneEncoder.pretrained()
        self._today: list[Memory] = []
        self._looks: list[Look] = []

    def see(self, frame: Frame, *, ask_later: bool = False) -> NDArray[np.float32]:
        """Take in a scan; returns the vector of the place.

        Args:
            frame: with its pose.
            ask_later: the place itself is not remembered, so that it can be asked for.
        """
        started = time.perf_counter()
        detections = self._detector(frame.cloud)
        self.tally.detection_ms.append(1e3 * (time.perf_counter() - started))
        objects = memories_of(frame, detections, self.map_id)
        vector = self._vector(frame, detections)
        observed = objects if ask_later else [*objects, self._place(frame, vector)]
        started = time.perf_counter()
        result = self.store.observe_logged(observed)
        self.tally.observe_ms.append(1e3 * (time.perf_counter() - started))
        for memory, kept in zip(observed, result.kept, strict=True):
            if kept.id is None:
                self.tally.dropped[_kind_of_reason(kept.reason)] += 1
                self.lost.append(memory)
        self.tally.offered += len(observed)
        self.tally.kept += sum(kept.id is not None for kept in result.kept)
        self.tally.displaced += len(result.displaced)
        self.tally.timeline.append((self.tally.offered, len(self.store)))
        self.observations += observed
        self._today += objects
        self._looks.append(Look(frame.map_from_lidar, frame.time_ns, free_distances(frame)))
        self.path.append((float(frame.map_from_lidar[0, 3]), float(frame.map_from_lidar[1, 3])))
        return vector

    def end_day(self, now_ns: int) -> None:
        """Merge, forget, and mark what is gone."""
        started = time.perf_counter()
        done = self.store.consolidate(now_ns=now_ns)
        self.tally.consolidation_s.append(time.perf_counter() - started)
        self.tally.merges += len(done.merged)
        self.tally.merged += sum(len(sources) - 1 for _, sources in done.merged)
        self.tally.forgotten.update(_kind_of_reason(reason) for reason in done.forgotten.values())
        started = time.perf_counter()
        self.tally.gone += mark_gone(self.store, self._today, views_of(self._looks), self.map_id)
        self.tally.presence_s.append(time.perf_counter() - started)
        self._today, self._looks = [], []

    def _vector(self, frame: Frame, detections: Detections) -> NDArray[np.float32]:
        points = frame.cloud.points
        tokens = detection_tokens(detections.boxes, detections.labels, detections.scores)
        usable = points[np.isfinite(points).all(axis=1)]
        vector: NDArray[np.float32] = self._encoder.encode([tokens + structure_tokens(usable)])[0]
        return vector

    def _place(self, frame: Frame, vector: NDArray[np.float32]) -> Memory:
        pose = frame.map_from_lidar
        return Memory(
            time_ns=frame.time_ns,
            position=(float(pose[0, 3]), float(pose[1, 3]), float(pose[2, 3])),
            yaw=math.atan2(pose[1, 0], pose[0, 0]),
            map_id=self.map_id,
            kind="place",
            caption="stop" if frame.standing else "street",
            embedding=vector,
            evidence=frame.name,
            provenance="scene-encoder",
        )


def memories_of(frame: Frame, detections: Detections, map_id: str) -> list[Memory]:
    """Detections in range as objects in the map.

    They have no vector: at a distance one car looks like the next to a LiDAR, and what makes a parked car the
    same one is its place. A car that moved is gone here and new there.
    """
    found = []
    for box, score, label in zip(detections.boxes, detections.scores, detections.labels, strict=True):
        x, y, z, length, width, height, yaw = (float(value) for value in box)
        away = math.hypot(x, y)
        if away > RANGE_M or score < LEAST_SCORE.get(label, 0.5):
            continue
        place = frame.map_from_lidar @ np.array([x, y, z, 1.0])
        heading = frame.map_from_lidar[:3, :3] @ np.array([math.cos(yaw), math.sin(yaw), 0.0])
        sigma = 0.25 + 0.012 * away
        found.append(
            Memory(
                time_ns=frame.time_ns,
                position=(float(place[0]), float(place[1]), float(place[2])),
                yaw=math.atan2(heading[1], heading[0]),
                covariance=np.diag([sigma**2, sigma**2, 0.1]),
                map_id=map_id,
                label=label,
                confidence=min(float(score), 1.0),
                payload={"size_m": [round(length, 2), round(width, 2), round(height, 2)]},
                evidence=frame.name,
                provenance=f"detector/{DETECTOR}",
            )
        )
    return found


def free_distances(frame: Frame, bins: int = 100) -> NDArray[np.float64]:
    """(bins,) metres to the first thing as high as a car or a person, from right to left."""
    points = frame.cloud.points.astype(np.float64)
    low, high = HIDING_M
    points = points[(points[:, 2] > low) & (points[:, 2] < high)]
    share = (np.degrees(np.arctan2(points[:, 1], points[:, 0])) + FIELD_DEG) / (2 * FIELD_DEG)
    inside = (share >= 0) & (share < 1)
    free = np.full(bins, np.inf)
    np.minimum.at(
        free, (share[inside] * bins).astype(np.int64), np.hypot(points[inside, 0], points[inside, 1])
    )
    return free


def views_of(looks: Sequence[Look]) -> Views:
    """The looks of a day, from where what is near was seen whole to where detections are remembered."""
    poses = [look.map_from_lidar for look in looks]
    return Views(
        np.array([pose[:3, 3] for pose in poses]).reshape(-1, 3),
        np.array([math.atan2(pose[1, 0], pose[0, 0]) for pose in poses]),
        np.array([look.time_ns for look in looks], dtype=np.int64),
        # Where things come into view or leave it, the detector is not as sure as `detection_probability`.
        range_m=RANGE_M - 8.0,
        field_of_view_rad=math.radians(2 * FIELD_DEG - 10.0),
        near_m=4.0,
        free_m=np.stack([look.free_m for look in looks]) if looks else None,
    )


def mark_gone(store: MemoryStore, seen: Sequence[Memory], views: Views, map_id: str) -> int:
    """Say of what was looked for and not seen that it is gone; returns of how many."""
    known = store.find(
        Filter(map_id=map_id, kinds=("object",), states=("present", "unknown")), newest_first=False
    )
    if not known or not len(views):
        return 0
    change = look_again(known, seen, views, PRESENCE)
    gone = [
        memory.id
        for memory, presence in zip(known, change.known, strict=True)
        if presence.state in ("gone", "moved") and memory.id is not None
    ]
    store.mark(gone, "gone", why="its place was seen empty")
    return len(gone)


def _kind_of_reason(reason: str) -> str:
    """A reason without its numbers."""
    return re.sub(r"\s+", " ", re.sub(r"[-+]?\d+(\.\d+)?", "…", reason)).strip()
