"""Exact search over rows that a filter marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memory.index import Among, FlatIndex, ITQIndex, LSHIndex, clustered


def indexes() -> list[Any]:
    made: list[Any] = [
        FlatIndex(64),
        LSHIndex(64, expected=500, tables=4, functions=6),
        ITQIndex(64, bits=64),
    ]
    return made


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("aligned", [True, False])
def test_equals_the_search_among_these_ids(number: int, aligned: bool) -> None:
    data = clustered(500, 5, dim=64, centres=20)
    index = indexes()[number]
    if isinstance(index, ITQIndex):
        index.train(data.vectors)
    ids = np.arange(10, 510) * 2
    order = np.arange(500) if aligned else np.random.default_rng(0).permutation(500)
    index.add(data.vectors[order[:300]], ids[order[:300]])
    index.add(data.vectors[order[300:]], ids[order[300:]])
    index.remove(ids[[3, 77]])
    kept = np.random.default_rng(1).random(500) < 0.5
    kept[3] = True
    found = index.search(data.queries, 7, among=Among(ids, kept), aim=1.0)
    alive = kept.copy()
    alive[[3, 77]] = False
    halves = data.vectors.astype(np.float16).astype(np.float32)
    scores = data.queries @ halves[alive].T
    expected = ids[alive][np.argsort(-scores, axis=1, kind="stable")[:, :7]]
    assert np.array_equal(found.ids, expected)
    none = index.search(data.queries, 7, among=Among(ids, np.zeros(500, bool)), aim=1.0)
    assert (none.ids == -1).all()
