"""The table of kinds: what it says is so, and a store takes what it may take."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from memory.config import StoreConfig
from memory.index import FlatIndex, ITQIndex, clustered
from memory.index.cuda import CudaIndex
from memory.index.kinds import KINDS, STORE_KINDS, IndexKind
from memory.index.neighbours import Among, VectorIndex

ROWS = 8192
DATA = clustered(ROWS, 20, dim=256, centres=50)
HERE = [kind for kind in KINDS.values() if kind.bytes_a_vector]


def filled(kind: IndexKind) -> VectorIndex:
    """An index of the kind with all vectors, sorted in."""
    if kind.package:
        pytest.importorskip(kind.package)
    index: CudaIndex | ITQIndex | VectorIndex
    if kind.name == "cuda":
        index = CudaIndex(256, device="cpu")
    elif kind.name == "itq":
        index = ITQIndex(256)
        index.train(DATA.vectors[:1000], rounds=5)
    else:
        assert kind.make is not None
        index = kind.make(256, ROWS)
    index.add(DATA.vectors, np.arange(ROWS))
    if hasattr(index, "merge"):
        index.merge() if kind.name == "cuda" else index.merge(whole=True)
    return index


@pytest.mark.parametrize("kind", HERE, ids=lambda kind: kind.name)
def test_every_kind_takes_the_bytes_that_it_says_and_searches_in_the_one_way(kind: IndexKind) -> None:
    index, exact = filled(kind), FlatIndex(256)
    exact.add(DATA.vectors, np.arange(ROWS))
    assert index.nbytes / ROWS == pytest.approx(kind.bytes_a_vector, rel=0.1)
    kept = np.random.default_rng(0).random(ROWS) < 0.3
    some = np.random.default_rng(1).permutation(np.flatnonzero(kept))
    truth = exact.search(DATA.queries, 10)
    assert (index.search(DATA.queries, 10).ids == truth.ids).mean() > (0.999 if kind.exact else 0.7)
    assert (index.search(DATA.queries, 10, aim=1.0).ids == truth.ids).mean() > 0.99
    right = exact.search(DATA.queries, 10, among=Among(some))
    for among in (Among(some), Among(np.arange(ROWS), kept)):
        assert np.isin(index.search(DATA.queries, 10, among=among).ids, some).all()
        found = index.search(DATA.queries, 10, among=among, aim=1.0)
        assert (found.ids == right.ids).mean() > 0.99
        np.testing.assert_allclose(found.scores, right.scores, atol=1e-5)
    with pytest.raises(ValueError, match="aim must be above 0"):
        index.search(DATA.queries, 10, aim=2.0)


@pytest.mark.parametrize("name", ["flat", *STORE_KINDS])
def test_what_a_store_has_is_loaded_as_what_it_was(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    index = filled(kind)
    assert kind.load is not None
    again = kind.load(index.save(tmp_path / f"default.{kind.suffix}"))
    assert (again.search(DATA.queries, 5).ids == index.search(DATA.queries, 5).ids).all()
    assert type(again) is type(index)
    assert type(index).__name__.lower() == kind.suffix


def test_lists_of_the_other_kind_are_not_loaded(tmp_path: Path) -> None:
    path = filled(KINDS["faiss"]).save(tmp_path / "default.faissindex")
    load = KINDS["faiss-rabitq"].load
    assert load is not None
    with pytest.raises(ValueError, match="hold flat, not rabitq"):
        load(path)


def test_a_store_says_which_index_it_may_have_and_why_not_others() -> None:
    assert STORE_KINDS == ("lsh", "faiss", "faiss-rabitq")
    for name in STORE_KINDS:
        assert StoreConfig(index=name).index == name
    with pytest.raises(ValueError, match="one of lsh, faiss, faiss-rabitq; got 'magic'"):
        StoreConfig(index="magic")
    for kind in KINDS.values():
        assert bool(kind.why_not) == (kind.name not in STORE_KINDS)
        if kind.why_not:
            with pytest.raises(
                ValueError, match=f"'{kind.name}' cannot be that of a store: {kind.why_not[:20]}"
            ):
                StoreConfig(index=kind.name)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert [kind.missing for kind in (KINDS["lsh"], KINDS["faiss"])] == ["", "faiss"]
    told = KINDS["faiss-gpu"].to_json()
    assert (told["name"], told["needs"], told["missing"]) == ("faiss-gpu", "faiss and a GPU", "faiss")
