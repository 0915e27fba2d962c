"""Memories and queries say what is wrong with them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from memory.query import Filter, Query
from memory.types import Hit, Memory, Visit

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({"time_ns": 1.5}, TypeError, "time_ns must be an integer, got float"),
        ({"time_ns": True}, TypeError, "time_ns"),
        ({"time_ns": 2**63}, ValueError, "time_ns must fit into 64 bits"),
        ({"first_seen_ns": "x"}, TypeError, "first_seen_ns"),
        ({"position": (1.0, 2.0)}, ValueError, "position must have 3 numbers, got 2"),
        ({"position": (1.0, NAN, 2.0)}, ValueError, "position must be finite"),
        ({"position": "abc"}, TypeError, "position must be 3 numbers"),
        ({"yaw": NAN}, ValueError, "yaw must be finite"),
        ({"confidence": 1.5}, ValueError, "confidence must be from 0 to 1"),
        ({"reward": float("inf")}, ValueError, "reward must be finite"),
        ({"kind": "thing"}, ValueError, "kind must be one of object, place, event, note; got 'thing'"),
        ({"state": "lost"}, ValueError, "state must be one of"),
        ({"label": 5}, TypeError, "label must be text"),
        ({"caption": "a\0b"}, ValueError, "caption must not contain a zero character"),
        ({"map_id": "\ud800"}, ValueError, "map_id is not valid Unicode"),
        ({"count": 0}, ValueError, "count must be at least 1"),
        ({"visits": 5}, TypeError, "visits must be rows of first_ns, last_ns and sights, got 5"),
        ({"visits": [5]}, TypeError, "visits must be rows"),
        (
            {"visits": [(1, 2)]},
            ValueError,
            r"visits\[0\] must be first_ns, last_ns and sights, got 2 numbers",
        ),
        ({"visits": [(1, 2.5, 1)]}, TypeError, r"visits\[0\] must be an integer"),
        ({"visits": [(1, 2**63, 1)]}, ValueError, r"visits\[0\] must fit into 64 bits"),
        ({"visits": [(3, 2, 1)]}, ValueError, r"visits\[0\] must not end before it begins, got \(3, 2\)"),
        ({"visits": [(1, 2, 0)]}, ValueError, r"visits\[0\] must have at least 1 sight, got 0"),
        ({"visits": [(1, 2, 1), (2, 3, 1)]}, ValueError, r"disjoint, but visits\[1\]"),
        ({"visits": [(4 * i, 4 * i, 1) for i in range(513)]}, ValueError, "got 513"),
        ({"covariance": np.eye(2)}, ValueError, r"covariance must have shape \(3, 3\)"),
        ({"covariance": -np.eye(3)}, ValueError, "positive semidefinite"),
        ({"covariance": np.eye(3) * NAN}, ValueError, "covariance must be finite"),
        ({"covariance": np.triu(np.ones((3, 3)))}, ValueError, "symmetric"),
        ({"embedding": np.zeros(4)}, ValueError, "embedding must not be zero"),
        ({"embedding": [1.0, NAN]}, ValueError, "embedding must be finite as float32, but 1 of 2"),
        ({"embedding": np.ones((2, 2))}, ValueError, "one-dimensional"),
        ({"embeddings": {"clip": []}}, ValueError, r"embeddings\['clip'\]"),
    ],
)
def test_a_wrong_memory_is_refused(values: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Memory(**({"time_ns": 0} | values))


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({"k": 0}, ValueError, "k must be at least 1"),
        ({"k": 2.0}, TypeError, "k must be an integer"),
        ({"embedding": [1.0], "like": 3}, ValueError, "exclude each other"),
        ({"embedding": [NAN]}, ValueError, "finite"),
        ({"near": (1.0,)}, ValueError, "near must have two or three numbers"),
        ({"near": (1.0, NAN)}, ValueError, "near must be finite"),
        ({"radius_m": 1.0}, ValueError, "radius_m needs near"),
        ({"near": (0.0, 0.0), "radius_m": -1.0}, ValueError, "radius_m must be finite and not negative"),
        ({"polygon": [(0, 0), (1, 1)]}, ValueError, "at least three corners"),
        ({"polygon": [(0, 0), (1, 1), (2,)]}, ValueError, "polygon must have 2 numbers"),
        ({"between_ns": (5, 4)}, ValueError, "between_ns must be"),
        ({"between_ns": (5.0, 6)}, TypeError, "between_ns"),
        ({"labels": "cup"}, TypeError, "labels must be a list of strings"),
        ({"labels": ["a\0"]}, ValueError, "zero character"),
        ({"kinds": ["thing"]}, ValueError, "kinds must be one of"),
        ({"order": "best"}, ValueError, "order must be one of"),
        ({"order": "distance"}, ValueError, "order='distance' needs near"),
    ],
)
def test_a_wrong_query_is_refused(values: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Query(**values)


def test_parts_of_a_query_are_those_of_its_filter() -> None:
    query = Query(text="red", near=(1, 2, 3), radius_m=4, labels=["cup"], states=["gone"], between_ns=(1, 2))
    where = Filter(circle=(1.0, 2.0, 4.0), labels=["cup"], states=["gone"], between_ns=(1, 2))
    assert query.where == where
    assert query == Query(text="red", near=(1, 2, 3), where=where)
    assert query.filter == dataclasses.replace(where, text="red")
    assert Query(labels=["car"], where=where).where == dataclasses.replace(where, labels=["car"])
    assert dataclasses.replace(query, k=3).where is query.where
    assert Query(text="red", where=Filter(text="cup")).filter.text == "red cup"
    assert Query(where=where).filter is where
    assert repr(Query(marked=True)) == "Query(where=Filter(marked=True))"
    with pytest.raises(AttributeError):
        query.labels  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ValueError, match="exclude each other"):
        Query(near=(0, 0), radius_m=1.0, circle=(0, 0, 2))
    with pytest.raises(ValueError, match="states must be one of"):
        Query(states=["lost"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="labels may have at most 1000"):
        Query(where=Filter(labels=["cup"] * 1001))
    with pytest.raises(TypeError, match="colour"):
        Query(colour="red")  # type: ignore[call-arg]


def test_numbers_become_plain_ones() -> None:
    memory = Memory(
        time_ns=np.int64(5),
        position=np.array([1, 2, 3], np.float32),  # type: ignore[arg-type]
        yaw=np.float32(0.5),  # type: ignore[arg-type]
        embedding=[1, 2],  # type: ignore[arg-type]
    )
    assert memory.position == (1.0, 2.0, 3.0)
    assert type(memory.yaw) is type(memory.position[0]) is float
    assert memory.embedding is not None
    assert memory.embedding.dtype == np.float32
    query = Query(near=[1, 2], polygon=np.eye(3)[:, :2].tolist())  # type: ignore[arg-type]
    assert query.near == (1.0, 2.0)
    assert query.where.polygon == ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0))


def test_visits_become_plain_tuples_and_are_copied_and_compared() -> None:
    rows = np.array([[1, 2, 3], [5, 5, 1]])
    memory = Memory(time_ns=5, count=4, visits=rows)  # type: ignore[arg-type]
    assert memory.visits == (Visit(1, 2, 3), Visit(5, 5, 1)) == ((1, 2, 3), (5, 5, 1))
    assert {type(number) for visit in memory.visits for number in visit} == {int}
    assert dataclasses.replace(memory, label="cup").visits == memory.visits
    assert memory != dataclasses.replace(memory, visits=())
    assert Memory(time_ns=5, visits=[]).visits == ()  # type: ignore[arg-type]


def test_a_covariance_is_made_symmetric_to_the_last_bit() -> None:
    matrix = np.eye(3)
    matrix[0, 1], matrix[1, 0] = 0.1, 0.1 + 1e-9
    memory = Memory(time_ns=0, position=(0, 0, 0), covariance=matrix)
    assert memory.covariance is not None
    np.testing.assert_array_equal(memory.covariance, memory.covariance.T)


def test_memories_are_equal_by_their_fields_without_the_arrays() -> None:
    one = Memory(time_ns=0, embedding=np.ones(3), label="cup")
    assert one == Memory(time_ns=0, embedding=np.ones(4), label="cup")
    assert one != dataclasses.replace(one, label="car")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.label = "car"  # type: ignore[misc]


def test_vectors_are_not_printed() -> None:
    memory = Memory(
        time_ns=5, label="mug", embedding=np.full(256, 0.123), embeddings={"shape": np.full(4, 0.123)}
    )
    told = "Memory(time_ns=5, label='mug', embedding=<256 numbers>, embeddings={'shape': <4 numbers>})"
    assert repr(memory) == told
    assert told in repr(Hit(memory, 0.5))
    assert "0.123" not in repr(Hit(memory, 0.5))
    assert repr(Memory(time_ns=1)) == "Memory(time_ns=1)"
    assert repr(Query(embedding=np.full(8, 0.123), k=3)) == "Query(embedding=<8 numbers>, k=3)"
