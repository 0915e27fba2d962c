"""Frames of a run that goes on become memories, as if they were imported when it is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import MemoryStore
from memory.errors import StoreLockedError
from memory.exchange import live
from memory.exchange.live import open_live
from memory.query import Filter

START_NS = 1_700_000_000 * 10**9


def record(number: int, *, track: int = 1, x: float = 10.0) -> dict[str, Any]:
    """A frame: a car that stands and, from the fifth on, one that drives; the sensor stands at (1, 2)."""
    moving = [20.0 + number, 5.0, 0.0, 4.0, 1.8, 1.5, 0.0]
    return {
        "frame": f"{number:06d}",
        "timestamp_ns": START_NS + number * 10**8,
        "boxes": [[x, 0.0, 0.0, 4.0, 1.8, 1.5, 0.0], moving][: 1 + (number >= 5)],
        "scores": [0.9, 0.8][: 1 + (number >= 5)],
        "labels": ["Car", "Car"][: 1 + (number >= 5)],
        "track_id": [track, track + 1][: 1 + (number >= 5)],
        "missed_s": [0.0, 0.0][: 1 + (number >= 5)],
        "pose": {"map_from_lidar": [[1, 0, 0, 1.0], [0, 1, 0, 2.0], [0, 0, 1, 0]]},
        "source": "udp://:2368",
        "free": {"dim": 4, "data": "", "count": 0},
    }


def test_tracks_become_memories_at_the_end(tmp_path: Path) -> None:
    memory = open_live(str(tmp_path / "store"), "a run", "yard")
    for number in range(40):
        memory.see(record(number), 0)
    assert memory.close() == 2
    with MemoryStore.open(tmp_path / "store") as store:
        assert sorted(one.kind for one in store.find(Filter())) == ["event", "object"]
        (stood,) = (one for one in store.find(Filter()) if one.kind == "object")
        assert stood.position == pytest.approx((11.0, 2.0, 0.0), abs=0.01)
        assert stood.map_id == "yard"
        assert list(stood.payload["tracks"]) == ["a run/1"]
        reasons = [entry.detail.get("reason", "") for entry in store.log(0, limit=10)]
        assert any("seen live, frames 1 to 40" in reason for reason in reasons)


def test_what_ended_is_stored_while_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "WAIT_S", 0.0)
    memory = open_live(str(tmp_path / "store"), "a run", "default")
    counts = [memory.see(record(number), 0) for number in range(5)]
    later = record(900, track=7, x=30.0)
    counts += [memory.see(later, 0)]
    assert counts[:5] == [0] * 5
    assert counts[5] >= 1
    with pytest.raises(StoreLockedError):
        open_live(str(tmp_path / "store"), "another run", "default")
    memory.close()


def test_tracks_that_begin_anew_are_not_those_before(tmp_path: Path) -> None:
    memory = open_live(str(tmp_path / "store"), "a run", "default")
    for number in range(4):
        memory.see(record(number), 0)
    # The clock was put back, and numbers begin anew.
    for number in range(4):
        memory.see(record(number, x=40.0) | {"timestamp_ns": number * 10**8}, 1)
    memory.close()
    with MemoryStore.open(tmp_path / "store") as store:
        names = sorted(name for one in store.find(Filter()) for name in one.payload["tracks"])
        assert names == ["a run, part 2/1", "a run/1"]


def test_nothing_is_held_of_frames_that_are_over(tmp_path: Path) -> None:
    memory = open_live(str(tmp_path / "store"), "a run", "default")
    for number in range(200):
        empty = record(number) | {"boxes": [], "scores": [], "labels": [], "track_id": [], "missed_s": []}
        memory.see(empty, 0)
    assert len(memory._lines.looks) == len(memory._tracks) == len(memory._pending) == 0
    memory.close()
