"""Frames in memory, ready to be changed: points, boxes and class indices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perception.config import DetectorConfig
from perception.data import DataSet, Frame
from perception.model.head import MEAN_SIZES_M
from perception.scans.tensors import raised_m
from perception.types import FloatArray

IntArray = npt.NDArray[np.int64]

#: Class index of objects that look like a class but do not count, in training as in the KITTI protocol.
IGNORED = -1


@dataclass(frozen=True, eq=False)
class TrainingFrame:
    """One labelled frame.

    Attributes:
        frame_id: name of the frame.
        points: (N, 4) float32, LiDAR frame, z as seen from the height of the data that weights were made of.
        boxes: (M, 7) float32, the same.
        labels: (M,) int64 class indices, -1 for objects to ignore.
    """

    frame_id: str
    points: FloatArray
    boxes: FloatArray
    labels: IntArray


def load_frames(data_set: DataSet, classes: Sequence[str]) -> list[TrainingFrame]:
    """Read every frame of a data set; types that are neither a class nor a neighbour become background."""
    index = dict.fromkeys(data_set.neighbours.values(), IGNORED)
    index |= {name: position for position, name in enumerate(classes)}
    return [_training_frame(frame, index) for frame in data_set]


def _training_frame(frame: Frame, index: Mapping[str, int]) -> TrainingFrame:
    kept = [row for row, name in enumerate(frame.labels) if name in index]
    points, boxes = frame.points[np.isfinite(frame.points).all(axis=1)], frame.boxes[kept]
    raised = np.float32(raised_m(frame.cloud))
    if raised:
        # As a detector looks at them.
        points, boxes = points.copy(), boxes.copy()
        points[:, 2] += raised
        boxes[:, 2] += raised
    return TrainingFrame(
        frame.frame_id,
        points,
        boxes,
        np.array([index[frame.labels[row]] for row in kept], dtype=np.int64),
    )


def with_measured_sizes(config: DetectorConfig, frames: Iterable[TrainingFrame]) -> DetectorConfig:
    """The configuration with the mean sizes of classes that it has none of, from their boxes.

    Args:
        config: of the detector; sizes that it gives, and those of KITTI's classes, stay.
        frames: labelled with its classes.
    """
    sizes, boxes = dict(config.head.sizes_m), defaultdict(list)
    for frame in frames:
        for box, label in zip(frame.boxes, frame.labels, strict=True):
            boxes[int(label)].append(box[3:6])
    for row, name in enumerate(config.head.classes):
        if name not in MEAN_SIZES_M | sizes and row in boxes:
            mean = np.mean(boxes[row], axis=0, dtype=np.float64)
            sizes[name] = tuple(max(0.01, round(float(value), 2)) for value in mean)
    return replace(config, head=replace(config.head, sizes_m=sizes))


def class_counts(frames: Iterable[TrainingFrame], classes: Sequence[str]) -> dict[str, int]:
    """Objects of each class."""
    labels = np.concatenate([frame.labels for frame in frames] or [np.zeros(0, np.int64)])
    return {name: int((labels == position).sum()) for position, name in enumerate(classes)}
