"""Measures of a run on any multiset of its frames, without new matching.

Matches are decided within a frame, so a sample of frames only repeats known matches. The AP of a sample is
therefore the exact AP of its frames.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from perception.evaluate.box_table import Float64Array, Rows
from perception.evaluate.ranking import POINT_COUNTS, RANGES, Part, Ranking

#: Most numbers in a table of samples and detections.
_NUMBERS_AT_ONCE = 1 << 21


class Measure(NamedTuple):
    """Identity of a measured number.

    Attributes:
        label: class name, or ``"all"``.
        name: such as ``"AP 3D"``.
        part: range of distances or points; empty for all.
    """

    label: str
    name: str
    part: str = ""


class Sampler(ABC):
    """One run on the frames of a data set.

    Attributes:
        frame_ids: the F frames.
        measures: the K measures.
    """

    frame_ids: tuple[str, ...]
    measures: tuple[Measure, ...]

    @abstractmethod
    def values(self, copies: Rows) -> Float64Array:
        """Measure samples: (S, F) int64 copies of each frame to (S, K) float64, NaN if undefined."""


class RankingSampler(Sampler):
    """Sampler of rankings.

    Args:
        frame_ids: of the frames that rankings index.
        rankings: by class and metric.
        main: metric of the parts by range and points.
    """

    def __init__(
        self,
        frame_ids: tuple[str, ...],
        rankings: Mapping[tuple[str, str], Ranking],
        *,
        main: str,
    ) -> None:
        self.frame_ids = frame_ids
        self._areas: list[tuple[Measure, Ranking]] = []
        self._recalls: list[tuple[Measure, Ranking, Part]] = []
        for (name, metric), ranking in rankings.items():
            if not len(ranking.label_frame):
                continue
            self._areas.append((Measure(name, f"AP {metric}"), ranking))
            if metric == main:
                self._areas += [
                    (Measure(name, f"AP {metric}", part.name), ranking.within(part)) for part in RANGES
                ]
                self._recalls += [
                    (Measure(name, "recall", part.name), ranking, part)
                    for part in POINT_COUNTS
                    if part.holds(ranking.label_points).any()
                ]
        self.measures = (
            *(measure for measure, _ in self._areas),
            *(measure for measure, *_ in self._recalls),
        )

    def values(self, copies: Rows) -> Float64Array:
        """Measure samples in percent; see :meth:`Sampler.values`."""
        columns = [100 * sampled_areas(ranking, copies) for _, ranking in self._areas]
        columns += [100 * sampled_recalls(ranking, part, copies) for _, ranking, part in self._recalls]
        return np.stack(columns, axis=1) if columns else np.zeros((len(copies), 0))


def sampled_areas(ranking: Ranking, copies: Rows) -> Float64Array:
    """Compute :func:`~perception.evaluate.ranking.all_point_ap` of samples: (S, F) copies to (S,).

    Copies of a detection are adjacent. Precision rises along copies of a right detection, so the envelope is
    the same for all of them, and one represents all.
    """
    labels = copies[:, ranking.label_frame].sum(axis=1)
    areas = np.full(len(copies), np.nan)
    step = max(1, _NUMBERS_AT_ONCE // max(1, len(ranking.score)))
    for start in range(0, len(copies), step):
        chosen = slice(start, start + step)
        weight = copies[chosen][:, ranking.frame]
        right = weight * ranking.right
        counted = np.cumsum(weight, axis=1)
        precision = np.cumsum(right, axis=1) / np.maximum(counted, 1)
        envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            areas[chosen] = np.where(
                labels[chosen] > 0, (right * envelope).sum(axis=1) / labels[chosen], np.nan
            )
    return areas


def sampled_recalls(ranking: Ranking, part: Part, copies: Rows) -> Float64Array:
    """Return the recall of labels in a range of point counts, in samples: (S, F) copies to (S,)."""
    inside = part.holds(ranking.label_points)
    labels = copies[:, ranking.label_frame[inside]].sum(axis=1)
    found = copies[:, ranking.label_frame[inside & ranking.found]].sum(axis=1)
    with np.errstate(invalid="ignore"):
        shares: Float64Array = np.where(labels > 0, found / labels, np.nan)
    return shares
