"""Attention over the blocks around a query, and the blocks themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memory import Memory, MemoryStore, Query
from memory.errors import UnknownMemoryError
from memory.search import blocks as blocks_module
from memory.search.blocks import BLOCK, SimilarBlocks
from memory.search.context import Context

DIM = 20


def around(centres: NDArray[np.float64], count: int, seed: int) -> NDArray[np.float64]:
    """Unit vectors, ``count`` near each centre, taking turns."""
    random = np.random.default_rng(seed)
    rows = np.tile(centres, (count, 1)) + 0.3 * random.standard_normal(
        (count * len(centres), centres.shape[1])
    )
    found: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def centres(count: int = 12, dim: int = DIM) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.linalg.qr(np.random.default_rng(7).standard_normal((dim, dim)))[0][:count]
    return found


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    """A thousand memories of twelve sorts, whose label is their sort."""
    monkeypatch.setattr(blocks_module, "_NEW", 100)
    with MemoryStore.open(tmp_path / "store", dim=DIM) as opened:
        vectors = around(centres(), 84, 1)
        opened.add(
            [
                Memory(time_ns=k, label=f"sort {k % 12}", embedding=v, map_id="ab"[k % 2], reward=k % 12)
                for k, v in enumerate(vectors)
            ]
        )
        yield opened


def dense(store: MemoryStore, found: Context, question: NDArray[np.float64]) -> NDArray[np.float64]:
    """Attention to the same memories in float64: checks the weights, gives the vector."""
    table = np.stack([memory.embedding for memory in store.get(found.ids.tolist())]).astype(np.float64)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    scores = 16.0 * table @ (question / np.linalg.norm(question))
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    np.testing.assert_allclose(found.weights, weights, atol=1e-5)
    result: NDArray[np.float64] = weights @ table
    return result


def test_it_is_dense_attention_over_the_same_blocks(store: MemoryStore) -> None:
    question = centres()[3]
    found = store.context(Query(embedding=question, k=5))
    # Half precision in the store, float32 in the sums: to the fifth digit.
    np.testing.assert_allclose(found.vector, dense(store, found, question), atol=1e-5)
    assert 64 <= len(found.ids) < len(store)
    assert len(set(found.ids.tolist())) == len(found.ids)
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-5)
    assert (np.diff(found.weights) <= 0).all()
    assert [hit.memory.id for hit in found.hits] == found.ids[:5].tolist()
    np.testing.assert_allclose([hit.attention for hit in found.hits], found.weights[:5])
    assert {hit.memory.label for hit in found.hits} == {"sort 3"}
    assert [hit.attention for hit in store.query(Query(embedding=question, k=5, aggregate=True))] == [
        hit.attention for hit in found.hits
    ]


@pytest.mark.parametrize("dim", [1, 5, 16, 300])
def test_any_dimension_and_few_memories(tmp_path: Path, dim: int) -> None:
    random = np.random.default_rng(0)
    with MemoryStore.open(tmp_path, dim=dim) as store:
        question = random.standard_normal(dim)
        nothing = store.context(Query(embedding=question))
        assert (nothing.hits, len(nothing.ids)) == ([], 0)
        assert nothing.vector.tolist() == [0.0] * dim
        store.add([Memory(time_ns=0, embedding=v) for v in random.standard_normal((20, dim))])
        found = store.context(Query(embedding=question, k=3))
        assert sorted(found.ids.tolist()) == list(range(1, 21))
        np.testing.assert_allclose(found.vector, dense(store, found, question), atol=1e-5)


def test_filters_and_like(store: MemoryStore) -> None:
    found = store.context(Query(embedding=centres()[3], map_id="a"))
    assert {memory.map_id for memory in store.get(found.ids.tolist())} == {"a"}
    # The nearest that pass, though they are far.
    other = store.context(Query(embedding=centres()[3], labels=["sort 5"]))
    assert {memory.label for memory in store.get(other.ids.tolist())} == {"sort 5"}
    like = store.context(Query(like=4, k=4))
    assert 4 not in like.ids
    assert store.context(Query(embedding=centres()[3], labels=["nothing like it"])).hits == []
    with pytest.raises(ValueError, match="embedding or like"):
        store.context(Query(text="sort"))
    with pytest.raises(UnknownMemoryError, match="9999"):
        store.context(Query(like=9999))


def test_it_follows_the_store(store: MemoryStore) -> None:
    question = centres()[3]
    first = store.context(Query(embedding=question))
    (new,) = store.add([Memory(time_ns=5000, embedding=question)])
    assert store.context(Query(embedding=question)).ids[0] == new
    gone = [int(first.ids[0]), new]
    store.forget(gone, secure=True)
    after = store.context(Query(embedding=question))
    assert not set(gone) & set(after.ids.tolist())
    removal = store.forget(after.ids[:2].tolist())
    assert not set(after.ids[:2].tolist()) & set(store.context(Query(embedding=question)).ids.tolist())
    store.undo(removal)
    assert store.context(Query(embedding=question)).ids[:2].tolist() == after.ids[:2].tolist()


def test_similar_vectors_share_blocks(store: MemoryStore) -> None:
    made = SimilarBlocks(DIM, "default")
    made.follow(store.database)
    assert len(made) == len(store)
    ids, vectors = made.around(np.array([1, 13, 99_999]))
    assert len(ids) == len(vectors) <= 2 * BLOCK
    labels = [memory.label for memory in store.get(ids.tolist())]
    # Of all, a twelfth is of this sort.
    assert labels.count("sort 0") > len(labels) / 8
    again = SimilarBlocks(DIM, "default")
    again.follow(store.database)
    np.testing.assert_array_equal(again.around(np.array([1, 13])).ids, made.around(np.array([1, 13])).ids)
