"""Questions to stores of many rows by filter, and what they should find."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib.timing import Summary
from benchmarks.service.fleet_bulk import side_by_side
from benchmarks.service.fleet_sides import BLOCK, LENGTH_M, STEP_NS, Asked, Side, rows_of
from memory import MemoryStore, Query
from memory.persistence.postgres import nearest

#: Rows of an answer.
K = 10
#: Filters by name, of a street that long and rows of that time.
FILTERS: dict[str, Callable[[int], Asked]] = {
    "all": lambda count: Asked(),
    "label 2 %": lambda count: Asked(label="label3"),
    "label 0.1 %": lambda count: Asked(label="rare"),
    "place 1 %": lambda count: Asked(x=(0.5 * LENGTH_M, 0.51 * LENGTH_M)),
    "time 10 %": lambda count: Asked(time_ns=(int(0.7 * count) * STEP_NS, int(0.8 * count) * STEP_NS)),
}
#: Rows that are compared with all questions at once; so many stretches of them are one process's work.
_STRETCH, _SIDE_BY_SIDE = 10 * BLOCK, 10
#: Seconds after which a filter has been asked enough.
_LONGEST_S = 60.0


class Questions(NamedTuple):
    """Questions by a vector, and the true answers.

    Attributes:
        size: rows of the store.
        vectors: (questions, dim) float32.
        wanted: filters by name.
        truth: (questions, ``K``) numbers of the most similar rows by filter.
    """

    size: int
    vectors: NDArray[np.float32]
    wanted: dict[str, Asked]
    truth: dict[str, NDArray[np.int64]]

    @classmethod
    def of(cls, size: int, count: int, dim: int, seed: int) -> Questions:
        """Return so many questions to a store of so many rows."""
        vectors = question_vectors(size, count, dim, seed)
        wanted = {name: make(size) for name, make in FILTERS.items()}
        return cls(size, vectors, wanted, truth(size, dim, seed, vectors, wanted))

    @classmethod
    def known(
        cls, size: int, vectors: NDArray[np.float32], best: Mapping[str, NDArray[np.int64]]
    ) -> Questions:
        """Return questions whose true answers are known."""
        wanted = {name: make(size) for name, make in FILTERS.items()}
        return cls(size, vectors, wanted, {name: best[name] for name in wanted})

    def ask(self, side: Side, name: str, *, effort: int | None = None) -> dict[str, Any]:
        """Return times and recall of one filter.

        Args:
            side: store that answers.
            name: of the filter.
            effort: of a server's graph, in place of the usual one.
        """
        usual = nearest.effort
        if effort is not None:
            nearest.effort = lambda rows, k, aim: effort
        wanted = self.wanted[name]
        side.like(self.vectors[0], wanted, K)
        try:
            return asked(
                [partial(side.like, vector, wanted, K) for vector in self.vectors], list(self.truth[name])
            )
        finally:
            nearest.effort = usual


def asked(
    questions: Sequence[Callable[[], Sequence[int]]], truth: Sequence[NDArray[np.int64]]
) -> dict[str, Any]:
    """Return times, recall and the share of rows that were found at all; a minute is enough."""
    times: list[float] = []
    hits, answered, expected, begun = 0, 0, 0, time.perf_counter()
    for question, best in zip(questions, truth, strict=True):
        start = time.perf_counter()
        answer = question()
        times.append(1e3 * (time.perf_counter() - start))
        hits += len(set(answer) & set(best.tolist()))
        answered += len(answer)
        expected += len(best)
        if time.perf_counter() - begun > _LONGEST_S:
            break
    found: dict[str, Any] = {
        **quantiles(times),
        "recall": round(hits / expected, 4),
        "answered": round(answered / expected, 4),
    }
    return found if len(times) == len(questions) else {**found, "asked": len(times)}


def ask_words(store: MemoryStore, count: int) -> dict[str, float]:
    """Return times of questions by a word, which one row in a thousand has."""
    times = []
    for number in range(count + 1):
        start = time.perf_counter()
        store.query(Query(text=f"word{37 * number % 997}", k=K))
        times.append(1e3 * (time.perf_counter() - start))
    return quantiles(times[1:])


def question_vectors(size: int, count: int, dim: int, seed: int) -> NDArray[np.float32]:
    """Return (count, dim) vectors, each near that of a row."""
    random = np.random.default_rng(seed + 1)
    rows = random.integers(0, size, count).tolist()
    like = [rows_of(row, row + 1, dim, seed).vectors[0] for row in rows]
    noise = random.normal(size=(len(like), dim)).astype(np.float32)
    vectors: NDArray[np.float32] = np.stack(like) + 0.2 * noise
    return vectors


def truth(
    size: int, dim: int, seed: int, questions: NDArray[np.float32], wanted: Mapping[str, Asked]
) -> dict[str, NDArray[np.int64]]:
    """(questions, k) rows that are truly most like, by filter."""
    stretches = [(first, min(first + _STRETCH, size)) for first in range(0, size, _STRETCH)]
    best_of = partial(_best_of, dim=dim, seed=seed, questions=questions, wanted=wanted)
    if len(stretches) > _SIDE_BY_SIDE:
        with side_by_side() as pool:
            found = list(pool.map(best_of, stretches))
    else:
        found = [best_of(stretch) for stretch in stretches]
    best = {}
    for name in wanted:
        scores = np.hstack([each[name][0] for each in found])
        ids = np.hstack([each[name][1] for each in found])
        best[name] = np.take_along_axis(ids, _highest(scores), 1)
    return best


def _best_of(
    stretch: tuple[int, int],
    dim: int,
    seed: int,
    questions: NDArray[np.float32],
    wanted: Mapping[str, Asked],
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Scores and numbers of the rows of a stretch that are most like, by filter."""
    first, end = stretch
    rows = rows_of(first, end, dim, seed)
    scores: NDArray[np.float32] = questions @ as_stored(rows.vectors).T
    best = {}
    for name, filter_ in wanted.items():
        among = filter_.passes(rows)
        order = _highest(scores[:, among])
        best[name] = np.take_along_axis(scores[:, among], order, 1), among[order] + first
    return best


def _highest(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """(questions, at most k) columns of the highest scores, the first of equal ones first."""
    if scores.shape[1] <= 64 * K:
        return np.argsort(-scores, axis=1, kind="stable")[:, :K]
    least = np.partition(scores, -K, axis=1)[:, -K]
    best = np.empty((len(scores), K), np.int64)
    for at, (row, bound) in enumerate(zip(scores, least, strict=True)):
        columns = np.flatnonzero(row >= bound)
        best[at] = columns[np.argsort(-row[columns], kind="stable")[:K]]
    return best


def as_stored(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Halves of unit length, as numbers of unit length."""
    halves = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    numbers: NDArray[np.float32] = halves.astype(np.float32)
    numbers /= np.linalg.norm(numbers, axis=1, keepdims=True)
    return numbers


def quantiles(times_ms: Sequence[float]) -> dict[str, float]:
    """Return median and 99th percentile."""
    summary = Summary.of(times_ms)
    return {"p50_ms": round(summary.median_ms, 3), "p99_ms": round(summary.p99_ms, 3)}
