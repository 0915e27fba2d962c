"""Tables sorted as one, searches that are told which rows count, and efforts for a share of the rows."""

from __future__ import annotations

import numpy as np

from memory.index import FlatIndex, LSHIndex, clustered, recall
from memory.index.effort import EXACT, Effort


def test_all_rows_are_sorted_into_one_and_found_alike() -> None:
    data = clustered(5000, 40, dim=32, centres=40, seed=3)
    index = LSHIndex(32, expected=5000)
    index.add(data.vectors[:4900], np.arange(4900))
    index.merge()
    index.add(data.vectors[4900:], np.arange(4900, 5000))
    index.merge()
    assert [buckets.start for buckets in index._state.buckets] == [0, 4900]
    before = index.search(data.queries, 10)
    index.merge(whole=True)
    assert [(buckets.start, buckets.stop) for buckets in index._state.buckets] == [(0, 5000)]
    exact = FlatIndex(32)
    exact.add(data.vectors, np.arange(5000))
    truth = exact.search(data.queries, 10).ids
    assert recall(index.search(data.queries, 10).ids, truth) >= recall(before.ids, truth) - 0.01


def test_a_share_of_the_rows_takes_more_probes_within_bounds() -> None:
    assert Effort(100, 50).for_share(1.0) == Effort(100, 50)
    assert Effort(100, 50).for_share(0.1) == Effort(200, 50)
    assert Effort(100, 50).for_share(0.0) == Effort(400, 50)
    assert EXACT.for_share(0.5) == EXACT
