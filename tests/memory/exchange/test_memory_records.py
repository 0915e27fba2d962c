"""Records: what is taken, what is refused and how it is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memory.exchange.records import memory_from_record, record_of
from memory.types import Memory


def test_the_least() -> None:
    assert memory_from_record({"time_ns": 5}) == Memory(time_ns=5)
    assert record_of(Memory(time_ns=0)).keys() == {
        "time",
        "map_id",
        "kind",
        "label",
        "yaw",
        "confidence",
    }


def test_none_is_not_given_and_the_id_is_read_over() -> None:
    assert memory_from_record({"id": 7, "time_ns": 5, "label": None, "covariance": None}) == Memory(time_ns=5)
    assert record_of(Memory(time_ns=5, id=7))["id"] == 7


def test_places() -> None:
    for place in ({"position": [1, 2]}, {"x": 1, "y": 2}, {"position": (1.0, 2.0, 0.0)}):
        assert memory_from_record({"time_ns": 5, **place}).position == (1.0, 2.0, 0.0)
    assert memory_from_record({"time_ns": 5, "x": 1, "y": 2, "z": 3}).position == (1.0, 2.0, 3.0)


def test_times() -> None:
    times = {"time": "1970-01-01T00:00:02Z", "first_seen": "1970-01-01T00:00:01Z", "last_seen_ns": 9}
    found = memory_from_record(times)
    assert (found.time_ns, found.first_seen_ns, found.last_seen_ns) == (2 * 10**9, 10**9, 9)


def test_visits() -> None:
    found = memory_from_record({"time_ns": 9, "visits": [["1970-01-01T00:00:01Z", 2 * 10**9, 3]]})
    assert found.visits == ((10**9, 2 * 10**9, 3),)
    written = record_of(found)["visits"]
    assert written == [["1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z", 3]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"time_ns": None}, "the time is missing: give time_ns"),
        ({"time": "noon", "time_ns": None}, "'noon'"),
        ({"time": "1970-01-01"}, "give time or time_ns, not both"),
        ({"time_ns": "5"}, "time_ns must be an integer, got str"),
        ({"time_ns": 2.5}, "time_ns must be an integer"),
        ({"time_ns": None, "time": 5}, "time must be text in ISO 8601, got 5. Give nanoseconds as time_ns"),
        ({"visits": "monday"}, "visits must be rows of first, last and sights, got 'monday'"),
        ({"visits": [5]}, "visits must be rows of first, last and sights"),
        ({"visits": [["noon", 5, 1]]}, "'noon'"),
        ({"visits": [[5, 4, 1]]}, r"visits\[0\] must not end before it begins"),
        ({"visits": [{"first_ns": 1}]}, "visits must be rows"),
        ({"colour": "red"}, "unknown field 'colour'.*payload"),
        ({"position": [1]}, r"position must be \[x, y, z\] or \[x, y\], got \[1\]"),
        ({"position": ["1", 2]}, "position must be numbers"),
        ({"position": [float("inf"), 2]}, "position must be finite"),
        ({"position": [1, 2], "x": 1, "y": 2}, "give position or x, y, z"),
        ({"x": 1}, "both x and y"),
        ({"marked": 1}, "marked must be true or false, got 1"),
        ({"payload": [1]}, "payload must be an object, got list"),
        ({"embeddings": [1]}, "embeddings must be an object"),
        ({"embedding": [1.0]}, "embedding has 1 numbers"),
        ({"embeddings": {"image": [1.0]}}, r"embeddings\['image'\] has 1 numbers"),
        ({"embedding": [float("nan"), 1.0]}, "embedding must be finite"),
        ({"confidence": 2}, "confidence must be from 0 to 1"),
        ({"kind": "thing"}, "kind must be one of object"),
        ({"label": "a\0b"}, "label must not contain a zero character"),
    ],
)
def test_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        memory_from_record({"time_ns": 1} | fields, {"default": 2, "image": 3})


def test_the_first_vector_of_an_encoder_sets_its_length() -> None:
    dims = {"default": 2}
    memory_from_record({"time_ns": 1, "embeddings": {"text": [1.0, 0.0]}}, dims)
    assert dims == {"default": 2, "text": 2}
    with pytest.raises(ValueError, match="has 3 numbers"):
        memory_from_record({"time_ns": 1, "embeddings": {"text": [1.0, 0.0, 0.0]}}, dims)


def test_without_vectors() -> None:
    memory = Memory(time_ns=1, embedding=np.ones(2), embeddings={"image": np.ones(3)})
    assert {"embedding", "embeddings"} <= record_of(memory).keys()
    assert not {"embedding", "embeddings"} & record_of(memory, vectors=False).keys()
