"""Value of a set of observations, and an upper bound for sets of one size.

A fact is known when any of its observations is kept. The weight of a question is split among the facts it
needs; an event or a passing object has its own weight. The value of a set is the weight of the facts known.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.memory.retention_questions import Question
from benchmarks.memory.retention_world import NOTHING, World


class Fact(NamedTuple):
    """Something worth knowing.

    Attributes:
        rows: observations that show it.
        weight: what it is worth.
    """

    rows: frozenset[int]
    weight: float


def facts_of(world: World, questions: Sequence[Question]) -> list[Fact]:
    """Return one fact per need of a question, and the weights of events and of objects that appeared once."""
    weights: dict[frozenset[int], float] = {}
    for question in questions:
        for rows in question.needs:
            weights[rows] = weights.get(rows, 0.0) + 1.0 / len(question.needs)
    sights: dict[int, list[int]] = {}
    for row, observation in enumerate(world.observations):
        if observation.thing != NOTHING and world.things[observation.thing].worth > 0.0:
            sights.setdefault(observation.thing, []).append(row)
    for thing, found in sights.items():
        rows = frozenset(found)
        weights[rows] = weights.get(rows, 0.0) + world.things[thing].worth
    return [Fact(rows, weight) for rows, weight in weights.items()]


def value_of(facts: Sequence[Fact], kept: Iterable[int]) -> float:
    """Weight of the facts that are known."""
    there = set(kept)
    return sum(fact.weight for fact in facts if not fact.rows.isdisjoint(there))


def greedy_values(facts: Sequence[Fact], rows: int, sizes: Sequence[int]) -> list[float]:
    """Value of a set of each size, chosen with the largest gain first.

    The greedy choice is within 1 - 1/e of the best (Nemhauser, Wolsey & Fisher 1978); see
    :func:`value_bounds` for how close it is here.
    """
    gains = _gains(facts, rows)
    return [float(gains[:size].sum()) for size in sizes]


def value_bounds(facts: Sequence[Fact], rows: int, sizes: Sequence[int]) -> list[float]:
    """No set of each size is worth more: over greedy sets, the least of value and largest gains left.

    For each greedy set S, the best set is worth at most the value of S and the sum of the ``size`` largest
    gains that single observations add to S; the empty and a few larger sets are tried.
    """
    order, gains = _greedy(facts, rows)
    total = sum(fact.weight for fact in facts)
    bounds = np.full(len(sizes), total)
    weights = np.array([fact.weight for fact in facts])
    known = np.zeros(len(facts), dtype=bool)
    member: list[list[int]] = [[] for _ in range(rows)]
    for index, fact in enumerate(facts):
        for row in fact.rows:
            member[row].append(index)
    start = 0
    for tried in np.unique(np.linspace(0, len(order), 20).astype(int)).tolist():
        for row in order[start:tried]:
            known[member[row]] = True
        start = tried
        left = np.sort([float(weights[[i for i in facts_in if not known[i]]].sum()) for facts_in in member])[
            ::-1
        ]
        value = float(gains[:tried].sum())
        sums = np.cumsum(left)
        bounds = np.minimum(bounds, [value + float(sums[min(size, rows) - 1]) for size in sizes])
    return bounds.tolist()


def _gains(facts: Sequence[Fact], rows: int) -> NDArray[np.float64]:
    return _greedy(facts, rows)[1]


def _greedy(facts: Sequence[Fact], rows: int) -> tuple[list[int], NDArray[np.float64]]:
    """Rows in the order in which they are chosen, as long as one adds something, and what each adds."""
    member: list[list[int]] = [[] for _ in range(rows)]
    for index, fact in enumerate(facts):
        for row in fact.rows:
            member[row].append(index)
    known = [False] * len(facts)
    heap = [(-sum(facts[i].weight for i in member[row]), row) for row in range(rows) if member[row]]
    heapq.heapify(heap)
    order: list[int] = []
    gains: list[float] = []
    while heap:
        _, row = heapq.heappop(heap)
        gain = sum(facts[i].weight for i in member[row] if not known[i])
        if gain <= 0.0:
            continue
        # Gains only shrink: one that is still the largest is the one to take.
        if heap and gain < -heap[0][0]:
            heapq.heappush(heap, (-gain, row))
            continue
        order.append(row)
        gains.append(gain)
        for i in member[row]:
            known[i] = True
    return order, np.array(gains)
