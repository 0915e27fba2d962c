"""Percepts of a scan: detections, the place vector, and free distances."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drive.frames import FIELD_DEG, RANGE_M, Frame
from memory import Memory
from memory.encode import SceneEncoder, detection_tokens, structure_tokens
from perception import Detections, Detector

DETECTOR = "pointpillars-kitti"
#: Least score of a remembered detection; people and cyclists have more false positives than cars.
LEAST_SCORE = {"Car": 0.5, "Pedestrian": 0.6, "Cyclist": 0.6}
#: Column width of place vectors; narrower than the default, because places are found more often.
COLUMN_M = 1.0
#: Name of the object embeddings; places use the scene encoder's vectors as default.
VECTORS = "detector"
#: Heights, relative to the sensor, of points that occlude what is behind them.
HIDING_M = (-1.4, -0.3)


class Percept(NamedTuple):
    """Perception of a scan; together with the pose, the source of all memories.

    Attributes:
        detections: in the LiDAR frame.
        vector: (256,) float32, of the place.
        free_m: (bins,) float64, see :func:`free_distances`.
        detection_ms: time of the detector.
    """

    detections: Detections
    vector: NDArray[np.float32]
    free_m: NDArray[np.float64]
    detection_ms: float


class Senses:
    """Detector and scene encoder.

    Args:
        detector: finds objects in a scan; by default the shipped one.
    """

    def __init__(self, detector: Callable[..., Detections] | None = None) -> None:
        # The encoder was trained on all boxes, including those below the reporting thresholds.
        every = Detector.from_pretrained(DETECTOR).reporting_everything() if detector is None else detector
        self._detector: Callable[..., Detections] = every
        self._encoder = SceneEncoder.pretrained()

    def __call__(self, frame: Frame) -> Percept:
        """Perceive a scan."""
        started = time.perf_counter()
        detections = self._detector(frame.cloud)
        took = 1e3 * (time.perf_counter() - started)
        points = frame.cloud.points
        tokens = detection_tokens(detections.boxes, detections.labels, detections.scores)
        usable = points[np.isfinite(points).all(axis=1)]
        columns = structure_tokens(usable, cell_m=COLUMN_M, most=4096)
        vector: NDArray[np.float32] = self._encoder.encode([tokens + columns])[0]
        return Percept(detections, vector, free_distances(frame), took)


def rememberable(detections: Detections, range_m: float = RANGE_M) -> NDArray[np.bool_]:
    """Return an (M,) mask of detections in range and confident enough to remember."""
    away = np.hypot(detections.boxes[:, 0], detections.boxes[:, 1])
    least = np.array([LEAST_SCORE.get(label, 0.5) for label in detections.labels])
    found: NDArray[np.bool_] = (away <= range_m) & (detections.scores >= least)
    return found


def memories_of(
    frame: Frame, detections: Detections, map_id: str, *, range_m: float = RANGE_M
) -> list[Memory]:
    """Return detections in range as objects in the map.

    The detector's embeddings, if its weights have them, are stored for queries only. At a distance, cars look
    alike to a LiDAR, so a parked car is identified by its place. A car that moved is gone at its old place
    and new at the other.
    """
    detections = detections[rememberable(detections, range_m)]
    found = []
    for row, (box, score, label) in enumerate(detections):
        x, y, z, length, width, height, yaw = (float(value) for value in box)
        away = math.hypot(x, y)
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
                embeddings={} if detections.embeddings is None else {VECTORS: detections.embeddings[row]},
                evidence=frame.name,
                provenance=f"detector/{DETECTOR}",
            )
        )
    return found


def place_of(frame: Frame, vector: NDArray[np.float32], map_id: str) -> Memory:
    """Return the robot's place with the vector of its surroundings."""
    pose = frame.map_from_lidar
    return Memory(
        time_ns=frame.time_ns,
        position=(float(pose[0, 3]), float(pose[1, 3]), float(pose[2, 3])),
        yaw=math.atan2(pose[1, 0], pose[0, 0]),
        map_id=map_id,
        kind="place",
        caption="stop" if frame.standing else "street",
        embedding=vector,
        evidence=frame.name,
        provenance="scene-encoder",
    )


def free_distances(frame: Frame, bins: int = 100) -> NDArray[np.float64]:
    """Return (bins,) metres to the first object as high as a car or a person, from right to left."""
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
