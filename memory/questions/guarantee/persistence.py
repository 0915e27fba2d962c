"""Times for which objects stay, learned from what a store saw again and what it found gone.

The time that an object stays has an exponential distribution whose rate differs from object to object, with a
gamma distribution over the objects of a label. An object that was at its place for a time T is therefore
still there after another time t with probability ``((b + T) / (b + T + t)) ** a`` (Lomax). A parked car that
stood for days stays longer than one that came a minute ago.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.questions.guarantee.conformal import (
    Verdict,
    largest_score_of_groups,
    verdict_of,
)

#: Shapes and scales in seconds that a fit tries.
_SHAPES = np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0])
_SCALES_S = np.geomspace(0.25, 3e7, 28)
#: Fewest outcomes of a label for a fit of its own.
_LEAST_OF_LABEL = 20
#: Bounds of a probability: a store never saw everything.
_LEAST = 0.002


class Outcome(NamedTuple):
    """An object that a store believed to be there, and what it found.

    Attributes:
        key: the object; outcomes of one object are not independent.
        group: day or drive of the finding; outcomes of one group are alike.
        label: its label.
        known_s: time for which it was known at its place.
        gap_s: time without an observation.
        there: True if it was seen there again, False if it was found gone.
    """

    key: int
    group: int
    label: str
    known_s: float
    gap_s: float
    there: bool


@dataclass(frozen=True)
class Persistence:
    """Fitted stay of objects.

    Attributes:
        by_label: shape and scale in seconds by label.
        others: of labels without enough outcomes.
    """

    by_label: dict[str, tuple[float, float]]
    others: tuple[float, float]

    @classmethod
    def fit(cls, outcomes: Sequence[Outcome]) -> Persistence:
        """Fit all labels together, and those with enough outcomes alone, by maximum likelihood."""
        labels = {each.label for each in outcomes}
        groups = {label: [each for each in outcomes if each.label == label] for label in sorted(labels)}
        fitted = {label: _fit(some) for label, some in groups.items() if len(some) >= _LEAST_OF_LABEL}
        return cls(fitted, _fit(outcomes))

    def probability(self, label: str, known_s: float, gap_s: float) -> float:
        """Return the probability that an object is still there after ``gap_s`` without an observation."""
        shape, scale_s = self.by_label.get(label, self.others)
        return float(_stays(shape, scale_s, np.array([known_s]), np.array([gap_s]))[0])


class LabelCases(NamedTuple):
    """Past cases of a label that did not fit the model, by group.

    Attributes:
        stayed: surprise of cases in which the object was there: 1 minus the estimated probability.
        left: surprise of cases in which it was gone: the estimated probability.
    """

    stayed: tuple[tuple[float, ...], ...] = ()
    left: tuple[tuple[float, ...], ...] = ()

    @property
    def counts(self) -> tuple[int, int]:
        """Number of cases in which the object stayed, and in which it left."""
        return sum(map(len, self.stayed)), sum(map(len, self.left))


@dataclass(frozen=True)
class PresenceCalibration:
    """Answers to "still there?" with a guaranteed error.

    Half of the objects fit the persistence, the other half calibrate the answers. Labels are calibrated
    apart, because cars that leave say nothing about sofas. Objects that stayed and objects that left are
    calibrated apart. The guarantee therefore holds for both, even if more objects leave than in the past.

    Attributes:
        model: fitted persistence.
        by_label: cases by label.
    """

    model: Persistence
    by_label: Mapping[str, LabelCases]

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> PresenceCalibration:
        """Calibrate by past cases; every second object that stayed, and that left, fits the model."""
        known = sorted(outcomes)
        gone = {each.key for each in known if not each.there}
        by_label: dict[str, LabelCases] = {}
        fitting: set[int] = set()
        for label in sorted({each.label for each in known}):
            keys = {each.key for each in known if each.label == label}
            for some in (sorted(keys - gone), sorted(keys & gone)):
                fitting.update(some[::2])
        model = Persistence.fit([each for each in known if each.key in fitting])
        for label in sorted({each.label for each in known}):
            groups: dict[int, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
            for each in known:
                if each.key not in fitting and each.label == label:
                    probability = model.probability(label, each.known_s, each.gap_s)
                    stayed, left = groups[each.group]
                    if each.there:
                        stayed.append(1.0 - probability)
                    else:
                        left.append(probability)
            sides = [tuple(tuple(some[side]) for some in groups.values()) for side in (0, 1)]
            by_label[label] = LabelCases(sides[0], sides[1])
        return cls(model, by_label)

    def counts(self, label: str) -> tuple[int, int]:
        """Return the number of past cases of a label in which the object stayed, and in which it left."""
        return self.by_label.get(label, LabelCases()).counts

    def answer(self, label: str, known_s: float, gap_s: float, confidence: float) -> Verdict:
        """Return yes, no or unknown for an object; unknown without enough past cases."""
        cases = self.by_label.get(label, LabelCases())
        probability = self.model.probability(label, known_s, gap_s)
        stayed, left = (largest_score_of_groups(groups, confidence) for groups in cases)
        if stayed is None or left is None:
            return "unknown"
        return verdict_of(1.0 - probability <= stayed, probability <= left)


def _fit(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Return the shape and the scale with the largest likelihood."""
    if not outcomes:
        return 1.0, 3600.0
    known, gap = (np.array(values) for values in zip(*((o.known_s, o.gap_s) for o in outcomes), strict=True))
    there = np.array([each.there for each in outcomes])
    best = (-math.inf, 1.0, 3600.0)
    for shape in _SHAPES.tolist():
        for scale in _SCALES_S.tolist():
            p = _stays(shape, scale, known, gap)
            likelihood = float(np.log(np.where(there, p, 1.0 - p)).sum())
            best = max(best, (likelihood, shape, scale))
    return best[1], best[2]


def _stays(
    shape: float, scale_s: float, known_s: NDArray[np.float64], gap_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    lasted = scale_s + np.maximum(known_s, 0.0)
    p = (lasted / (lasted + np.maximum(gap_s, 0.0))) ** shape
    return np.asarray(np.clip(p, _LEAST, 1.0 - _LEAST))
