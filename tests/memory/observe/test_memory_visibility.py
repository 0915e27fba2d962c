"""Who could have seen what another observer saw."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memory import Memory
from memory.observe.views import Views
from memory.observe.visibility import visibility_of

SECOND = 10**9


def views(free_m: float = 40.0, *, last_s: int = 4, field_rad: float = math.pi / 2) -> Views:
    """Looks along +x from the origin, one a second."""
    times = np.arange(last_s + 1) * SECOND
    count = len(times)
    return Views(
        np.zeros((count, 3)), np.zeros(count), times, range_m=50.0, field_of_view_rad=field_rad,
        free_m=np.full((count, 90), free_m),
    )  # fmt: skip


def car(x: float, y: float, first_s: int = 0, last_s: int = 4) -> Memory:
    return Memory(
        time_ns=last_s * SECOND, first_seen_ns=first_s * SECOND, last_seen_ns=last_s * SECOND, label="Car",
        position=(x, y, 0.0), payload={"size_m": [4.2, 1.8, 1.5]}, count=5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "free_m", "expected"),
    [
        (car(20, 0), 40.0, "in view"),
        (car(20, 0), 19.0, "in view"),  # Its own surface ends the view.
        (car(20, 0), 10.0, "hidden"),
        (car(0, 20), 40.0, "out of view"),
        (car(60, 0), 100.0, "out of view"),
        (car(20, 0, 8, 9), 40.0, "not looking"),
        (Memory(time_ns=0, label="Car"), 40.0, "not looking"),
    ],
)
def test_why_it_was_not_seen(memory: Memory, free_m: float, expected: str) -> None:
    assert visibility_of(memory, views(free_m)) == expected


def test_a_moving_object_is_looked_for_where_it_was() -> None:
    """It ends out of view; while it moved, it was in view most of the time."""
    way = [[0.0, 10.0, 0.0], [3.0, 12.0, 0.0], [4.0, 0.0, 30.0]]
    passing = Memory(
        time_ns=4 * SECOND, first_seen_ns=0, last_seen_ns=4 * SECOND, label="Car", kind="event",
        position=(0.0, 30.0, 0.0), payload={"way": way, "size_m": [4.2, 1.8, 1.5]}, count=5,
    )  # fmt: skip
    assert visibility_of(passing, views()) == "in view"
    assert visibility_of(car(0, 30), views()) == "out of view"
