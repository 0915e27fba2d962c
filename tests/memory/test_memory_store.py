"""The store: what is kept, merged, forgotten, undone, explained, and found again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cups import DIM, S, axis, cup, ids_of

from memory.config import Policy, StoreConfig
from memory.errors import (
    DimensionError,
    NotAStoreError,
    StoreClosedError,
    UndoError,
    UnknownMemoryError,
)
from memory.query import Filter, Query
from memory.store import MemoryStore
from memory.types import Memory


def test_what_was_added_is_found_right_after_by_every_way(store: MemoryStore) -> None:
    for number in range(12):
        store.add([cup(caption="decoy", embedding=axis(15))])
        vector = axis(number)
        (id,) = store.add([cup(number, x=100.0 + number, caption=f"word{number}", embedding=vector)])
        assert ids_of(store, Query(embedding=vector, k=1)) == [id]
        assert store.search(vector[None], 1).ids.tolist() == [[id]]
        assert ids_of(store, Query(text=f"word{number}")) == [id]
        assert ids_of(store, Query(near=(100.0 + number, 0.0), radius_m=0.1)) == [id]
        assert ids_of(store, Query(between_ns=(number * S, number * S), min_confidence=1.0, k=1)) != []
        assert store.find(Filter(text=f"word{number}"))[0].id == id
    assert len(store) == store.count(Filter()) == 24


def test_scores_are_what_hits_are_ordered_by(store: MemoryStore) -> None:
    store.add([cup(1, 3.0, caption="red"), cup(2, 1.0, caption="red red", embedding=axis(0) + axis(1))])
    by_likeness = store.query(Query(embedding=axis(0), near=(0.0, 0.0)))
    assert [hit.score for hit in by_likeness] == pytest.approx([1.0, np.sqrt(0.5)], abs=1e-3)
    assert [hit.parts["distance_m"] for hit in by_likeness] == [3.0, 1.0]
    assert [hit.score for hit in store.query(Query(near=(0.0, 0.0), order="distance"))] == [-1.0, -3.0]
    assert [hit.score for hit in store.query(Query(near=(0.0, 0.0)))] == [-1.0, -3.0]
    newest, older = (hit.score for hit in store.query(Query()))
    assert newest == 1.0 > older == pytest.approx(1.0, abs=1e-5)
    by_words = store.query(Query(text="red"))
    assert by_words[0].score == by_words[0].parts["text"] >= by_words[1].score
    assert all(hit.attention is None for hit in by_words)


def test_recency_halves_with_the_age_behind_the_newest(location: Path | str) -> None:
    with MemoryStore.open(location, dim=DIM, config=StoreConfig(half_life_s=10.0)) as store:
        store.add([cup(100), cup(80, caption="old"), cup(70)])
        hits = store.query(Query())
        assert [hit.parts["recency"] for hit in hits] == pytest.approx([1.0, 0.25, 0.125])
        # Of the newest there is, not of the newest hit.
        (hit,) = store.query(Query(text="old", order="recency"))
        assert hit.parts["recency"] == pytest.approx(0.25)
        hits = store.context(Query(embedding=axis(0))).hits
        assert {hit.memory.id: hit.parts["recency"] for hit in hits} == pytest.approx(
            {1: 1.0, 2: 0.25, 3: 0.125}
        )
        store.add([cup(110)])
        assert store.query(Query(k=2))[1].parts["recency"] == pytest.approx(0.5)
        store.forget([4])
        assert store.query(Query())[0].parts["recency"] == 1.0
        for other in (Query(embedding=axis(0)), Query(near=(0.0, 0.0), order="distance"), Query(text="old")):
            assert all("recency" not in hit.parts for hit in store.query(other))
        store.add([Memory(time_ns=2**63 - 1)])
        assert store.query(Query(labels=["cup"]))[0].parts["recency"] == 0.0
        assert store.query(Query(labels=["none"])) == []


def test_errors_are_clear_and_change_nothing(store: MemoryStore) -> None:
    (id,) = store.add([cup()])
    with pytest.raises(DimensionError, match="3 numbers"):
        store.add([cup(), cup(embedding=np.ones(3))])
    with pytest.raises(DimensionError):
        store.query(Query(embedding=np.ones(3)))
    with pytest.raises(DimensionError):
        store.search(np.ones((1, 3)))
    with pytest.raises(DimensionError, match=r"memories\[1\]"):
        store.observe([cup(), cup(embedding=np.ones(3))])
    with pytest.raises(ValueError, match="finite"):
        cup(embedding=np.full(DIM, np.nan))
    with pytest.raises(ValueError, match="finite"):
        store.search(np.full((1, DIM), np.nan))
    with pytest.raises(ValueError, match="vector of encoder 'clip'"):
        store.query(Query(embedding=np.ones(DIM), encoder="clip"))
    with pytest.raises(UnknownMemoryError, match="99"):
        store.query(Query(like=99))
    with pytest.raises(UnknownMemoryError, match="no vector of encoder"):
        store.query(Query(like=id, encoder="clip"))
    for ask in (store.get, store.forget):
        with pytest.raises(UnknownMemoryError, match="99"):
            ask([id, 99])
    with pytest.raises(UnknownMemoryError, match="no memory ever had the id 99"):
        store.explain(99)
    with pytest.raises(UndoError):
        store.undo(99)
    with pytest.raises(UnknownMemoryError):
        store.repose([99], np.zeros((1, 3)), np.zeros(1))
    with pytest.raises(ValueError, match="finite"):
        store.repose([id], np.full((1, 3), np.nan), np.zeros(1))
    with pytest.raises(ValueError, match="the store sets ids"):
        store.observe([cup(id=5)])
    wrong: Any = cup()
    for call, argument, message in (
        (store.add, wrong, r"such as add\(\[memory\]\)"),
        (store.observe, wrong, r"such as observe\(\[memory\]\)"),
        (store.get, 1, "give a list of ids"),
        (store.query, "cup", "give a Query"),
        (store.context, np.ones(DIM), "give a Query"),
    ):
        with pytest.raises(TypeError, match=message):
            call(argument)
    with pytest.raises(TypeError, match=r"no argument 'label'. Filters are .*labels"):
        Query(label="cup")  # type: ignore[call-arg]
    assert (len(store), store.generation) == (1, 1)
    assert store.observe([]) == []


def test_opening(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="new store"):
        MemoryStore.open(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(NotAStoreError):
        MemoryStore.open(tmp_path / "new", dim=4, create=False)
    with pytest.raises(NotAStoreError):
        MemoryStore.open(tmp_path / "new", readonly=True)
    config = StoreConfig(capacity=7)
    store = MemoryStore.open(tmp_path / "new", dim=4, config=config)
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.add([])
    with pytest.raises(StoreClosedError):
        store.query(Query())
    with pytest.raises(DimensionError):
        MemoryStore.open(tmp_path / "new", dim=5)
    with MemoryStore.open(tmp_path / "new") as again:
        assert (again.dim, again.config) == (4, config)
    (tmp_path / "new" / "config.json").write_text('{"capacity": "many"}')
    with pytest.raises(ValueError, match="capacity"):
        MemoryStore.open(tmp_path / "new")
    with MemoryStore.open(tmp_path / "new", config=StoreConfig()):
        pass  # The lock was let go.


def test_closing_lets_go_of_the_store_even_where_caches_cannot_be_written(tmp_path: Path) -> None:
    store = MemoryStore.open(tmp_path, dim=DIM)
    store.add([cup()])
    store.query(Query(embedding=axis(0)))
    (tmp_path / "indexes").write_text("in the way")
    with pytest.raises(OSError, match="exist"):
        store.close()
    (tmp_path / "indexes").unlink()
    with MemoryStore.open(tmp_path) as again:
        assert ids_of(again, Query(embedding=axis(0))) == [1]


def test_consolidation_merges_and_is_undone(store: MemoryStore) -> None:
    a, b, _, d = store.add(
        [
            cup(10, 0.0, caption="old"),
            cup(30, 0.1, caption="new", confidence=0.5),
            cup(20, 3.0),
            cup(5, 0.0, map_id="attic"),
        ]
    )
    before = store.find(Filter())
    told: list[tuple[str, int, int]] = []
    done = store.consolidate(now_ns=100 * S, progress=lambda *entry: told.append(entry))
    assert told == [("merging map attic", 0, 2), ("merging map default", 1, 2)]
    ((result, sources),) = done.merged
    assert sources == (a, b)
    assert (done.forgotten, len(done.generations)) == ({}, 1)
    (merged,) = store.get([result])
    assert (merged.count, merged.caption, merged.confidence) == (2, "new", 1.0)
    assert (merged.first_seen_ns, merged.last_seen_ns) == (10 * S, 30 * S)
    assert ids_of(store, Query(embedding=axis(0), map_id="attic")) == [d]
    told_of = store.explain(a)
    assert (told_of.status, told_of.into) == ("merged", result)
    assert "2 memories of kind object within" in told_of.reasons[0]
    made = store.explain(result)
    assert (made.status, tuple(made.sources)) == ("kept", (a, b))
    assert "it represents 2 observations, merged from 2 memories" in made.reasons
    taken_back = store.undo(done.generations[0])
    assert store.find(Filter()) == before
    assert store.explain(a).status == "undone"
    assert f"operation {done.generations[0]} was undone" in store.explain(a).reasons[0]
    assert store.explain(result).status == "forgotten"
    # The taking back can be taken back, and what is merged already stays.
    store.undo(taken_back)
    assert store.get([result])[0].count == 2
    assert store.consolidate(now_ns=100 * S).merged == []


def test_over_capacity_the_least_used_are_forgotten_with_reasons(location: Path | str) -> None:
    config = StoreConfig(capacity=3, forgetting=Policy(name="lru"))
    with MemoryStore.open(location, dim=DIM, config=config) as store:
        store.add([cup(at, 10.0 * at, label=f"thing{at}", marked=at == 1) for at in range(6)])
        # Asked for, so used.
        assert ids_of(store, Query(text="thing0")) == [1]
        done = store.consolidate(now_ns=100 * S)
        assert [memory.id for memory in store.find(Filter(), newest_first=False)] == [1, 2, 6]
        assert sorted(done.forgotten) == [3, 4, 5]
        assert "map 'default' has 6 memories, its capacity is 3: not used for" in done.forgotten[3]
        told = store.explain(3)
        assert told.status == "forgotten"
        # The log outlives the memories: it does not name their map.
        assert done.forgotten[3].replace("map 'default'", "its map") in told.reasons[0]
        (generation,) = done.generations
        store.undo(generation)
        assert len(store) == 6
    # A query of a reader is no use: it changes nothing.
    with MemoryStore.open(location, readonly=True) as reader:
        assert ids_of(reader, Query(text="thing3")) == [4]


def test_forgetting_and_taking_it_back(store: MemoryStore) -> None:
    first, second = store.add([cup(caption="secret one"), cup(1, caption="another")])
    generation = store.forget([first], reason="the owner asked")
    assert ids_of(store, Query(embedding=axis(0))) == ids_of(store, Query()) == [second]
    assert ids_of(store, Query(text="secret")) == []
    told = store.explain(first)
    assert told.status == "forgotten"
    assert told.reasons[0].endswith("the owner asked")
    store.undo(generation)
    assert ids_of(store, Query(embedding=axis(0))) == [first, second]
    assert ids_of(store, Query(text="secret")) == [first]
    assert [entry.operation for entry in store.log()] == ["add", "remove", "undo"]
    with pytest.raises(UndoError, match="already undone"):
        store.undo(generation)


def test_reposing_is_followed_by_filters_and_undone(store: MemoryStore) -> None:
    ids = store.add([cup(at, float(at)) for at in range(5)])
    assert ids_of(store, Query(near=(0.0, 0.0), radius_m=1.0)) == [1, 2]
    generation = store.repose(
        ids[:2],
        [[50, 1, 2], [51, 1, 2]],
        [0.5, 0.6],
        covariances=np.stack([np.eye(3)] * 2),
        reason="loop closure at the door",
    )
    assert ids_of(store, Query(near=(0.0, 0.0), radius_m=1.0)) == []
    assert ids_of(store, Query(near=(50.0, 1.0), radius_m=1.0, embedding=axis(0))) == [1, 2]
    (moved,) = store.get([1])
    assert (moved.position, moved.yaw) == ((50.0, 1.0, 2.0), 0.5)
    np.testing.assert_array_equal(moved.covariance, np.eye(3))
    assert any("loop closure at the door" in detail for _, _, detail in store.explain(1).history)
    store.undo(generation)
    assert ids_of(store, Query(near=(0.0, 0.0), radius_m=1.0)) == [1, 2]
    assert store.get([1])[0].covariance is None


def test_check_stats_and_maps(store: MemoryStore) -> None:
    store.add([cup(), cup(map_id="attic", kind="note")])
    store.add([cup()])
    assert store.check().ok
    assert store.maps() == ["attic", "default"]
    stats = store.stats()
    assert (stats.memories, stats.by_kind, stats.vectors) == (3, {"note": 1, "object": 2}, {"default": 3})
    assert json.dumps(stats.to_json())


def test_states_as_they_were(store: MemoryStore) -> None:
    store.add([cup(), cup(1)])
    start = store.generation
    (memory,) = store.get([1])
    store._database.update([dataclasses.replace(memory, state="gone")])
    store._database.update([dataclasses.replace(memory, state="moved")])
    store.add([cup(2)])
    assert store.states_at(start, [1, 2, 3]) == {1: "present", 2: "present"}
    assert store.states_at(start + 1, [1]) == {1: "gone"}
    assert store.states_at(store.generation, [1, 3]) == {1: "moved", 3: "present"}
