"""Indexes of a store: mapped at the start, moved to the long-term tier, built again."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.config import StoreConfig, TierOptions
from memory.index import Among, FlatIndex, LSHIndex
from memory.index.evaluation import clustered
from memory.query import Query
from memory.store import MemoryStore
from memory.types import Memory


def test_indexes_are_mapped_at_the_next_start_and_follow(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = [Memory(time_ns=at, embedding=v) for at, v in enumerate(random.standard_normal((300, 8)))]
    config = StoreConfig(index_from=100)
    with MemoryStore.open(tmp_path, dim=8, config=config) as store:
        store.add(rows)
        first = store.search(np.stack([row.embedding for row in rows[:20]]), 5)
    assert [file.name for file in (tmp_path / "indexes").iterdir()] == ["default.lshindex"]
    with MemoryStore.open(tmp_path) as store:
        index = store._retriever.indexes.by_encoder["default"]
        assert len(index) == 300
        again = store.search(np.stack([row.embedding for row in rows[:20]]), 5)
        np.testing.assert_array_equal(first.ids, again.ids)
        assert store._retriever.indexes.by_encoder["default"] is index, "not built again"
        store.forget([1])
        (new,) = store.add([dataclasses.replace(rows[0], time_ns=1)])
        assert store.search(rows[0].embedding[None], 1).ids.tolist() == [[new]]


def test_an_index_that_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=8) as store:
        store.add([Memory(time_ns=at, embedding=np.eye(8)[at]) for at in range(8)])
        store.search(np.ones((1, 8)), 1)
    file = tmp_path / "indexes" / "default.flatindex"
    before = file.stat().st_mtime_ns
    with MemoryStore.open(tmp_path) as store:
        assert store.search(np.eye(8)[3:4], 1).ids.tolist() == [[4]]
    assert file.stat().st_mtime_ns == before
    with MemoryStore.open(tmp_path) as store:
        store.forget([4])
    assert file.stat().st_mtime_ns > before
    with MemoryStore.open(tmp_path) as store:
        assert 4 not in store.search(np.eye(8)[3:4], 8).ids


def test_a_new_pose_leaves_the_vectors_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryStore.open(tmp_path, dim=8) as store:
        store.add([Memory(time_ns=at, embedding=np.eye(8)[at]) for at in range(8)])
        store.search(np.eye(8), 1)
        index = store._retriever.indexes.by_encoder["default"]
        touched: list[int] = []
        monkeypatch.setattr(index, "add", lambda vectors, ids: touched.extend(ids))
        monkeypatch.setattr(index, "remove", lambda ids: touched.extend(ids))
        store.repose([3, 5], [[7.0, 7.0, 0.0], [9.0, 9.0, 0.0]], [0.0, 0.0])
        near = Query(embedding=np.eye(8)[2], near=(9.0, 9.0), radius_m=1.0)
        assert [hit.memory.id for hit in store.query(near)] == [5]
        assert touched == []
        monkeypatch.undo()
        store.undo(store.generation)
        assert store.query(near) == []


def vectors_of(rows: int, dim: int = 16) -> list[Memory]:
    data = clustered(rows, 1, dim=dim, centres=20, noise=0.1)
    return [Memory(time_ns=at, embedding=vector) for at, vector in enumerate(data.vectors)]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300.0
    while not condition():
        assert time.monotonic() < deadline, "nothing happens in the background"
        time.sleep(0.005)


@pytest.mark.parametrize("index", ["lsh", "faiss", "faiss-rabitq"])
def test_vectors_move_to_the_long_term_tier_in_the_background(tmp_path: Path, index: Any) -> None:
    if index != "lsh":
        pytest.importorskip("faiss")
    rows = vectors_of(3000)
    tiers = TierOptions(recent=64, portion=128, budget=1.0)
    config = StoreConfig(index_from=500, index=index, tiers=tiers)
    with MemoryStore.open(tmp_path, dim=16, config=config) as store:
        asked = np.stack([row.embedding for row in rows])
        for first in range(0, 3000, 300):
            store.add(rows[first : first + 300])
            found = store.search(asked[: first + 300], 1).ids[:, 0] - 1
            assert (found == np.arange(first + 300)).mean() > 0.98, "all can be found at every moment"
        wait_until(lambda: store.tiers()["default"].waiting <= 128)
        tier = store.tiers()["default"]
        assert tier.recent + tier.long_term == 3000
        assert tier.recent <= 64 + 128
        assert tier.index == ("LSHIndex" if index == "lsh" else "FaissIndex")
        store.settle()
        assert store.tiers()["default"].recent == 64
        before = store.search(asked[:50], 5)
    with MemoryStore.open(tmp_path) as store:
        assert store.tiers()["default"].long_term == 3000, "mapped at the start"
        assert (store.search(asked[:50], 5).ids == before.ids).mean() > 0.95
        store.forget([1])
        assert 1 not in store.search(asked[:1], 10).ids


def test_an_index_of_before_is_measured_in_the_background_and_kept(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=16, config=StoreConfig(index_from=500)) as store:
        store.add(vectors_of(3000))
        store.search(np.ones((1, 16)), 1)
        store.settle()
        before = store.tiers()["default"].reached
        assert before is not None
        assert [one.aim for one in before] == [0.95, 0.99, 0.995]
        assert store.tiers()["default"].to_json()["reached"][0]["aim"] == 0.95
    file = tmp_path / "indexes" / "default.lshindex"
    index = LSHIndex.load(file)
    index.calibration = None
    index.save(file)  # As older releases did.
    with MemoryStore.open(tmp_path) as store:
        assert store.tiers()["default"].reached is None
        assert store.search(np.ones((1, 16)), 5).ids.min() > 0
        wait_until(lambda: store.tiers()["default"].reached is not None)
        assert store.tiers()["default"].reached == before
    with MemoryStore.open(tmp_path) as store:
        assert store.tiers()["default"].reached == before, "kept, although nothing was added"


def test_an_aim_of_one_compares_all(tmp_path: Path) -> None:
    rows = vectors_of(3000)
    asked = np.stack([row.embedding for row in rows[:40]])
    with MemoryStore.open(tmp_path, dim=16, config=StoreConfig(index_from=500)) as store:
        store.add(rows)
        found = store.search(asked, 10, aim=1.0)
        exact = store._retriever.indexes.by_encoder["default"].search(
            asked, 10, among=Among(np.arange(3001)), aim=1.0
        )
        np.testing.assert_array_equal(found.ids, exact.ids)
        with pytest.raises(ValueError, match="aim"):
            store.search(asked, 10, aim=1.5)


def test_without_the_background_vectors_move_when_asked_to(tmp_path: Path) -> None:
    config = StoreConfig(index_from=500, tiers=TierOptions(recent=64, background=False))
    with MemoryStore.open(tmp_path, dim=16, config=config) as store:
        store.search(np.ones((1, 16)), 1)
        store.add(vectors_of(2000))
        assert store.search(np.ones((1, 16)), 5).ids.min() > 0
        assert not [thread for thread in threading.enumerate() if thread.name == "memory-tiers"]
        assert store.tiers()["default"].long_term == 0
        store.settle()
        assert store.tiers()["default"].recent == 64


def test_closing_ends_the_background_thread_at_once(tmp_path: Path) -> None:
    config = StoreConfig(index_from=100, tiers=TierOptions(recent=10, portion=1, budget=1e-3))
    with MemoryStore.open(tmp_path, dim=16, config=config) as store:
        store.search(np.ones((1, 16)), 1)
        store.add(vectors_of(2000))
        store.search(np.ones((1, 16)), 1)
        assert [thread for thread in threading.enumerate() if thread.name == "memory-tiers"]
    assert not [thread for thread in threading.enumerate() if thread.name == "memory-tiers"]
    with MemoryStore.open(tmp_path) as store:
        assert len(store.search(np.ones((1, 16)), 2000).ids[0]) == 2000, "what waited is there"


def test_a_long_term_index_that_lost_its_vectors_is_saved_as_what_it_is(tmp_path: Path) -> None:
    config = StoreConfig(index_from=10, tiers=TierOptions(recent=10, background=False))
    with MemoryStore.open(tmp_path, dim=16, config=config) as store:
        store.search(np.ones((1, 16)), 1)
        store.add(vectors_of(15))
        store.settle()
        store.forget([1, 2, 3, 4, 5])
        assert store.search(np.ones((1, 16)), 1).ids.min() > 5
        assert store.tiers()["default"].long_term == 0
    assert [file.name for file in (tmp_path / "indexes").iterdir()] == ["default.lshindex"]
    with MemoryStore.open(tmp_path) as store:
        assert store.tiers()["default"].long_term == 10


def test_an_index_that_became_another_leaves_no_old_file(tmp_path: Path) -> None:
    random = np.random.default_rng(0)

    def more(count: int) -> list[Memory]:
        return [Memory(time_ns=0, embedding=v) for v in random.standard_normal((count, 8))]

    with MemoryStore.open(tmp_path, dim=8, config=StoreConfig(index_from=100)) as store:
        store.add(more(50))
        store.search(np.ones((1, 8)), 1)
    assert [file.name for file in (tmp_path / "indexes").iterdir()] == ["default.flatindex"]
    with MemoryStore.open(tmp_path) as store:
        store.add(more(250))
        assert len(store.search(np.ones((1, 8)), 300).ids[0]) == 300
        store.settle()
    assert [file.name for file in (tmp_path / "indexes").iterdir()] == ["default.lshindex"]


@pytest.mark.parametrize("damage", ["cut", "other", "dimension", "future"])
def test_an_index_file_that_does_not_fit_is_built_again(tmp_path: Path, damage: str) -> None:
    with MemoryStore.open(tmp_path / "a", dim=8) as store:
        store.add([Memory(time_ns=at, embedding=np.eye(8)[at]) for at in range(8)])
        store.search(np.ones((1, 8)), 1)
    file = tmp_path / "a" / "indexes" / "default.flatindex"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-5])
    elif damage == "other":
        file.write_bytes(b"something else")
    else:
        wrong = FlatIndex(9 if damage == "dimension" else 8)
        wrong.add(np.eye(wrong.dim, dtype=np.float32)[:1], [77])
        wrong.generation = 1 if damage == "dimension" else 1000
        wrong.save(file)
    with MemoryStore.open(tmp_path / "a") as store:
        assert store.search(np.eye(8)[3:4], 1).ids.tolist() == [[4]]


def test_names_of_encoders_are_never_paths(tmp_path: Path) -> None:
    names = ["../../out", "a/b", "Clip", "clip", "..", "x" * 300, "ü"]
    folder = tmp_path / "deep" / "er" / "store"
    with MemoryStore.open(folder, dim=2) as store:
        for at, name in enumerate(names):
            store.add([Memory(time_ns=0, embeddings={name: np.array([1.0, at])})])
            assert store.query(Query(embedding=np.array([1.0, at]), encoder=name))
    assert len(list((folder / "indexes").iterdir())) == len(names)
    assert {path.name for path in tmp_path.rglob("*") if path.is_dir()} == {"deep", "er", "store", "indexes"}
    with MemoryStore.open(folder) as store:
        for at, name in enumerate(names):
            assert store.search(np.array([[1.0, at]]), 1, encoder=name).ids.tolist() == [[at + 1]]
        assert set(store._retriever.indexes.by_encoder) == set(names)
