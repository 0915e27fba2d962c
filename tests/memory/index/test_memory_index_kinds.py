"""The table of kinds: what it says is so, and a store takes what it may take."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from memory import Memory, MemoryStore, Query, StoreConfig
from memory.errors import IndexUnavailableError
from memory.index import FlatIndex, clustered, kinds
from memory.index.kinds import KINDS, STORE_KINDS
from memory.index.neighbours import Among, LongTermIndex

ROWS = 8192
DATA = clustered(ROWS, 20, dim=256, centres=50)


def fill(name: str) -> LongTermIndex:
    """An index of the kind with all vectors, sorted in."""
    kind = KINDS[name]
    if kind.package:
        pytest.importorskip(kind.package)
    assert kind.make is not None
    index = kind.make(256, ROWS)
    index.add(DATA.vectors, np.arange(ROWS))
    index.merge(whole=True)
    return index


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("gpu_kinds_on_cpu")
def test_every_kind_takes_the_bytes_that_it_says_and_searches_in_the_one_way(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "_FLAT_ON_GPU", 0)
    monkeypatch.setitem(KINDS, "faiss-gpu", replace(KINDS["faiss-gpu"], **kinds.faiss_on("cpu")))
    kind, index, exact = KINDS[name], fill(name), FlatIndex(256)
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
@pytest.mark.usefixtures("gpu_kinds_on_cpu")
def test_what_a_store_has_is_loaded_as_what_it_was(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    index = fill(name)
    assert kind.load is not None
    again = kind.load(index.save(tmp_path / f"default.{kind.suffix}"))
    assert (again.search(DATA.queries, 5).ids == index.search(DATA.queries, 5).ids).all()
    assert type(again) is type(index)
    assert type(index).__name__.lower() == kind.suffix


def test_lists_of_the_other_kind_are_not_loaded(tmp_path: Path) -> None:
    path = fill("faiss").save(tmp_path / "default.faissindex")
    load = KINDS["faiss-rabitq"].load
    assert load is not None
    with pytest.raises(ValueError, match="hold flat"):
        load(path)


def test_a_store_says_which_index_it_may_have_and_why_not_others() -> None:
    assert STORE_KINDS == ("lsh", "itq", "faiss", "faiss-rabitq", "faiss-gpu", "cuda")
    for name in STORE_KINDS:
        assert StoreConfig(index=name).index == name
    with pytest.raises(ValueError, match="lsh, itq, faiss, faiss-rabitq, faiss-gpu, cuda; got 'magic'"):
        StoreConfig(index="magic")
    for kind in KINDS.values():
        assert bool(kind.why_not) == (kind.name not in STORE_KINDS)
        if kind.why_not:
            with pytest.raises(ValueError, match=f"'{kind.name}'.*{kind.why_not[:20]}"):
                StoreConfig(index=kind.name)


def test_what_is_missing_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        IndexUnavailableError,
        match=r"'cuda' needs a GPU; missing here: a GPU.*NVIDIA GPU.*--index lsh",
    ):
        MemoryStore.open(tmp_path / "store", dim=4, config=StoreConfig(index="cuda"))
    assert not (tmp_path / "store").exists()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert [kind.missing for kind in (KINDS["lsh"], KINDS["faiss"])] == ["", "faiss"]
    told = KINDS["faiss-gpu"].to_json()
    assert (told["needs"], told["missing"]) == ("faiss for GPUs and a GPU", "faiss and a GPU")
    with pytest.raises(IndexUnavailableError, match=r"pip install 'sparsight\[faiss\]'"):
        KINDS["faiss"].require()
    with pytest.raises(
        IndexUnavailableError, match=r"pip uninstall faiss-cpu.*sparsight\[faiss-gpu\]' and run"
    ):
        KINDS["faiss-gpu"].require()


def test_a_store_of_a_missing_kind_opens_and_says_so_when_vectors_are_searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    vector = np.eye(4, dtype=np.float32)[0]
    with MemoryStore.open(tmp_path / "store", dim=4, config=StoreConfig(index_from=500)) as store:
        store.add([Memory(time_ns=1, label="cup", embedding=vector)])
    config = tmp_path / "store" / "config.json"
    config.write_text(config.read_text().replace('"lsh"', '"cuda"'))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with MemoryStore.open(tmp_path / "store") as store:
        assert store.query(Query(labels=["cup"]))[0].memory.id == 1
        with pytest.raises(IndexUnavailableError, match="missing here: a GPU"):
            store.query(Query(embedding=vector))


def test_vectors_that_are_too_short_are_refused(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=4, config=StoreConfig(index="itq")) as store:
        store.add([Memory(time_ns=1, embedding=np.eye(4, dtype=np.float32)[0])])
        with pytest.raises(ValueError, match="'itq' needs vectors of at least 64 numbers, these have 4"):
            store.query(Query(embedding=np.eye(4, dtype=np.float32)[0]))
