"""Results of the KITTI protocol: curves, and the average precision computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from perception.evaluate.box_table import Float64Array, mean_of_known
from perception.evaluate.kitti.protocol import DIFFICULTIES, METRICS, SAMPLE_COUNT, DifficultyName, Metric

#: AP by recall positions and difficulty: ``{"AP11": {"easy": ...}, "AP40": {...}}``, percent or None.
MetricTable = dict[str, dict[str, float | None]]
ClassTable = dict[str, MetricTable]
#: Class name, metric, difficulty.
CurveKey = tuple[str, Metric, DifficultyName]
#: Number of recall positions of an average.
RecallPoints = Literal[11, 40]

DIFFICULTY_NAMES: tuple[DifficultyName, ...] = tuple(difficulty.name for difficulty in DIFFICULTIES)


class PrecisionRecall(NamedTuple):
    """A curve: ``recall`` and ``precision`` (or orientation similarity), each (41,) float64 in [0, 1]."""

    recall: Float64Array
    precision: Float64Array


@dataclass(frozen=True, eq=False)
class KittiResult:
    """Average precision of detections under the KITTI object protocol.

    Four ways to access it, all in percent::

        result.ap("Car", "3d", "moderate")             # AP40; points=11 for AP11; NaN if undefined
        result["Car", "3d", "moderate"]                # the same
        result["Car"]["3d"]["AP40"]["moderate"]        # plain dictionaries; None if undefined
        result.to_dict()                               # all of them, ready for JSON

    AP is undefined (NaN, None) for ``"aos"`` if a detection has the placeholder alpha -10.

    Attributes:
        classes: names, in the requested order.
        frame_ids: evaluated frames.
        curves: (class, metric, difficulty) to (41,) float64 precision in [0, 1] at recall 0, 1/40, ..., 1.
        label_counts: (class, difficulty) to the number of labels that count. With N < 41 labels, perfect
            detections reach an AP40 of at most (N - 1) / 40, because the official curve has one sample per
            label.
        unreported: (class, metric) pairs that the official program does not print, because no detection of
            the class has what the metric needs. Here they have the AP of the protocol (0 without detections).
    """

    classes: tuple[str, ...]
    frame_ids: tuple[str, ...]
    curves: dict[CurveKey, Float64Array]
    label_counts: dict[tuple[str, DifficultyName], int]
    unreported: frozenset[tuple[str, Metric]]

    def ap(
        self, class_name: str, metric: Metric, difficulty: DifficultyName, points: RecallPoints = 40
    ) -> float:
        """Return the average precision in percent.

        Args:
            class_name: one of ``classes``; case does not matter.
            metric: ``"2d"``, ``"bev"``, ``"3d"`` or ``"aos"``.
            difficulty: ``"easy"``, ``"moderate"`` or ``"hard"``.
            points: 40: mean at recall 1/40, ..., 1 (the benchmark since 2019); 11: at recall 0, 0.1, ..., 1.

        Raises:
            ValueError: an argument is unknown.
        """
        if points not in (11, 40):
            raise ValueError(f"points must be 11 or 40, got {points!r}")
        precision = self._curve(class_name, metric, difficulty)
        return 100.0 * float(np.mean(precision[1:] if points == 40 else precision[::4]))

    def precision_recall(
        self, class_name: str, metric: Metric, difficulty: DifficultyName
    ) -> PrecisionRecall:
        """Return the curve whose mean is the AP; NaN if undefined.

        Raises:
            ValueError: an argument is unknown.
        """
        precision = self._curve(class_name, metric, difficulty)
        return PrecisionRecall(np.arange(SAMPLE_COUNT) / (SAMPLE_COUNT - 1), precision.copy())

    def __getitem__(self, key: str | CurveKey) -> ClassTable | float:
        """Return the table of a class, or the AP40 of (class, metric, difficulty).

        Raises:
            KeyError: the key is unknown.
        """
        try:
            if isinstance(key, str):
                return self._class_table(self._class_name(key))
            return self.ap(*key)
        except (TypeError, ValueError) as error:
            raise KeyError(f"{error}; use result[class] or result[class, metric, difficulty]") from error

    @property
    def mean_ap(self) -> float:
        """Mean 3D AP40 of moderate objects over the classes that have any, percent; NaN without any."""
        return mean_of_known(self.ap(name, "3d", "moderate") for name in self.classes)

    def to_dict(self) -> dict[str, ClassTable]:
        """Return ``{class: {metric: {"AP11": {difficulty: percent}, "AP40": ...}}}`` for JSON."""
        return {name: self._class_table(name) for name in self.classes}

    def _class_table(self, name: str) -> ClassTable:
        return {metric: self._metric_table(name, metric) for metric in METRICS}

    def _metric_table(self, name: str, metric: Metric) -> MetricTable:
        table: MetricTable = {}
        for points in get_args(RecallPoints):
            values = [self.ap(name, metric, difficulty, points) for difficulty in DIFFICULTY_NAMES]
            numbers = [None if math.isnan(value) else value for value in values]
            table[f"AP{points}"] = dict(zip(DIFFICULTY_NAMES, numbers, strict=True))
        return table

    def _curve(self, class_name: str, metric: Metric, difficulty: DifficultyName) -> Float64Array:
        name = self._class_name(class_name)
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}; got {metric!r}")
        if difficulty not in DIFFICULTY_NAMES:
            raise ValueError(f"difficulty must be one of {', '.join(DIFFICULTY_NAMES)}; got {difficulty!r}")
        return self.curves[name, metric, difficulty]

    def _class_name(self, wanted: str) -> str:
        for name in self.classes:
            if name.lower() == wanted.lower():
                return name
        raise ValueError(f"class must be one of {', '.join(self.classes)}; got {wanted!r}")
