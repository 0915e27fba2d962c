"""Frames in memory, ready to be changed: points, boxes and class indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perception.io.kitti import KittiDataset
from perception.types import FloatArray

IntArray = npt.NDArray[np.int64]

#: Class index of objects that look like a class but do not count, in training as in the KITTI protocol.
IGNORED = -1
#: KITTI's neighbouring types: neither a find nor a false alarm.
NEIGHBOUR_TYPES = ("Van", "Person_sitting")


@dataclass(frozen=True, eq=False)
class TrainingFrame:
    """One labelled frame.

    Attributes:
        frame_id: name of the frame.
        points: (N, 4) float32, LiDAR frame.
        boxes: (M, 7) float32.
        labels: (M,) int64 class indices, -1 for objects to ignore.
    """

    frame_id: str
    points: FloatArray
    boxes: FloatArray
    labels: IntArray


def load_frames(dataset: KittiDataset, classes: Sequence[str]) -> list[TrainingFrame]:
    """Read every frame of a data set; types that are neither a class nor a neighbour become background."""
    return [_training_frame(dataset, frame_id, classes) for frame_id in dataset.frame_ids]


def _training_frame(dataset: KittiDataset, frame_id: str, classes: Sequence[str]) -> TrainingFrame:
    frame = dataset.load(frame_id)
    truth = frame.boxes
    index = {name: position for position, name in enumerate(classes)}
    index.update({name: IGNORED for name in NEIGHBOUR_TYPES if name not in index})
    kept = [row for row, name in enumerate(truth.labels) if name in index]
    points = frame.cloud.points[np.isfinite(frame.cloud.points).all(axis=1)]
    return TrainingFrame(
        frame_id,
        points,
        truth.boxes[kept],
        np.array([index[truth.labels[row]] for row in kept], dtype=np.int64),
    )


def class_counts(frames: Iterable[TrainingFrame], classes: Sequence[str]) -> dict[str, int]:
    """Objects of each class."""
    labels = np.concatenate([frame.labels for frame in frames] or [np.zeros(0, np.int64)])
    return {name: int((labels == position).sum()) for position, name in enumerate(classes)}
