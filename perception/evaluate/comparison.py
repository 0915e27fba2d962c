"""Confidence intervals of one run, and of the difference of two runs, by the bootstrap over frames.

Frames are drawn with replacement, the same ones for both runs (paired; Efron and Tibshirani, "An Introduction
to the Bootstrap", 1993, chapters 13 and 16). Frames of one drive are similar, so intervals are too narrow for
data sets with few drives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perception.errors import DataError
from perception.evaluate.box_table import Float64Array, Rows
from perception.evaluate.resampling import Measure, Sampler

SAMPLES, LEVEL = 1000, 0.95


class Interval(NamedTuple):
    """A value with its confidence interval; NaN if undefined."""

    value: float
    low: float
    high: float

    def to_list(self) -> list[float | None]:
        """Return value, low and high for JSON."""
        return [number if math.isfinite(number) else None for number in self]


class MeasureComparison(NamedTuple):
    """One measure of a run, or of two.

    Attributes:
        measure: what was measured.
        value: of the run.
        other: of the other run; None without one.
        difference: run minus other; None without one.
    """

    measure: Measure
    value: Interval
    other: Interval | None = None
    difference: Interval | None = None

    @property
    def may_be_chance(self) -> bool | None:
        """True if the interval of the difference contains zero; None without a difference."""
        if self.difference is None or math.isnan(self.difference.low):
            return None
        return self.difference.low <= 0 <= self.difference.high


@dataclass(frozen=True, eq=False)
class RunComparison:
    """All measures of a run, or of two.

    Attributes:
        rows: the measures.
        frames: number of frames.
        samples: number of bootstrap samples.
        seed: of the draws.
        names: of the run and the other one.
    """

    rows: tuple[MeasureComparison, ...]
    frames: int
    samples: int
    seed: int
    names: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "runs": list(self.names),
            "frames": self.frames,
            "samples": self.samples,
            "seed": self.seed,
            "level": LEVEL,
            "measures": [
                {
                    "class": row.measure.label,
                    "measure": row.measure.name,
                    "part": row.measure.part,
                    "value": row.value.to_list(),
                }
                | ({} if row.other is None else {"other": row.other.to_list()})
                | (
                    {}
                    if row.difference is None
                    else {"difference": row.difference.to_list(), "may_be_chance": row.may_be_chance}
                )
                for row in self.rows
            ],
        }


def bootstrap(
    run: Sampler,
    against: Sampler | None = None,
    *,
    names: tuple[str, ...] = ("run", "other"),
    samples: int = SAMPLES,
    seed: int = 0,
) -> RunComparison:
    """Measure a run, and optionally its difference to another, on bootstrap samples of the frames.

    Args:
        run: the run to measure.
        against: another run on the same frames.
        names: display names of both.
        samples: number of samples.
        seed: of the draws.

    Raises:
        DataError: the runs have different frames.
        ValueError: fewer than 2 samples.
    """
    if samples < 2:
        raise ValueError(f"expected at least 2 samples, got {samples}")
    if against is not None and against.frame_ids != run.frame_ids:
        odd = sorted(set(run.frame_ids) ^ set(against.frame_ids))
        raise DataError(
            f"the two runs have different frames ({', '.join(odd[:3]) or 'in another order'}, ...). Compare"
            " results of the same frames, or add --missing empty"
        )
    count = len(run.frame_ids)
    copies = draws(count, samples, seed)
    whole = np.ones((1, count), np.int64)
    value, drawn = run.values(whole)[0], run.values(copies)
    if against is None:
        rows = [
            MeasureComparison(measure, _interval(value[column], drawn[:, column]))
            for column, measure in enumerate(run.measures)
        ]
        return RunComparison(tuple(rows), count, samples, seed, names[:1])
    other_value, other_drawn = against.values(whole)[0], against.values(copies)
    places = {measure: column for column, measure in enumerate(against.measures)}
    rows = []
    for column, measure in enumerate(run.measures):
        place = places.get(measure)
        if place is None:
            rows.append(MeasureComparison(measure, _interval(value[column], drawn[:, column])))
            continue
        difference = _interval(value[column] - other_value[place], drawn[:, column] - other_drawn[:, place])
        rows.append(
            MeasureComparison(
                measure,
                _interval(value[column], drawn[:, column]),
                _interval(other_value[place], other_drawn[:, place]),
                difference,
            )
        )
    return RunComparison(tuple(rows), count, samples, seed, names)


def draws(frames: int, samples: int, seed: int) -> Rows:
    """Return (samples, frames) int64: how often each sample contains each frame."""
    random = np.random.default_rng(seed)
    drawn = random.integers(0, max(frames, 1), (samples, frames)) + frames * np.arange(samples)[:, None]
    counts: Rows = np.bincount(drawn.ravel(), minlength=samples * frames).reshape(samples, frames)
    return counts


def _interval(value: float, drawn: Float64Array) -> Interval:
    """Return the percentiles of the samples in which the measure is defined."""
    known = drawn[np.isfinite(drawn)]
    if math.isnan(value) or len(known) == 0:
        return Interval(float(value), math.nan, math.nan)
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(value), float(low), float(high))
