"""Measuring what an index finds of its own rows, and choosing its efforts by that.

How many buckets find the ten nearest depends on the vectors: around clear centres a few do, spread evenly
none but all. So a sample of the rows of an index is searched with rising efforts, each row's own id left out,
and compared with the exact answers. The efforts are climbed one step at a time, whichever of more probes or
more compared rows finds more for its cost, until a thorough search is reached or comparing all rows costs
less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from memory.index.effort import AIMS, EXACT, MEASURED_K, THOROUGH, Calibration, Effort, Reached, Rung
from memory.index.neighbours import Floats, Ids, LongTermIndex

#: Rows that are asked for.
QUERIES = 250
# Fewer of very large indexes: rows that are compared for the exact answers, in all.
_COMPARED, _LEAST_QUERIES = 200_000_000, 50
# An index of lists is locked while it is searched: others wait for one portion at most.
_QUERIES_AT_ONCE = 16
# Equal vectors have scores that differ by rounding.
_ROUNDING = 2e-6
# Steps up, and halvings of the step that reached an aim.
_STEPS, _HALVINGS = 24, 2


class _Sample(NamedTuple):
    """Rows that are asked for: (queries, dim) vectors, (queries,) ids, and the score of the last true one."""

    vectors: Floats
    ids: Ids
    least: Floats
    wanted: Floats


def calibrate(
    index: LongTermIndex, *, seed: int = 0, pause: Callable[[], None] = lambda: None
) -> Calibration:
    """Measure an index; its searches choose their effort by that from then on.

    The same rows and seed give the same result. Searches and changes may go on meanwhile.

    Args:
        index: to measure; what waits to be sorted in is sorted first.
        seed: of the choice of rows.
        pause: called between portions of work.
    """
    index.merge()
    rows = len(index)
    sample = _sample(index, seed, pause)
    rungs = _climb(index, sample, pause) if len(sample.ids) else []
    rungs.sort(key=lambda rung: index.price(rung.effort))
    found = Calibration(rows, len(sample.ids), tuple(rungs))
    index.calibration = found
    return found


def needs_calibration(index: LongTermIndex | None) -> bool:
    """Whether an index has efforts to choose from, and was not measured at about its size."""
    if index is None or not len(index) or not index.efforts():
        return False
    return index.calibration is None or index.calibration.stale(len(index))


def reached(index: LongTermIndex | None, aims: Iterable[float] = AIMS) -> tuple[Reached, ...] | None:
    """What single queries do for each aim, and find; ``None`` for an index that is not calibrated."""
    if index is None or index.calibration is None:
        return None
    answers = []
    for aim in aims:
        effort, rung = index.effort(aim), index.calibration.least(aim)
        exact = effort == EXACT or rung is None
        answers.append(Reached(aim, *effort, 1.0 if rung is None or exact else round(rung.recall, 4)))
    return tuple(answers)


def _sample(index: LongTermIndex, seed: int, pause: Callable[[], None]) -> _Sample:
    """Living rows at random, and their exact answers."""
    count = min(QUERIES, max(_LEAST_QUERIES, _COMPARED // max(1, len(index))))
    positions = index.positions
    generator = np.random.default_rng(seed)
    # More than needed, because some may have been removed; where most were, the first that are left do.
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
    """(queries, k) scores of the nearest other rows."""
    answers = []
    for first in range(0, len(ids), _QUERIES_AT_ONCE):
        some = slice(first, first + _QUERIES_AT_ONCE)
        found = index.search(vectors[some], MEASURED_K + 1, effort=effort)
        scores = np.where(found.ids == ids[some, None], -np.inf, found.scores)
        answers.append(-np.sort(-scores, axis=1)[:, :MEASURED_K])
        pause()
    return np.concatenate(answers) if answers else np.zeros((0, MEASURED_K), np.float32)


def _measured(index: LongTermIndex, sample: _Sample, effort: Effort, pause: Callable[[], None]) -> Rung:
    """Recall by scores: of equal vectors any will do."""
    scores = _others(index, sample.vectors, sample.ids, effort, pause)
    shares = (scores >= sample.least[:, None]).sum(axis=1) / sample.wanted
    shares = np.minimum(shares, 1.0)
    return Rung(effort, float(shares.mean()), float(shares.std() / np.sqrt(len(shares))))


def _climb(index: LongTermIndex, sample: _Sample, pause: Callable[[], None]) -> list[Rung]:
    """What was measured on the way up."""
    limit = index.price(EXACT)
    measured: dict[Effort, Rung] = {}

    def rung(effort: Effort) -> Rung:
        if effort not in measured:
            measured[effort] = _measured(index, sample, effort, pause)
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
            _halved(path[first - 1], path[first], aim, rung)
    return list(measured.values())


def _halved(less: Rung, more: Rung, aim: float, rung: Callable[[Effort], Rung]) -> None:
    """Measure between two steps, of which the second reaches the aim: a part of the step may do."""
    for _ in range(_HALVINGS):
        half = rung(_between(less.effort, more.effort))
        less, more = (less, half) if half.reaches(aim) else (half, more)


def _between(less: Effort, more: Effort) -> Effort:
    """The geometric mean."""
    return Effort(math.isqrt(less.probes * more.probes), math.isqrt(less.rerank * more.rerank))


def _next(index: LongTermIndex, at: Rung, rung: Callable[[Effort], Rung], limit: float) -> Rung | None:
    """The dearer effort that finds most for what it costs more; the dearest where the others find no more."""
    price = index.price(at.effort)
    further = [effort for effort in index.efforts(at.effort) if index.price(effort) < limit]
    if not further:
        return None

    def gain(tried: Rung) -> float:
        return (tried.recall - at.recall) / (index.price(tried.effort) - price)

    best = max((rung(effort) for effort in further[:2]), key=gain)
    return best if gain(best) > 0.0 else rung(further[-1])
