"""Inverted lists by faiss."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest

from memory.index.evaluation import clustered
from memory.index.faiss_index import FaissIndex, Lists
from memory.index.flat import FlatIndex

DATA = clustered(6000, 60, dim=64, centres=40, noise=0.08)
IDS = np.arange(6000) * 2 + 1


@pytest.fixture(autouse=True)
def _faiss(request: pytest.FixtureRequest) -> None:
    if "without" not in request.node.name:
        pytest.importorskip("faiss", reason="faiss is an optional library")


def built(lists: Lists, **settings: Any) -> tuple[FaissIndex, FlatIndex]:
    index = FaissIndex(64, lists=lists, **{"cells": 32, "probes": 8, **settings})
    exact = FlatIndex(64)
    index.train(DATA.vectors[:2000])
    for known in (index, exact):
        known.add(DATA.vectors, IDS)
    return index, exact


def test_faiss_itself_agrees_with_the_exact_index() -> None:
    """A third party's flat index is the oracle of this library's."""
    faiss = pytest.importorskip("faiss")
    oracle = faiss.IndexFlatIP(64)
    oracle.add(DATA.vectors.astype(np.float16).astype(np.float32))
    scores, places = oracle.search(DATA.queries, 10)
    exact = built("flat")[1].search(DATA.queries, 10)
    np.testing.assert_allclose(exact.scores, scores, atol=1e-5)
    assert (exact.ids == IDS[places]).mean() > 0.99


def test_exact_until_it_is_trained_from_its_own_rows() -> None:
    index, exact = FaissIndex(64, cells=16, probes=16), FlatIndex(64)
    for known in (index, exact):
        known.add(DATA.vectors[:1000], IDS[:1000])
    right = exact.search(DATA.queries, 5)
    assert (index.search(DATA.queries, 5).ids == right.ids).all()
    index.train()
    assert index.trained
    assert (index.search(DATA.queries, 5).ids == right.ids).mean() > 0.95
    assert index.search(np.empty((0, 64), np.float32), 5).ids.shape == (0, 5)
    with pytest.raises(ValueError, match="trained already"):
        index.train()


def test_faiss_that_takes_tensors_finds_the_same_rows() -> None:
    """``faiss.contrib.torch_utils`` replaces methods of faiss for the whole process."""
    index = built("half")[0]
    before = index.search(DATA.queries, 5).ids
    pytest.importorskip("faiss.contrib.torch_utils")
    assert (index.search(DATA.queries, 5).ids == before).all()


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="lists must be one of"):
        FaissIndex(8, lists="pq")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="probes must be at least 1"):
        FaissIndex(8, probes=0)
    with pytest.raises(ValueError, match="too few for 100 cells"):
        FaissIndex(64, cells=100).train(DATA.vectors[:99])


def test_without_faiss_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def blocked(name: str, *args: Any, **more: Any) -> Any:
        if name == "faiss":
            raise ModuleNotFoundError("no faiss", name="faiss")
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", blocked)
    with pytest.raises(ImportError, match=r"pip install 'sparsight\[faiss\]'"):
        FaissIndex(8)
