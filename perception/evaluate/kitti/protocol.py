"""Rules of the KITTI object benchmark: difficulties, minimum overlaps, which objects count.

Source: KITTI object development kit (readme and ``evaluate_object.cpp``, 2017 and later).
docs/decisions/0003-kitti-evaluation.md lists every rule with the reason for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from perception.data.kitti import KittiDataSet
from perception.data.kitti.tracking import ObjectTable

#: Geometry of the overlap: image boxes, bird's-eye rectangles or volumes.
OverlapMetric = Literal["2d", "bev", "3d"]
#: Metrics of a precision-recall curve; ``"aos"`` is orientation similarity on 2D matches.
Metric = Literal["2d", "bev", "3d", "aos"]
DifficultyName = Literal["easy", "moderate", "hard"]

OVERLAP_METRICS: tuple[OverlapMetric, ...] = get_args(OverlapMetric)
METRICS: tuple[Metric, ...] = get_args(Metric)

#: The benchmark's classes.
CLASSES = ("Car", "Pedestrian", "Cyclist")
#: A match needs more overlap than this in every metric.
MIN_OVERLAPS = {"car": 0.7, "pedestrian": 0.5, "cyclist": 0.5}
#: Minimum overlap of classes outside the benchmark.
DEFAULT_MIN_OVERLAP = 0.5
#: Detections matched to a label of the neighbouring class are ignored.
NEIGHBOURS = {name.lower(): other.lower() for name, other in KittiDataSet.neighbours.items()}

#: Samples of a curve: recall 0, 1/40, ..., 1.
SAMPLE_COUNT = 41

# Roles of labels and detections while one class is evaluated at one difficulty.
EVALUATED, IGNORED, OTHER = 1, 0, -1
Roles = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Difficulty:
    """Labels that count at a difficulty; all others are ignored.

    Attributes:
        name: easy, moderate or hard.
        min_height_px: labels must be taller, detections at least as tall.
        max_occlusion: highest KITTI occlusion level.
        max_truncation: largest share outside the image.
    """

    name: DifficultyName
    min_height_px: int
    max_occlusion: int
    max_truncation: float


DIFFICULTIES = (
    Difficulty("easy", 40, 0, 0.15),
    Difficulty("moderate", 25, 1, 0.30),
    Difficulty("hard", 25, 2, 0.50),
)


def label_roles(labels: ObjectTable, class_name: str, difficulty: Difficulty) -> Roles:
    """Return the role of each label, (M,) int8.

    A label of the class counts unless it is too small, too occluded or too truncated. Otherwise, and for
    labels of the neighbouring class, a detection may match without being counted.
    """
    name = class_name.lower()
    height = labels.box_2d[:, 3] - labels.box_2d[:, 1]
    hard = (
        (labels.occluded > difficulty.max_occlusion)
        | (labels.truncated > difficulty.max_truncation)
        | (height <= difficulty.min_height_px)
    )
    own, neighbour = labels.type == name, labels.type == NEIGHBOURS.get(name, "")
    roles = np.where(own, np.where(hard, IGNORED, EVALUATED), np.where(neighbour, IGNORED, OTHER))
    return roles.astype(np.int8)


def detection_roles(detections: ObjectTable, class_name: str, difficulty: Difficulty) -> Roles:
    """Return the role of each detection, (M,) int8.

    Height takes precedence over class: a small detection of any class may take a label but is never a false
        positive.
    """
    height = np.abs(detections.box_2d[:, 1] - detections.box_2d[:, 3])
    own = detections.type == class_name.lower()
    roles = np.where(height < difficulty.min_height_px, IGNORED, np.where(own, EVALUATED, OTHER))
    return roles.astype(np.int8)


def officially_reported(detections: ObjectTable, class_name: str, metric: Metric) -> bool:
    """True if the official program evaluates this class and metric.

    It does so as soon as one detection of the class has what the metric needs. AOS also needs that no
    detection of any class has the placeholder alpha -10.
    """
    own = detections.type == class_name.lower()
    height, width, length = detections.size_m[own].T
    x, y, z = detections.location[own].T
    in_image = detections.box_2d[own, 0] >= 0
    on_ground = (x != -1000) & (z != -1000) & (width > 0) & (length > 0)
    if metric == "bev":
        return bool(on_ground.any())
    if metric == "3d":
        return bool((on_ground & (y != -1000) & (height > 0)).any())
    return bool(in_image.any()) and (metric == "2d" or has_orientation(detections))


def has_orientation(detections: ObjectTable) -> bool:
    """True if AOS is defined: no detection of any class has the placeholder alpha -10."""
    return not bool((detections.alpha == -10).any())
