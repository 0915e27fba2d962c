"""Things are gone where the view went through their place, and only there."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory import Filter, MemoryStore
from memory.cli import main
from memory.observe.free_space import FreeOptions, Looks, free_since, mark_free
from memory.observe.views import Views, seen_through
from memory.types import Memory
from perception.vectors import packed

SECOND = 10**9


def thing(x: float, y: float, *, height: float = 1.5, last_s: float = 0.0, **fields: Any) -> Memory:
    return Memory(
        time_ns=round(last_s * SECOND), position=(x, y, 0.0), label="Car",
        payload={"size_m": [4.2, 1.8, height]}, **fields,
    )  # fmt: skip


def free(**by_degree: float) -> np.ndarray:
    """Everything is free to 40 m, but from ``dA`` degrees on, for 10, to so many metres."""
    found = np.full(360, 40.0)
    for name, distance in by_degree.items():
        start = int(name[1:]) + 180
        found[start : start + 10] = distance
    return found


def looks(profile: np.ndarray, *times_s: float) -> Looks:
    found = Looks()
    for at in times_s:
        found.add("default", round(at * SECOND), (0.0, 0.0, 1.7), 0.0, profile)
    return found


def views(profile: np.ndarray, yaw: float = 0.0) -> Views:
    return Views(
        np.zeros((1, 3)), np.array([yaw]), np.array([0]), range_m=25.0, near_m=3.0, free_m=profile[None]
    )


@pytest.mark.parametrize(
    ("profile", "through"),
    [
        (free(), True),
        (free(d0=9.0), False),  # It stands there.
        (free(d0=11.9), False),  # The view ends behind its middle, in it.
        (free(d0=13.0), True),
        (free(d3=5.0), False),  # A part of it is hidden.
        (free(d8=5.0), True),
        (np.zeros(360), False),  # Nothing came back.
    ],
)
def test_a_view_goes_through_a_place(profile: np.ndarray, through: bool) -> None:
    found = seen_through(views(profile), [[10.0, 0.0, 0.0]], np.array([1.8]), np.array([4.2]))
    assert found.tolist() == [[through]]


def test_bearings_turn_with_the_sensor() -> None:
    profile = free(d85=5.0)
    place = [[10.0, 0.0, 0.0]]
    sizes = (np.array([1.8]), np.array([4.2]))
    assert seen_through(views(profile), place, *sizes).all()
    assert not seen_through(views(profile, yaw=-math.pi / 2), place, *sizes).any()


def test_near_and_far_nothing_is_said() -> None:
    places = [[2.0, 0, 0], [10.0, 0, 0], [26.0, 0, 0]]
    assert seen_through(views(free()), places, np.full(3, 1.8), np.full(3, 4.2)).tolist() == [
        [False, True, False]
    ]
    blind = Views(np.zeros((1, 3)), np.zeros(1), np.array([0]))
    assert not seen_through(blind, places, np.full(3, 1.8), np.full(3, 4.2)).any()
    with pytest.raises(ValueError, match=r"widths_m and lengths_m \(N,\)"):
        seen_through(blind, places, np.ones(2), np.ones(3))


def test_it_takes_several_looks_apart_and_after_the_last_sight() -> None:
    some = looks(free(), 1, 1.6, 2.2, 3.3, 10).views("default", FreeOptions())
    assert free_since([thing(10, 0), thing(10, 0, last_s=2.0), thing(10, 0, last_s=20.0)], some) == [
        (4, 10 * SECOND),
        (2, 10 * SECOND),
        (0, 0),
    ]
    assert free_since([], some) == []
    assert (
        free_since([thing(10, 0, height=0.5), Memory(time_ns=0, position=(10, 0, 0))], some) == [(0, 0)] * 2
    )


def test_far_parts_of_a_map_are_not_looked_at() -> None:
    some = looks(free(), 1, 3, 5).views("default", FreeOptions())
    assert free_since([thing(500, 0), thing(10, 0), thing(-10, 3)], some) == [
        (0, 0), (3, 5 * SECOND), (3, 5 * SECOND),
    ]  # fmt: skip


def test_a_store_learns_what_is_gone(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        ids = store.add([thing(10, 0), thing(0, 10), thing(10, 5, map_id="cellar"), thing(-10, 0)])
        gone = mark_free(store, looks(free(d85=6.0), 1, 3, 5))
        assert list(gone) == [ids[0], ids[3]]
        assert [one.state for one in store.get(ids)] == ["gone", "present", "present", "gone"]
        assert "its place was seen free: 3 looks went through it" in " ".join(store.explain(ids[0]).reasons)
        # What is gone is not looked for again.
        assert mark_free(store, looks(free(), 7, 9)) == {}
        assert mark_free(store, looks(free(), 11, 13, 15)) == {ids[1]: gone[ids[0]]}


def test_import_marks_what_the_frames_looked_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A car parks ahead and one on the left; the day after only that on the left is there."""

    def frame(at_s: float, boxes: list[list[float]], profile: np.ndarray) -> str:
        pose = np.eye(4)[:3].tolist()
        return json.dumps(
            {
                "frame": f"{at_s}", "timestamp_ns": round(at_s * SECOND), "boxes": boxes,
                "scores": [0.9] * len(boxes), "labels": ["Car"] * len(boxes),
                "track_id": list(range(len(boxes))), "pose": {"map_from_lidar": pose},
                "free": packed(profile[None].astype(np.float32)),
            }
        )  # fmt: skip

    ahead, left = [12.0, 0, 0, 4.2, 1.8, 1.5, 0], [0, 12.0, 0, 4.2, 1.8, 1.5, 0]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    seen = free(d0=10.0, d355=10.0, d85=10.0, d90=10.0)
    seen[175:190] = 10.0
    first.write_text("\n".join(frame(at, [left, ahead], seen) for at in range(5)))
    seen[175:190] = 40.0
    second.write_text("\n".join(frame(86400 + at, [left], seen) for at in range(5)))
    store = str(tmp_path / "store")
    assert main(["import", store, str(first), "--json"]) == 0
    assert "gone" not in json.loads(capsys.readouterr().out)
    assert main(["import", store, str(second), "--no-free", "--json"]) == 0
    assert "gone" not in json.loads(capsys.readouterr().out)
    assert main(["import", store, str(second)]) == 0
    assert "1 object is gone, because its place was seen free: " in capsys.readouterr().out
    with MemoryStore.open(store) as opened:
        states = {(one.position[0], one.state) for one in opened.find(Filter())}
    assert states == {(12.0, "gone"), (0.0, "present")}


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="range_m must be finite and not negative, got -1"):
        FreeOptions(range_m=-1)
    with pytest.raises(ValueError, match="looks must be at least 1, got 0"):
        FreeOptions(looks=0)
