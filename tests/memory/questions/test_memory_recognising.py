"""Whether something was seen before: by vectors, visit by visit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore, Query, StoreConfig
from memory.errors import DimensionError, UnknownMemoryError
from memory.merging import MergeOptions
from memory.questions import Questions
from memory.questions.reading.parsed import ParsedQuestion
from memory.questions.replying import reply

SECOND = 10**9
HOUR = 3600 * SECOND


def axis(number: int, dim: int = 8) -> np.ndarray:
    return np.eye(dim, dtype=np.float32)[number]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore.open(tmp_path / "store", dim=8) as opened:
        yield opened


def seen(time_ns: int, vector: np.ndarray, **fields: object) -> Memory:
    fields = {"position": (0.0, 0.0, 0.0), **fields}
    return Memory(time_ns=time_ns, label="Car", embedding=vector, **fields)  # type: ignore[arg-type]


def test_sights_of_the_same_visit_are_not_earlier_ones(store: MemoryStore) -> None:
    store.add([seen(at * SECOND, axis(0)) for at in (0, 30, 60, 90)])
    found = Questions(store).seen_before()
    assert (found.memory.id, found.visits, found.since_ns, found.last_ns) == (4, 0, 0, None)  # type: ignore[union-attr]
    assert "No: Car (memory 4) was not seen before this visit" in str(found)
    assert "no earlier objects to compare it with" in str(found)
    shorter = Questions(store).seen_before(gap_s=10.0)
    assert (shorter.visits, shorter.first_ns, shorter.last_ns) == (3, 0, 60 * SECOND)


def test_an_earlier_visit(store: MemoryStore) -> None:
    store.add([seen(0, axis(0), position=(3, 4, 0)), seen(SECOND, axis(0)), seen(2 * SECOND, axis(1))])
    store.add([seen(HOUR, axis(0)), seen(HOUR + SECOND, axis(0) + 0.1 * axis(2))])
    found = Questions(store).seen_before(4)
    assert (found.visits, found.first_ns, found.last_ns, found.since_ns) == (1, 0, SECOND, HOUR)
    assert [hit.memory.id for hit in found.hits][:2] == [1, 2]
    assert "Yes: Car (memory 4) was seen on 1 earlier visit" in str(found)
    assert "most similar is Car (memory 1) at (3.0, 4.0) in map default" in str(found)
    assert "similarity 1.00, 5.0 m from where it is now." in str(found)
    assert Questions(store).seen_before().memory.id == 5  # type: ignore[union-attr]


def test_what_is_not_like_it(store: MemoryStore) -> None:
    store.add([seen(0, 0.6 * axis(0) + 0.8 * axis(1)), seen(HOUR, axis(0))])
    found = Questions(store).seen_before()
    assert (found.visits, found.hits[0].memory.id) == (0, 1)
    assert str(found).endswith(
        "Car (memory 1) with similarity 0.60, 0.0 m from where it is now; at least 0.7 is required."
    )
    assert Questions(store, least_similarity=0.5).seen_before().visits == 1
    assert found.to_json()["visits"] == 0


def test_what_is_alike_and_elsewhere_is_another_thing(store: MemoryStore) -> None:
    like = 0.8 * axis(0) + 0.6 * axis(1)
    store.add([seen(0, like, position=(70, 0, 0)), seen(SECOND, like, position=(0, 5.1, 0))])
    store.add([seen(HOUR, axis(0)), seen(HOUR + SECOND, axis(0), position=(40, 0, 0))])
    found = Questions(store).seen_before(3)
    assert (found.visits, found.hits, found.within_m) == (0, (), 5.0)
    # Memory 4 is of this visit.
    assert found.elsewhere is not None
    assert found.elsewhere.memory.id == 1
    assert str(found).endswith(
        "is Car (memory 1) with similarity 0.80, 70.0 m from where it is now, but matches must be within 5 m."
    )
    assert found.to_json()["elsewhere"]["memory"]["id"] == 1
    # A nearer one counts, though it is less alike; that of another map may be it.
    for place in ({"position": (0, 5, 0)}, {"position": (9, 9, 0), "map_id": "yard"}):
        (id,) = store.add([seen(2 * SECOND, 0.75 * axis(0) + 0.66 * axis(2), **place)])
        found = Questions(store).seen_before(3)
        assert (found.visits, [hit.memory.id for hit in found.hits]) == (1, [id])
        told = "0.75, 5.0 m from where it is now." if id == 5 else "in map yard, similarity 0.75."
        assert str(found).endswith(told)
        store.forget([id])


def test_how_far_a_thing_may_be_is_how_far_it_may_be_merged(tmp_path: Path) -> None:
    config = StoreConfig(merging=MergeOptions(max_distance_m=80.0))
    with MemoryStore.open(tmp_path / "wide", dim=8, config=config) as store:
        store.add([seen(0, axis(0), position=(70, 0, 0)), seen(HOUR, axis(0))])
        assert Questions(store).seen_before().visits == 1


def test_its_own_earlier_sights_count(store: MemoryStore) -> None:
    visits = ((0, SECOND, 2), (HOUR, HOUR + SECOND, 2))
    store.add([seen(HOUR, axis(0), count=4, first_seen_ns=0, last_seen_ns=HOUR + SECOND, visits=visits)])
    found = Questions(store).seen_before()
    assert (found.visits, found.last_ns, found.hits) == (1, SECOND, ())
    assert str(found).endswith("by its own observations.")


def test_a_vector_has_no_visit_of_its_own(store: MemoryStore) -> None:
    store.add([seen(0, axis(0)), seen(SECOND, axis(0))])
    found = Questions(store).seen_before(axis(0))
    assert (found.visits, found.since_ns, found.memory) == (1, None, None)
    assert str(found).startswith("Yes: what looks like this was seen on 1 earlier visit")
    with pytest.raises(DimensionError):
        Questions(store).seen_before(axis(0, 5))


def test_places_by_the_encoder_that_they_have(store: MemoryStore) -> None:
    def place(time_ns: int, vector: np.ndarray, x: float) -> Memory:
        embeddings = {"scene-encoder": vector}
        return Memory(time_ns=time_ns, kind="place", embeddings=embeddings, position=(x, 0, 0))

    near = axis(0, 4) + 0.15 * axis(1, 4)
    store.add(
        [place(0, near, 3), place(SECOND, axis(0, 4), 40), seen(2, axis(0)), place(HOUR, axis(0, 4), 0)]
    )
    ask = Questions(store)
    found = ask.seen_before(kind="place")
    # The one that looks just like it is elsewhere in this map.
    assert [hit.memory.id for hit in found.hits] == [1]
    assert (found.visits, found.least_similarity) == (1, 0.975)
    assert "3.0 m from here" in str(found)
    assert [hit.memory.id for hit in store.query(Query(like=4, k=9))] == [2, 1]
    said = reply(ask, ParsedQuestion("been_here"))
    assert said.sentence.startswith("Yes: place (memory 4) was visited on 1 earlier visit")
    assert str(ask.similar_situations(kinds=["place"])).startswith(
        "2 memories similar to place (memory 4): place"
    )


def test_without_vectors_it_says_so(store: MemoryStore) -> None:
    store.add([Memory(time_ns=1, label="Car")])
    ask = Questions(store)
    for what in (ask.seen_before, ask.similar_situations):
        with pytest.raises(UnknownMemoryError, match="none of the newest"):
            what()
    with pytest.raises(UnknownMemoryError, match="memory 1 has no embedding"):
        ask.seen_before(1)
    store.add([Memory(time_ns=1, embeddings={"a": axis(0), "b": axis(1)})])
    with pytest.raises(UnknownMemoryError, match="no default vector, but of a, b: name the encoder"):
        store.query(Query(like=2))
    assert store.query(Query(like=2, encoder="a")) == []
