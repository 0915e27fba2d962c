"""Overlap of labels and detections as the KITTI benchmark defines it, for all frames at once.

All metrics are computed in the camera frame from the numbers in the files. Image overlaps use the same
operations in the same order as the official program, so they are bit-identical. Ground rectangles use
``perception.boxes`` (x, z and -rotation_y of the camera frame) and agree with the official polygon clipping
up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from perception.boxes import circles_meet, circumscribed_radius, rotated_iou_pairs
from perception.data.kitti.tracking import ObjectTable
from perception.evaluate.box_table import Float64Array
from perception.evaluate.greedy import frame_pairs
from perception.evaluate.kitti.protocol import OVERLAP_METRICS, OverlapMetric

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Overlaps:
    """Pairs of a label and a detection of the same frame that overlap in some metric.

    Attributes:
        label: (P,) int64 rows of the label table.
        detection: (P,) int64 rows of the detection table.
        over_union: metric to (P,) float64 intersection over union.
        over_detection: metric to (P,) float64 share of the detection that the label covers.
    """

    label: Rows
    detection: Rows
    over_union: dict[OverlapMetric, Float64Array]
    over_detection: dict[OverlapMetric, Float64Array]


def find_overlaps(labels: ObjectTable, detections: ObjectTable) -> Overlaps:
    """Compute the overlaps of every label with every detection of its frame; disjoint pairs are dropped."""
    with np.errstate(all="ignore"):  # empty boxes divide zero by zero; _Intersections turns that into 0
        pairs = frame_pairs(labels.frame, detections.frame)
        chunks = [_overlaps_of(labels, detections, *rows) for rows in pairs]
    return Overlaps(
        label=np.concatenate([chunk.label for chunk in chunks]),
        detection=np.concatenate([chunk.detection for chunk in chunks]),
        over_union=_joined([chunk.over_union for chunk in chunks]),
        over_detection=_joined([chunk.over_detection for chunk in chunks]),
    )


def largest_coverage(overlaps: Overlaps, metric: OverlapMetric, detection_count: int) -> Float64Array:
    """Return the largest share of each detection that one label covers, (M,)."""
    covered = np.zeros(detection_count)
    np.maximum.at(covered, overlaps.detection, overlaps.over_detection[metric])
    return covered


def _joined(chunks: list[dict[OverlapMetric, Float64Array]]) -> dict[OverlapMetric, Float64Array]:
    return {metric: np.concatenate([chunk[metric] for chunk in chunks]) for metric in OVERLAP_METRICS}


def _overlaps_of(labels: ObjectTable, detections: ObjectTable, label: Rows, detection: Rows) -> Overlaps:
    shared = {"2d": _image_intersections(labels.box_2d[label], detections.box_2d[detection])}
    shared["bev"] = _ground_intersections(labels, detections, label, detection)
    shared["3d"] = _volume_intersections(labels, detections, label, detection, shared["bev"].shared)
    meet = np.logical_or.reduce([sizes.shared > 0 for sizes in shared.values()])
    return Overlaps(
        label=label[meet],
        detection=detection[meet],
        over_union={metric: shared[metric].over_union()[meet] for metric in OVERLAP_METRICS},
        over_detection={metric: shared[metric].over_detection()[meet] for metric in OVERLAP_METRICS},
    )


@dataclass(frozen=True, eq=False)
class _Intersections:
    """Intersections and sizes of aligned pairs, each (P,): square pixels, square metres or cubic metres."""

    shared: Float64Array
    label: Float64Array
    detection: Float64Array

    def over_union(self) -> Float64Array:
        return _ratio(self.shared, self.detection + self.label - self.shared)

    def over_detection(self) -> Float64Array:
        return _ratio(self.shared, self.detection)


def _ratio(part: Float64Array, whole: Float64Array) -> Float64Array:
    return np.where(part > 0, part / whole, 0.0)


def _image_intersections(label: Float64Array, detection: Float64Array) -> _Intersections:
    width = np.minimum(label[:, 2], detection[:, 2]) - np.maximum(label[:, 0], detection[:, 0])
    height = np.minimum(label[:, 3], detection[:, 3]) - np.maximum(label[:, 1], detection[:, 1])
    shared = np.where((width > 0) & (height > 0), width * height, 0.0)
    return _Intersections(shared, _image_area(label), _image_area(detection))


def _image_area(box: Float64Array) -> Float64Array:
    area: Float64Array = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
    return area


def _ground_intersections(
    labels: ObjectTable, detections: ObjectTable, label: Rows, detection: Rows
) -> _Intersections:
    label_boxes, detection_boxes = _ground_boxes(labels), _ground_boxes(detections)
    first, second = torch.from_numpy(label_boxes[label]), torch.from_numpy(detection_boxes[detection])
    reach = circumscribed_radius(first) + circumscribed_radius(second)
    near = circles_meet(first[:, 0] - second[:, 0], first[:, 1] - second[:, 1], reach).numpy()
    iou = np.zeros(len(label))
    iou[near] = rotated_iou_pairs(label_boxes[label[near]], detection_boxes[detection[near]], metric="bev")
    label_area = (label_boxes[:, 3] * label_boxes[:, 4])[label]
    detection_area = (detection_boxes[:, 3] * detection_boxes[:, 4])[detection]
    return _Intersections(iou * (label_area + detection_area) / (1 + iou), label_area, detection_area)


def _volume_intersections(
    labels: ObjectTable, detections: ObjectTable, label: Rows, detection: Rows, ground: Float64Array
) -> _Intersections:
    label_bottom, detection_bottom = labels.location[label, 1], detections.location[detection, 1]
    label_top = label_bottom - labels.size_m[label, 0]
    detection_top = detection_bottom - detections.size_m[detection, 0]
    # The camera's y axis points down, so bottoms have the larger values.
    height = np.minimum(detection_bottom, label_bottom) - np.maximum(detection_top, label_top)
    return _Intersections(
        shared=ground * np.maximum(0.0, height),
        label=labels.size_m[label].prod(axis=1),
        detection=detections.size_m[detection].prod(axis=1),
    )


def _ground_boxes(objects: ObjectTable) -> Float64Array:
    """Return rectangles seen from above as (M, 7) rows of ``perception.boxes``.

    Two negative sizes are KITTI's placeholder for unknown (-1, -1, -1 at -1000). Like the official program,
    this makes them a rectangle of 1 m by 1 m. The official program fails if one size is negative or zero
    where boxes meet; here such a rectangle overlaps nothing.
    """
    width, length = objects.size_m[:, 1], objects.size_m[:, 2]
    usable = width * length > 0
    boxes = np.zeros((len(objects), 7))
    boxes[:, 0], boxes[:, 1] = objects.location[:, 0], objects.location[:, 2]
    boxes[:, 3], boxes[:, 4] = np.where(usable, np.abs(length), 0), np.where(usable, np.abs(width), 0)
    boxes[:, 5] = 1.0
    boxes[:, 6] = -objects.rotation_y
    return boxes
