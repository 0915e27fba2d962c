"""Events of one movement, seen by two observers, become one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory import Memory, MemoryStore
from memory.merging import propose_merges
from memory.merging.motion import Motion
from memory.merging.robots import seen_by
from memory.merging.trajectories import distance_between, trajectory_of
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.sync import Inbox, Outbox, sync
from memory.tracks import Sights, TrackMemories

TENTH, START = 10**8, 10**18


def moved(
    first: int, last: int, *, y: float = 0.0, shift: float = 0.0, robot: str = "a", track: int = 1, **how: Any
) -> Memory:
    """A car that drives 1 m a frame along x, seen from one frame to another."""
    tracks = TrackMemories(robot)
    label, size = how.get("label", "Car"), how.get("size", (4.2, 1.8, 1.5))
    for at in range(first, last + 1):
        tracks.see(
            Sights(
                time_ns=START + at * TENTH + how.get("late_ns", 0),
                track_id=[track],
                boxes=np.array([[at + shift, y, 0.5, *size, 0.0]]),
                labels=[label],
                scores=[0.9],
            )
        )
    (memory,) = tracks.end()
    assert memory.kind == "event"
    return memory


def proposed(*memories: Memory) -> list[tuple[int, ...]]:
    numbered = [with_id(memory, at) for at, memory in enumerate(memories, 1)]
    return [proposal.ids for proposal in propose_merges(numbered)]


def with_id(memory: Memory, id: int) -> Memory:
    return Memory(**{**{name: getattr(memory, name) for name in memory.__dataclass_fields__}, "id": id})


def test_one_movement_of_two_observers() -> None:
    one, other = moved(0, 20), moved(10, 40, robot="b", shift=0.3, y=0.2)
    (proposal,) = propose_merges([with_id(one, 1), with_id(other, 2)])
    assert proposal.ids == (1, 2)
    fused = proposal.result
    trajectory = trajectory_of(fused)
    assert trajectory is not None
    assert (trajectory.time_ns[-1] - trajectory.time_ns[0]) / 1e9 == pytest.approx(4.0)
    np.testing.assert_allclose(trajectory.places[-1], (40.3, 0.2), atol=0.01)
    assert fused.position is not None
    assert fused.position[:2] == pytest.approx((40.3, 0.2))
    assert fused.caption == "car moved 40 m in 4 s, from (0, 0) to (40, 0)"
    assert fused.count == one.count + other.count
    assert "whose trajectories lie within 0.36 m of each other" in str(proposal.why)


@pytest.mark.parametrize(
    "other",
    [
        moved(10, 40, robot="b", y=2.5),  # The next lane.
        moved(10, 40, robot="b", shift=6.0),  # The car in front.
        moved(22, 40, robot="b"),  # Not at the same time.
        moved(0, 20, robot="b", label="Van"),
        moved(0, 20, track=2, y=1.0),  # Another track of the same recording.
    ],
)
def test_other_movements_stay_apart(other: Memory) -> None:
    assert proposed(moved(0, 20), other) == []


def test_small_objects_must_be_closer() -> None:
    walker: dict[str, Any] = {"label": "Pedestrian", "size": (0.6, 0.6, 1.7)}
    assert proposed(moved(0, 20, **walker), moved(0, 20, robot="b", y=0.4, **walker)) == [(1, 2)]
    assert proposed(moved(0, 20, **walker), moved(0, 20, robot="b", y=0.7, **walker)) == []


def test_the_closest_of_two_is_chosen() -> None:
    first, second = moved(0, 20), moved(0, 20, track=2, y=1.4)
    assert proposed(first, second, moved(0, 20, robot="b", y=1.0)) == [(2, 3)]


def test_the_trajectory_follows_the_pose_of_its_memory() -> None:
    memory = moved(0, 20)
    motion = Motion(0.5, 3.0, -2.0)
    before, after = trajectory_of(memory), trajectory_of(motion.memory(memory))
    assert before is not None
    assert after is not None
    np.testing.assert_allclose(after.places, motion.points(before.places), atol=0.02)


@pytest.mark.parametrize("way", [None, [], [[0, 0, 0]], [[0, 0, 0], [0, 1, 1]], [[0, "x", 0], [1, 1, 1]], 7])
def test_invalid_trajectories_are_none(way: Any) -> None:
    memory = Memory(time_ns=START, kind="event", position=(0, 0, 0), payload={"way": way})
    assert trajectory_of(memory) is None


def test_too_short_a_time_in_common() -> None:
    one, other = trajectory_of(moved(0, 20)), trajectory_of(moved(18, 40, robot="b"))
    assert one is not None
    assert other is not None
    assert math.isinf(distance_between(one, other))


def test_through_sync_and_consolidate(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    SqliteDatabase.open(shared, create=True, dim=2).close()
    for robot, memory in (("a", moved(0, 20)), ("b", moved(10, 40, robot="b"))):
        with MemoryStore.open(tmp_path / robot, dim=2) as store:
            store.add([memory])
            with MemoryStore.open(shared) as together:
                sync(Outbox(store.database, robot), Inbox(together.database))
    with MemoryStore.open(shared) as store:
        assert len(store) == 2
        store.consolidate()
        (memory,) = store.find(Filter())
        assert sorted(seen_by(memory)) == ["a", "b"]
        assert "trajectories" in str(store.explain(memory.id or 0))
        assert store.consolidate().merged == []


def test_two_tracks_in_one_place_are_a_double() -> None:
    """A detector that reports one car twice, 15 cm apart, in every frame."""
    assert proposed(moved(0, 20), moved(0, 20, track=2, y=0.15)) == [(1, 2)]
    assert proposed(moved(0, 20), moved(0, 20, track=2, y=1.0)) == []


def parked(y: float, track: int, **how: Any) -> Memory:
    tracks = TrackMemories("a")
    for at in range(20):
        box = np.array([[0.0, y, 0.5, *how.get("size", (4.2, 1.8, 1.5)), 0.0]])
        tracks.see(
            Sights(time_ns=START + at * TENTH, track_id=[track], boxes=box, labels=["Car"], scores=[0.9])
        )
    (memory,) = tracks.end()
    return memory


def test_parked_doubles_are_merged_and_neighbours_are_not() -> None:
    assert proposed(parked(0.0, 1), parked(0.15, 2)) == [(1, 2)]
    assert proposed(parked(0.0, 1), parked(0.15, 2), parked(0.1, 3)) == [(1, 2, 3)]
    assert proposed(parked(0.0, 1), parked(0.65, 2)) == []
    narrow = {"size": (1.8, 0.4, 1.2)}
    assert proposed(parked(0.0, 1, **narrow), parked(0.15, 2, **narrow)) == []


def test_boxes_of_one_frame_in_one_place_are_merged() -> None:
    boxes = [
        Memory(
            id=at, time_ns=START, position=(0.15 * at, 0.0, 0.0), label="Car", provenance="detector",
            payload={"size_m": [4.2, 1.8, 1.5]},
        )
        for at in (1, 2)
    ]  # fmt: skip
    assert [proposal.ids for proposal in propose_merges(boxes)] == [(1, 2)]


def test_observations_at_almost_one_time_leave_the_trajectory_whole() -> None:
    """Two observers whose times differ by a tenth of a millisecond: both round to one millisecond."""
    one, other = moved(0, 20), moved(0, 20, robot="b", late_ns=100_000)
    (proposal,) = propose_merges([with_id(one, 1), with_id(other, 2)])
    trajectory = trajectory_of(proposal.result)
    assert trajectory is not None
    np.testing.assert_allclose(trajectory.at(np.array([START + 10 * TENTH])), [[10.0, 0.0]], atol=0.01)
