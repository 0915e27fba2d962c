"""Common interface of all protocols: write, evaluate and resample results of a data set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from perception.boxes import points_in_boxes
from perception.data import DataSet, Frame
from perception.evaluate.box_table import Rows
from perception.evaluate.options import JudgeOptions, ProtocolName
from perception.evaluate.resampling import Sampler
from perception.types import Boxes3D, Detections


class EvaluationResult(Protocol):
    """The result of an evaluation."""

    @property
    def mean_ap(self) -> float:
        """Mean AP of the classes, in percent or, for nuScenes, in [0, 1]; NaN without any label."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""


class Judge(ABC):
    """A protocol applied to a data set.

    Attributes:
        protocol: its name.
        results: description of its result files.
    """

    protocol: ClassVar[ProtocolName]
    results: ClassVar[str]

    def __init__(self, data_set: DataSet, options: JudgeOptions) -> None:
        self.data_set, self.options = data_set, options

    @abstractmethod
    def write(self, directory: Path, detected: Iterable[tuple[Frame, Detections]]) -> Path:
        """Write detections to an existing folder; return the path that :meth:`evaluate` takes."""

    @abstractmethod
    def evaluate(self, results: Path) -> EvaluationResult:
        """Evaluate results."""

    @abstractmethod
    def sampler(self, results: Path) -> Sampler:
        """Return a sampler that measures results on samples of the frames."""


def points_in_labels(frame: Frame, truth: Boxes3D) -> Rows:
    """Return (M,) int64 scan points in each label of a frame; -1 without a scan."""
    if frame.source is None or not frame.source.exists():
        return np.full(len(truth), -1)
    if len(truth) == 0:
        return np.zeros(0, np.int64)
    points = frame.points[np.isfinite(frame.points).all(axis=1), :3]
    inside: Rows = points_in_boxes(points, truth.boxes).sum(axis=1, dtype=np.int64)
    return inside
