"""Maps of robots that differ are brought together by the things that both saw."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memory import Filter, Memory, MemoryStore, Query
from memory.cli import main
from memory.errors import AlignmentError, UndoError
from memory.merging.motion import Motion
from memory.merging.robots import only_robot, seen_by
from memory.sync import Inbox, Outbox, sync
from memory.upkeep.map_alignment import AlignmentResult

DIM = 8
LABELS = ("bench", "lamp", "hydrant", "sign", "door", "tree")
#: How the second robot's map lies: its origin is elsewhere, and it faces another way.
AWAY = Motion(2.1, 83.0, -41.0)

Open = Callable[[str], MemoryStore]


def town(things: int, seed: int = 0) -> list[Memory]:
    """Things that stand in a town of 100 m by 100 m, where they are."""
    random = np.random.default_rng(seed)
    return [
        Memory(
            time_ns=number,
            position=(*random.uniform(0.0, 100.0, 2), 0.5),
            yaw=float(random.uniform(-3.0, 3.0)),
            covariance=np.diag([0.04, 0.01, 0.01]),
            label=LABELS[number % len(LABELS)],
            embedding=random.standard_normal(DIM),
            payload={"number": number},
        )
        for number in range(things)
    ]


def observe(things: list[Memory], noise_m: float, seed: int, frame: Motion | None = None) -> list[Memory]:
    """As a robot sees them: not quite where they are, in a map of its own."""
    random = np.random.default_rng(seed)
    found = []
    for thing in things:
        (x, y, z), (east, north) = thing.position, random.normal(0.0, noise_m, 2)
        look = thing.embedding + random.normal(0.0, 0.2, DIM)
        sight = dataclasses.replace(thing, position=(x + east, y + north, z), embedding=look)
        found.append(sight if frame is None else frame.inverse().memory(sight))
    return found


def send(source: MemoryStore, target: MemoryStore, robot: str) -> None:
    sync(Outbox(source.database, robot), Inbox(target.database))


def away_m(store: MemoryStore, things: list[Memory], robot: str = "two") -> list[float]:
    """How far from where they are the things lie that one robot alone saw."""
    return [
        math.dist(memory.position, things[memory.payload["number"]].position)
        for memory in store.database.present(store.database.ids().tolist())
        if only_robot(memory) == robot
    ]


@pytest.fixture
def things() -> list[Memory]:
    return town(60)


@pytest.fixture
def two(stores: Open, shared: MemoryStore, things: list[Memory]) -> MemoryStore:
    """The second robot, whose map is its own; both saw 25 things, and each 15 that the other did not see."""
    one, two = stores("one"), stores("two")
    one.add(observe(things[:40], 0.1, 1))
    two.add(observe(things[15:55], 0.1, 2, AWAY))
    send(one, shared, "one")
    send(two, shared, "two")
    return two


def test_what_it_alone_saw_lies_where_it_is(
    two: MemoryStore, shared: MemoryStore, things: list[Memory]
) -> None:
    assert min(away_m(shared, things)) > 1.0
    before = away_m(shared, things, "one")
    done = shared.align("two")
    assert isinstance(done, AlignmentResult)
    assert done.map_id == "default"
    assert len(done.ids) == 40
    assert done.estimate is not None
    assert done.estimate.things >= 24
    assert done.estimate.of == (40, 40)
    assert np.allclose(done.frame, AWAY, atol=(0.01, 0.5, 0.5, 0.0))
    assert np.mean(away_m(shared, things)) < 0.2
    assert max(away_m(shared, things)) < 0.5
    assert away_m(shared, things, "one") == before
    (memory,) = shared.get([done.ids[0]])
    thing = things[memory.payload["number"]]
    assert abs(math.remainder(memory.yaw - thing.yaw, math.tau)) < 0.02
    assert memory.covariance is not None
    assert np.allclose(memory.covariance, thing.covariance, atol=0.002)
    assert "the map of two is turned by" in str(shared.explain(done.ids[0]).history)
    assert shared.check().ok


def test_then_the_same_things_become_one(two: MemoryStore, shared: MemoryStore) -> None:
    assert shared.consolidate(now_ns=100).merged == []
    shared.align("two")
    shared.consolidate(now_ns=100)
    both = [memory for memory in shared.database.present(shared.database.ids()) if len(seen_by(memory)) == 2]
    assert len(both) >= 23


def test_what_comes_later_is_moved_as_it_comes(
    two: MemoryStore, shared: MemoryStore, things: list[Memory]
) -> None:
    shared.align("two")
    later = two.add(observe(things[55:], 0.1, 3, AWAY))
    ids = two.database.ids().tolist()
    (moved,) = two.get(ids[:1])
    two.repose(ids[:1], [np.add(moved.position, (0.2, 0.0, 0.0))], [moved.yaw])
    send(two, shared, "two")
    assert len(away_m(shared, things)) == 45
    assert max(away_m(shared, things)) < 0.6
    two.mark(later[:1], "gone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memory.sync.outbox.PORTION", 1)
        send(two, shared, "two")
    assert max(away_m(shared, things)) < 0.6


def test_undone_it_is_as_it_was(two: MemoryStore, shared: MemoryStore, things: list[Memory]) -> None:
    before = away_m(shared, things)
    done = shared.align("two")
    after = away_m(shared, things)
    undone = shared.undo(done.operation)
    assert away_m(shared, things) == before
    assert shared.database.frames() == {}
    again = shared.undo(undone)
    assert away_m(shared, things) == after
    shared.undo(again)
    two.add(observe(things[55:], 0.1, 3, AWAY))
    send(two, shared, "two")
    assert min(away_m(shared, things)) > 1.0
    with pytest.raises(UndoError, match="memories of two that came after"):
        shared.undo(shared.generation - 1)


LATE = Motion(clock_ns=-400_000_000)


def test_a_clock_is_corrected_in_all_times_and_undone(
    stores: Open, shared: MemoryStore, things: list[Memory]
) -> None:
    one, two = stores("one"), stores("two")
    one.add(things[:5])
    visited = dataclasses.replace(
        things[5],
        count=3,
        time_ns=3 * 10**9,
        first_seen_ns=10**9,
        last_seen_ns=3 * 10**9,
        visits=((10**9, 2 * 10**9, 2), (3 * 10**9, 3 * 10**9, 1)),
        payload={"tracks": {"drive/4": [10**9, 3 * 10**9]}},
    )
    two.add([visited, things[6]])
    send(one, shared, "one")
    send(two, shared, "two")
    before = shared.get(shared.database.ids().tolist())
    done = shared.align("two", frame=LATE)
    moved, plain = shared.get(done.ids)
    assert (moved.time_ns, moved.first_seen_ns, moved.last_seen_ns) == (2600000000, 600000000, 2600000000)
    assert [tuple(visit) for visit in moved.visits] == [
        (600000000, 1600000000, 2),
        (2600000000, 2600000000, 1),
    ]
    assert moved.payload["tracks"] == {"two:drive/4": [600000000, 2600000000]}
    assert seen_by(moved)["two"] == (600000000, 2600000000, 3)
    assert (plain.time_ns, plain.first_seen_ns) == (6 - 400_000_000, None)
    assert (moved.position, moved.count) == (visited.position, 3)
    assert shared.get([before[0].id]) == [before[0]]
    assert shared.query(Query(between_ns=(2 * 10**9, 2_700_000_000), k=5))[0].memory.id == moved.id
    assert "its clock is 0.400 s ahead" in str(shared.explain(moved.id).history)
    # What comes later has the right time at once, and what is sent again stays.
    two.add([dataclasses.replace(things[7], time_ns=10**10)])
    send(two, shared, "two")
    send(two, shared, "two")
    assert max(memory.time_ns for memory in shared.find(Filter())) == 10**10 - 400_000_000
    with pytest.raises(UndoError, match="memories of two that came after"):
        shared.undo(done.operation)
    shared.align("two", frame=Motion())
    assert shared.get([memory.id for memory in before]) == before
    assert max(memory.time_ns for memory in shared.find(Filter())) == 10**10
    assert shared.check().ok


def test_an_undone_clock_is_as_it_was(two: MemoryStore, shared: MemoryStore) -> None:
    def everything() -> list[tuple[Memory, bytes, int]]:
        found = shared.database.present(shared.database.ids().tolist())
        return [(memory, memory.embedding.tobytes(), seen_by(memory)) for memory in found]

    before = everything()
    done = shared.align("two", frame=AWAY._replace(clock_ns=5))
    after = everything()
    assert after != before
    undone = shared.undo(done.operation)
    assert everything() == before
    assert shared.database.frames() == {}
    shared.undo(undone)
    assert everything() == after
    assert shared.database.frames()["two", "default"].clock_ns == 5


def test_with_more_since_it_goes_back_by_a_reset(
    two: MemoryStore, shared: MemoryStore, things: list[Memory]
) -> None:
    before = away_m(shared, things)
    done = shared.align("two")
    two.add(observe(things[55:], 0.1, 3, AWAY))
    send(two, shared, "two")
    with pytest.raises(UndoError, match="memories of two that came after"):
        shared.undo(done.operation)
    assert max(away_m(shared, things)) < 0.6
    back = shared.align("two", frame=Motion())
    assert len(back.ids) == 45
    assert back.estimate is None
    assert np.allclose(away_m(shared, things)[:40], before)
    assert min(away_m(shared, things)) > 1.0


def test_aligned_again_when_more_is_known(
    two: MemoryStore, shared: MemoryStore, things: list[Memory]
) -> None:
    shared.align("two", frame=Motion(AWAY.yaw_rad + 0.05, AWAY.x_m + 2.0, AWAY.y_m))
    rough = np.mean(away_m(shared, things))
    done = shared.align("two")
    assert np.allclose(done.frame, AWAY, atol=(0.01, 0.5, 0.5, 0.0))
    assert np.mean(away_m(shared, things)) < 0.2 < rough


def test_merges_from_before_come_apart_aligned(
    stores: Open, shared: MemoryStore, things: list[Memory]
) -> None:
    one, two = stores("one"), stores("two")
    one.add(observe(things[:30], 0.05, 1))
    two.add(observe(things[:30], 0.05, 2, AWAY))
    # By chance a thing of another map is where this one is, and alike.
    ids = two.add([dataclasses.replace(observe(things[:1], 0.0, 3)[0], label="bench")])
    send(one, shared, "one")
    send(two, shared, "two")
    merged = shared.consolidate(now_ns=100).merged
    assert len(merged) == 1
    shared.align("two")
    two.mark(ids, "unknown")  # Its merge is undone for that.
    send(two, shared, "two")
    (lone,) = [
        memory for memory in shared.database.present(shared.database.ids()) if memory.state == "unknown"
    ]
    expected = AWAY.memory(two.get(ids)[0]).position
    assert math.dist(lone.position, expected) < 0.5


def test_a_merge_of_one_robot_comes_apart_after_an_alignment(
    stores: Open, shared: MemoryStore, things: list[Memory]
) -> None:
    one, two = stores("one"), stores("two")
    one.add(observe(things[:30], 0.05, 1))
    again = [dataclasses.replace(thing, time_ns=thing.time_ns + 1000) for thing in things[:30]]
    ids = two.add([*observe(things[:30], 0.05, 2, AWAY), *observe(again, 0.05, 3, AWAY)])
    send(one, shared, "one")
    send(two, shared, "two")
    done = shared.consolidate(now_ns=2000)
    assert len(done.merged) >= 25
    operation = shared.align("two").operation
    two.forget(ids[:1])
    send(two, shared, "two")
    assert len(away_m(shared, things)) == 60 - len(done.merged)
    assert max(away_m(shared, things)) < 0.5
    with pytest.raises(UndoError, match=r"more of two came|changed memory"):
        shared.undo(operation)
    shared.align("two", frame=Motion())
    assert min(away_m(shared, things)) > 1.0
    for generation in done.generations[1:3]:
        shared.undo(generation)
    assert min(away_m(shared, things)) > 1.0


def test_towns_that_have_nothing_in_common_are_refused(stores: Open, shared: MemoryStore) -> None:
    one, two = stores("one"), stores("two")
    one.add(town(40, seed=1))
    two.add(town(40, seed=2))
    send(one, shared, "one")
    with pytest.raises(ValueError, match="two has no memories"):
        shared.align("two")
    send(two, shared, "two")
    before, generation = away_m(shared, town(40)), shared.generation
    with pytest.raises(AlignmentError, match="at least 5 are needed"):
        shared.align("two")
    assert (away_m(shared, town(40)), shared.generation) == (before, generation)


def test_what_looks_the_same_turned_is_refused(stores: Open, shared: MemoryStore) -> None:
    row = [Memory(time_ns=at, position=(4.0 * at, 0.0, 0.0), label="lamp") for at in range(12)]
    one, two = stores("one"), stores("two")
    one.add(row)
    two.add([AWAY.memory(lamp) for lamp in row])
    send(one, shared, "one")
    send(two, shared, "two")
    with pytest.raises(AlignmentError, match="ambiguous: one motion matches 12 objects and another 12"):
        shared.align("two")


def test_one_thing_seen_often_counts_once(stores: Open, shared: MemoryStore) -> None:
    random = np.random.default_rng(0)
    one, two = stores("one"), stores("two")
    for robot in (one, two):
        robot.add([
            Memory(time_ns=at, position=(*random.normal(0.0, 0.1, 2), 0.0), label="lamp") for at in range(20)
        ])  # fmt: skip
    send(one, shared, "one")
    with pytest.raises(AlignmentError, match="no other robot saw anything"):
        shared.align("one")
    send(two, shared, "two")
    with pytest.raises(AlignmentError, match="only 1 pairs"):
        shared.align("two")


def test_the_map_is_named_where_there_are_several(
    two: MemoryStore, shared: MemoryStore, things: list[Memory]
) -> None:
    two.add([dataclasses.replace(things[0], map_id="cellar")])
    send(two, shared, "two")
    with pytest.raises(ValueError, match=r"in 2 maps \(cellar, default\)"):
        shared.align("two")
    with pytest.raises(AlignmentError, match="no other robot saw anything in map 'cellar'"):
        shared.align("two", map_id="cellar")
    assert len(shared.align("two", map_id="default").ids) == 40
    with pytest.raises(ValueError, match="finite"):
        shared.align("two", map_id="default", frame=Motion(math.nan))


def test_on_the_command_line(
    two: MemoryStore, shared: MemoryStore, location: Path | str, capsys: pytest.CaptureFixture[str]
) -> None:
    shared.close()
    assert main(["align", str(location), "--robot", "three"]) == 2
    assert "three has no memories" in capsys.readouterr().err
    assert main(["align", str(location), "--robot", "two", "--least", "39"]) == 2
    assert "at least 39 are needed" in capsys.readouterr().err
    assert main(["align", str(location), "--robot", "two", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["ids"]) == 40
    assert told["estimate"]["motion"]["yaw_rad"] == pytest.approx(
        math.remainder(AWAY.yaw_rad, math.tau), abs=0.01
    )
    assert main(["align", str(location), "--robot", "two"]) == 0
    said = capsys.readouterr().out
    assert "RMS error" in said
    assert "the clock of two was not compared; times stay" in said
    assert main(["align", str(location), "--robot", "two", "--clock", "-1"]) == 2
    assert "most_clock_s must be from 0 to 10" in capsys.readouterr().err
    assert main(["align", str(location), "--robot", "two", "--reset"]) == 0
    assert "equals the store's map; moved 40 memories" in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_things_lie_as_their_robot_and_the_frame_say(
    stores: Open, shared: MemoryStore, seed: int
) -> None:
    dice = np.random.default_rng(seed)
    things = town(25, seed)
    robots = {"one": stores("one"), "two": stores("two")}
    sent: dict[str, dict[int, Memory]] = {"one": {}, "two": {}}
    count = 0
    for step in range(60):
        name = str(dice.choice(["one", "two"]))
        robot = robots[name]
        ids = robot.database.ids().tolist()
        what = dice.integers(7)
        if what < 2 or not ids:
            count += 1
            thing = dataclasses.replace(things[dice.integers(25)], time_ns=count, payload={"number": count})
            robot.add(observe([thing], 0.05, step))
        elif what == 2:
            robot.forget([int(dice.choice(ids))])
        elif what == 3:
            robot.repose([int(dice.choice(ids))], [dice.uniform(0.0, 100.0, 3)], [0.5])
        elif what == 4:
            send(robot, shared, name)
            sent[name] = {memory.payload["number"]: memory for memory in robot.get(ids)}
        elif what == 5:
            shared.consolidate(now_ns=count)
        else:
            undoable = [entry for entry in shared.log() if entry.operation in ("align", "merge", "undo")]
            try:
                if undoable and dice.random() < 0.5:
                    shared.undo(undoable[dice.integers(len(undoable))].generation)
                else:
                    clock_ns = int(dice.choice([0, -30, 7]))
                    shared.align(name, frame=Motion(*dice.uniform(-3.0, 3.0, 3).tolist(), clock_ns))
            except (UndoError, ValueError):
                continue
        frames = shared.database.frames()
        for memory in shared.database.present(shared.database.ids().tolist()):
            robot_name = only_robot(memory)
            if robot_name is None or memory.count > 1:
                continue
            own = sent[robot_name].get(memory.payload["number"])
            assert own is not None
            frame = frames.get((robot_name, "default"), Motion())
            expected = frame.memory(own)
            assert math.dist(memory.position, expected.position) < 1e-6, (step, what)
            assert memory.time_ns == expected.time_ns, (step, what)
            assert seen_by(memory)[robot_name].last_ns == expected.last_sight_ns, (step, what)
    assert shared.check().ok
