"""Where the robot was."""

from __future__ import annotations

from typing import Any

import pytest

from memory.serve.routes.path import APART_M, PAUSE_NS, parts_of, place_of
from memory.types import Memory


@pytest.mark.parametrize(
    ("kind", "payload", "place"),
    [
        ("place", {}, (7, 1.0, 2.0)),
        ("object", {"seen_from": [3, 4.5, 0.1]}, (7, 3.0, 4.5)),
        ("object", {}, None),
        ("object", {"seen_from": [3]}, None),
        ("object", {"seen_from": "3, 4"}, None),
        ("object", {"seen_from": [True, 4]}, None),
        ("object", {"seen_from": {"x": 3}}, None),
    ],
)
def test_places_that_memories_tell(kind: Any, payload: Any, place: Any) -> None:
    assert place_of(Memory(time_ns=7, position=(1.0, 2.0, 3.0), kind=kind, payload=payload)) == place


def test_the_way_is_not_made_up_across_pauses_and_jumps() -> None:
    first = [(0, 0.0, 0.0), (1, 0.0, 0.0), (2, 1.0, 0.0)]
    later = [(3 + PAUSE_NS, 1.0, 0.0), (4 + PAUSE_NS, 2.0, 0.0)]
    away = [(5 + PAUSE_NS, 3.0 + APART_M, 0.0)]
    assert parts_of([*first, *later, *away]) == [[first[0], first[2]], later, away]
    assert parts_of([]) == []
