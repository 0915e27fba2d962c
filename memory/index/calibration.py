"""IndexCalibration of an index: measure the recall of its efforts on its own rows.

How many buckets contain the ten nearest depends on the vectors. So a sample of the rows is searched with
rising efforts, without each row's own id, and compared with the exact answers. Each step takes the larger
gain for its cost: more probes or more compared rows. It ends at a thorough search, or if comparing all rows
costs less.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from memory.index.effort import AIMS, EXACT, MEASURED_K, THOROUGH, AimEffort, Effort, IndexCalibration, Rung
from memory.index.neighbours import Floats, Ids, LongTermIndex

#: Number of sampled rows.
QUERIES = 250
# Very large indexes sample fewer rows: most comparisons for the exact answers, and the minimum sample.
_COMPARED, _LEAST_QUERIES = 200_000_000, 50
# An inverted-list index is locked during a search, so others wait for one portion at most.
_QUERIES_AT_ONCE = 16
# Scores of equal vectors differ by rounding.
_ROUNDING = 2e-6
# Steps up, and bisections of the step that reached an aim.
_STEPS, _HALVINGS = 24, 2


class _Sample(NamedTuple):
    """Sampled rows: (queries, dim) vectors, (queries,) ids, lowest exact scores and numbers of neighbours."""

    vectors: Floats
    ids: Ids
    least: Floats
    wanted: Floats


def calibrate(
    index: LongTermIndex, *, seed: int = 0, pause: Callable[[], None] = lambda: None
) -> IndexCalibration:
    """Measure an index; its searches then choose their effort by the result.

    The same rows and seed give the same result. Searches and changes may run meanwhile.

    Args:
        index: index to measure; its tail is sorted in first.
        seed: seed of the sample.
        pause: called between portions of work.
    """
    index.merge()
    rows = len(index)
    sample = _sample(index, seed, pause)
    rungs = _climb(index, sample, pause) if len(sample.ids) else []
    rungs.sort(key=lambda rung: index.price(rung.effort))
    found = IndexCalibration(rows, len(sample.ids), tuple(rungs))
    index.calibration = found
    return found


def needs_calibration(index: LongTermIndex | None) -> bool:
    """Return True if an index has several efforts and was not measured at about its present size."""
    if index is None or not len(index) or not index.efforts():
        return False
    return index.calibration is None or index.calibration.stale(len(index))


def efforts_by_aim(index: LongTermIndex | None) -> tuple[AimEffort, ...] | None:
    """Return what single queries do for each aim and its recall; ``None`` without a calibration."""
    if index is None or index.calibration is None:
        return None
    answers = []
    for aim in AIMS:
        effort, rung = index.effort(aim), index.calibration.least(aim)
        exact = effort == EXACT or rung is None
        answers.append(AimEffort(aim, *effort, 1.0 if rung is None or exact else round(rung.recall, 4)))
    return tuple(answers)


def _sample(index: LongTermIndex, seed: int, pause: Callable[[], None]) -> _Sample:
    """Sample living rows and compute their exact answers."""
    count = min(QUERIES, max(_LEAST_QUERIES, _COMPARED // max(1, len(index))))
    positions = index.positions
    generator = np.random.default_rng(seed)
    # Draw more than needed, because some may be removed; if most are, take the first living rows.
    drawn = generator.choice(positions, min(positions, 4 * count), replace=False)
    parts = [index.stored(place, place + 1) for place in drawn.tolist()]
    parts = [part for part in parts if len(part[0])][:count]
    if len(parts) < min(count, len(index)):
        parts = [index.stored(0, positions, most=count)]
    ids = np.concatenate([part[0] for part in parts])
    vectors = np.concatenate([part[1] for part in parts])
    scores = _others(index, vectors, ids, EXACT, pause)
    wanted = np.isfinite(scores).sum(axis=1).astype(np.float32)
    alone = wanted == 0
    least = np.where(np.isfinite(scores), scores, np.inf).min(axis=1) - np.float32(_ROUNDING)
    return _Sample(vectors[~alone], ids[~alone], least[~alone], wanted[~alone])


def _others(
    index: LongTermIndex, vectors: Floats, ids: Ids, effort: Effort, pause: Callable[[], None]
) -> Floats:
    """Return the (queries, k) scores of the nearest other rows."""
    answers = []
    for first in range(0, len(ids), _QUERIES_AT_ONCE):
        some = slice(first, first + _QUERIES_AT_ONCE)
        found = index.search(vectors[some], MEASURED_K + 1, effort=effort)
        scores = np.where(found.ids == ids[some, None], -np.inf, found.scores)
        answers.append(-np.sort(-scores, axis=1)[:, :MEASURED_K])
        pause()
    return np.concatenate(answers) if answers else np.zeros((0, MEASURED_K), np.float32)


def _measure(index: LongTermIndex, sample: _Sample, effort: Effort, pause: Callable[[], None]) -> Rung:
    """Measure recall by scores, so that any of several equal vectors counts."""
    scores = _others(index, sample.vectors, sample.ids, effort, pause)
    shares = (scores >= sample.least[:, None]).sum(axis=1) / sample.wanted
    shares = np.minimum(shares, 1.0)
    return Rung(effort, float(shares.mean()), float(shares.std() / np.sqrt(len(shares))))


def _climb(index: LongTermIndex, sample: _Sample, pause: Callable[[], None]) -> list[Rung]:
    """Measure rising efforts until one is thorough or costs more than comparing all rows."""
    limit = index.price(EXACT)
    measured: dict[Effort, Rung] = {}

    def rung(effort: Effort) -> Rung:
        if effort not in measured:
            measured[effort] = _measure(index, sample, effort, pause)
        return measured[effort]

    path = [rung(effort) for effort in index.efforts() if index.price(effort) < limit]
    while path and len(path) < _STEPS and not path[-1].reaches(THOROUGH):
        further = _next(index, path[-1], rung, limit)
        if further is None:
            break
        path.append(further)
    for aim in AIMS:
        first = next((step for step, tried in enumerate(path) if tried.reaches(aim)), 0)
        if first > 0:
            _bisect(path[first - 1], path[first], aim, rung)
    return list(measured.values())


def _bisect(less: Rung, more: Rung, aim: float, rung: Callable[[Effort], Rung]) -> None:
    """Measure efforts between two steps, because part of the second step may reach the aim."""
    for _ in range(_HALVINGS):
        half = rung(_between(less.effort, more.effort))
        less, more = (less, half) if half.reaches(aim) else (half, more)


def _between(less: Effort, more: Effort) -> Effort:
    """Return the geometric mean of two efforts."""
    return Effort(math.isqrt(less.probes * more.probes), math.isqrt(less.rerank * more.rerank))


def _next(index: LongTermIndex, at: Rung, rung: Callable[[Effort], Rung], limit: float) -> Rung | None:
    """Return the next effort with the largest gain per cost, or the dearest if none of them finds more."""
    price = index.price(at.effort)
    further = [effort for effort in index.efforts(at.effort) if index.price(effort) < limit]
    if not further:
        return None

    def gain(tried: Rung) -> float:
        return (tried.recall - at.recall) / (index.price(tried.effort) - price)

    best = max((rung(effort) for effort in further[:2]), key=gain)
    return best if gain(best) > 0.0 else rung(further[-1])
