"""A store of every kind of index against brute force, through random changes, filters and restarts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from memory import Memory, MemoryStore, Query, StoreConfig
from memory.config import TierOptions
from memory.index import Costs, calibration, itq, kinds, tiered
from memory.index.cuda import efforts
from memory.index.kinds import KINDS, STORE_KINDS
from memory.query import Filter

DIM, CENTRES, K = 64, 12, 5
LABELS = ("cup", "chair", "door")
#: The index is so cheap that it is asked wherever it may be.
CHEAP = Costs(gathered_row=1e6, passed_row=1e6, filter_row=1e-3, index_base=1.0, index_row=1e-3)
CASES = [*STORE_KINDS, "faiss-gpu, flat"]


@pytest.fixture(params=CASES)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, gpu_kinds_on_cpu: None) -> str:
    """The name of a kind, whose index is used although there are few vectors."""
    name, _, flat = request.param.partition(", ")
    if KINDS[name].package:
        pytest.importorskip(KINDS[name].package)
    if name == "faiss-gpu" and not flat:
        monkeypatch.setattr(kinds, "_FLAT_ON_GPU", 0)
        monkeypatch.setitem(KINDS, name, replace(KINDS[name], **kinds.faiss_on("cpu")))
    monkeypatch.setattr(tiered.TieredIndex, "costs", lambda self, aim=0.99: CHEAP)
    monkeypatch.setattr("memory.index.base.exact_price", lambda rows, queries=1: 1e12)
    monkeypatch.setattr(efforts, "_EXACT_ROW", 1e9)
    monkeypatch.setattr(itq, "_LEAST_SAMPLE", 64)
    monkeypatch.setattr(calibration, "QUERIES", 24)
    return name


class Robot:
    """Random memories around a few centres, seen at a few places."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.centres = self.random.normal(size=(CENTRES, DIM))
        self.time_ns = 0

    def vectors(self, count: int) -> NDArray[np.float32]:
        """(count, dim) float32 unit vectors."""
        near = self.centres[self.random.integers(0, CENTRES, count)]
        drawn = near + 0.4 * self.random.normal(size=(count, DIM))
        return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)

    def sees(self, count: int) -> list[Memory]:
        """So many memories, each ten seconds after the last."""
        found = []
        for vector in self.vectors(count):
            self.time_ns += 10**10
            place = self.random.integers(0, 6, 2) * 10.0 + self.random.normal(size=2) * 0.05
            label = LABELS[self.random.integers(len(LABELS))]
            found.append(
                Memory(time_ns=self.time_ns, position=(*place.tolist(), 0.0), label=label, embedding=vector)
            )
        return found

    def filter(self) -> dict[str, Any]:
        """Nothing, or a filter of any share."""
        half = self.time_ns // 2
        choices: list[dict[str, Any]] = [
            {},
            {"labels": ["cup"]},
            {"between_ns": (half, self.time_ns)},
            {"near": (0.0, 0.0), "radius_m": 25.0},
            {"labels": ["door"], "between_ns": (0, half)},
            {"labels": ["nothing of the kind"]},
        ]
        return choices[self.random.integers(len(choices))]


def asked(store: MemoryStore, vector: NDArray[np.float32], where: dict[str, Any]) -> tuple[int, int]:
    """Check one query; how many of the nearest it found, of how many."""
    query = Query(embedding=vector, k=K, **where)
    hits, everything = store.query(query), store.find(query.filter)
    scores = np.array([float(np.dot(vector, unit(memory.embedding))) for memory in everything], np.float32)
    truth = dict(zip([memory.id for memory in everything], scores.tolist(), strict=True))
    found = [hit.memory.id for hit in hits]
    assert len(set(found)) == len(found) == min(K, len(truth)), "as many as there are, each once"
    assert set(found) <= set(truth), "nothing that was forgotten, or that the filter leaves out"
    similar = [truth[id] for id in found]
    np.testing.assert_allclose([hit.parts["similarity"] for hit in hits], similar, atol=2e-3)
    least = np.sort(scores)[::-1][: len(found)].min(initial=np.inf) - 1e-4
    return sum(score >= least for score in similar), len(found)


def unit(vector: Any) -> NDArray[np.float32]:
    """At length 1."""
    found: NDArray[np.float32] = np.asarray(vector, np.float32)
    return found / np.linalg.norm(found)


@pytest.mark.parametrize("seed", [0])
def test_answers_are_those_of_brute_force(kind: str, seed: int, tmp_path: Path) -> None:
    robot = Robot(seed)
    tiers = TierOptions(recent=16, background=False)
    config = StoreConfig(index=kind, index_from=120, tiers=tiers)
    store = MemoryStore.open(tmp_path / "store", dim=DIM, config=config)
    right = total = 0
    answered = set()
    steps = ["add", "settle", "query", "forget", "add", "settle", "restart", "merge", "query", "add"]
    steps += [*robot.random.permutation(["add", "forget", "settle", "restart", "merge"]).tolist(), "settle"]
    try:
        for step in steps:
            if step == "add":
                store.add(robot.sees(100))
            elif step == "forget":
                there = [memory.id for memory in store.find(Filter(), vectors=False)]
                store.forget(robot.random.choice(there, len(there) // 5, replace=False).tolist())
            elif step == "merge":
                before = len(store)
                store.consolidate()
                assert len(store) < before, "some are one thing"
            elif step == "settle":
                store.settle()
            elif step == "restart":
                store.close()
                store = MemoryStore.open(tmp_path / "store")
            for vector in robot.vectors(2):
                where = robot.filter()
                got, wanted = asked(store, vector, where)
                right, total = right + got, total + wanted
                plan = store.explain(Query(embedding=vector, k=K, **where))
                if plan.method == "index":
                    answered.add(plan.answered.partition(":")[0])
    finally:
        store.close()
    assert kind in answered, "the index itself was asked"
    assert right >= 0.95 * total
    suffix = KINDS[kind].suffix
    assert [path.name for path in (tmp_path / "store" / "indexes").iterdir()] == [f"default.{suffix}"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["cuda", "faiss-gpu"])
def test_the_same_on_a_gpu(name: str, cuda: torch.device, tmp_path: Path) -> None:
    if KINDS[name].missing:
        pytest.skip(f"{KINDS[name].missing} is missing")
    robot = Robot(1)
    config = StoreConfig(index=name, index_from=2000, tiers=TierOptions(recent=64, background=False))
    store = MemoryStore.open(tmp_path / "store", dim=DIM, config=config)
    right = total = 0
    for _ in range(3):
        store.add(robot.sees(3000))
        store.settle()
        store.forget(range(1 + len(store) // 2, 200 + len(store) // 2))
        store.close()
        store = MemoryStore.open(tmp_path / "store")
        for vector in robot.vectors(20):
            got, wanted = asked(store, vector, robot.filter())
            right, total = right + got, total + wanted
    store.close()
    assert right >= 0.95 * total
