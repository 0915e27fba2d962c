"""Answers with their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from memory.query import Query
from memory.search.ranking import Found, distances
from memory.types import Hit, Memory, positions_of


def hits_of(
    query: Query,
    found: Found,
    memories: Sequence[Memory],
    *,
    newest_ns: Callable[[], int],
    half_life_s: float,
    attention: Mapping[int, float] | None = None,
) -> list[Hit]:
    """The memories with their scores and what these are made of.

    Args:
        query: that was asked.
        found: its ids, with what was compared.
        memories: of these ids.
        newest_ns: the time that recency is measured from, asked for where it is needed.
        half_life_s: in which recency halves.
        attention: weights by id, of a query that aggregates vectors.
    """
    parts: list[dict[str, float]] = [{} for _ in memories]
    away = None
    if query.near is not None and memories:
        away = distances(positions_of(memories), query.near)
    told = {
        "similarity": found.similarity,
        "text": found.text,
        "fused": found.fused,
        "distance_m": away,
    }
    for name, values in told.items():
        if values is not None:
            for part, value in zip(parts, values.tolist(), strict=True):
                if not math.isnan(value):
                    part[name] = value
    if memories and (query.aggregate or query.ordered_by == "recency"):
        newest = newest_ns()
        for part, memory in zip(parts, memories, strict=True):
            age_s = max(newest - memory.time_ns, 0) / 1e9
            part["recency"] = 0.5 ** (age_s / half_life_s)
    # What hits are ordered by.
    compared = next((name for name in ("fused", "similarity", "text") if told[name] is not None), None)
    by = {"distance": "distance_m", "recency": "recency"}.get(query.ordered_by, compared)
    hits = []
    for memory, part in zip(memories, parts, strict=True):
        assert by is not None
        score = -part[by] if by == "distance_m" else part[by]
        weight = None if attention is None or memory.id is None else attention.get(memory.id, 0.0)
        hits.append(Hit(memory, score, part, weight))
    return hits
