"""Robots that are not trusted do not decide where others saw something else."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore
from memory.cli import main
from memory.merging.fusion import fuse
from memory.merging.robots import seen_by, trust_of, weights_of
from memory.questions import Questions
from memory.sync import Inbox, Outbox, sync
from memory.upkeep.roster import Robot, robots_of

DIM = 8
LOOK = np.eye(DIM)[0]


def sight(at_ns: int, x: float = 0.0, **more: object) -> Memory:
    """Of a trolley."""
    return Memory(time_ns=at_ns, position=(x, 0.0, 0.0), label="trolley", embedding=LOOK, **more)


@pytest.fixture
def tell(stores: Callable[[str], MemoryStore], shared: MemoryStore) -> Callable[..., None]:
    """Lets robots say what they saw."""

    def say(robot: str, *memories: Memory) -> None:
        store = stores(robot)
        store.add(memories)
        sync(Outbox(store.database, robot), Inbox(shared.database))

    return say


def only(store: MemoryStore) -> Memory:
    (memory,) = store.database.present(store.database.ids().tolist())
    return memory


def test_what_several_saw_lies_where_the_trusted_saw_it(
    tell: Callable[..., None], shared: MemoryStore
) -> None:
    tell("good", sight(100, 0.0, caption="by the door", confidence=0.6, importance=0.5))
    tell("bad", sight(200, 0.5, caption="on the moon", confidence=1.0, importance=1.0, state="gone"))
    operation = shared.trust("bad", 0.25, why="its LiDAR is loose")
    assert shared.database.trusts() == {"bad": 0.25}
    merged = shared.consolidate(now_ns=1000)
    memory = only(shared)
    assert memory.position[0] == pytest.approx(0.5 * 0.25 / 1.25)
    assert (memory.caption, memory.state, memory.time_ns) == ("by the door", "present", 100)
    assert (memory.confidence, memory.importance) == (0.6, 0.5)
    assert (memory.count, memory.last_seen_ns) == (2, 200)
    assert set(seen_by(memory)) == {"good", "bad"}
    explained = shared.explain(memory.id or 0)
    assert "robots that saw it: bad is trusted 0.25" in explained.reasons
    assert explained.parts["trust"] == 1.0
    shared.undo(merged.generations[0])
    shared.undo(operation)
    assert shared.database.trusts() == {}
    shared.consolidate(now_ns=1000)
    memory = only(shared)
    assert memory.position[0] == pytest.approx(0.25)
    assert (memory.caption, memory.state) == ("on the moon", "gone")


def test_what_the_trusted_say_is_gone_is_gone_though_another_saw_it_since(
    tell: Callable[..., None], shared: MemoryStore
) -> None:
    tell("good", sight(100, state="gone"))
    tell("bad", sight(200))
    shared.trust("bad", 0.4)
    shared.consolidate(now_ns=1000)
    assert only(shared).state == "gone"


def test_half_as_much_trust_still_decides(tell: Callable[..., None], shared: MemoryStore) -> None:
    tell("good", sight(100, caption="old"))
    tell("fair", sight(200, caption="new"))
    shared.trust("fair", 0.5)
    shared.consolidate(now_ns=1000)
    assert only(shared).caption == "new"


def test_who_is_not_trusted_at_all_is_merged_with_nothing(
    tell: Callable[..., None], shared: MemoryStore
) -> None:
    tell("good", sight(100))
    tell("bad", sight(200), sight(300))
    shared.trust("bad", 0.0)
    assert shared.consolidate(now_ns=1000).merged == []
    shared.trust("bad", 1.0)
    assert len(shared.consolidate(now_ns=1000).merged) == 1


def test_answers_go_by_the_trusted(tell: Callable[..., None], shared: MemoryStore) -> None:
    tell("good", sight(100, 1.0), sight(150, 2.0))
    tell("bad", sight(900, 70.0))
    assert Questions(shared).last_seen("trolley").time_ns == 900
    shared.trust("bad", 0.3)
    answer = Questions(shared).last_seen("trolley")
    assert (answer.time_ns, str(answer).endswith("by good.")) == (150, True)
    shared.trust("good", 0.4)
    assert Questions(shared).last_seen("trolley").time_ns == 900
    shared.trust("good", 0.0)
    shared.trust("bad", 0.0)
    assert Questions(shared).last_seen("trolley").time_ns == 900


def test_a_merged_thing_that_the_trusted_saw_last_is_found(
    tell: Callable[..., None], shared: MemoryStore
) -> None:
    tell("good", sight(100, count=2, first_seen_ns=100, last_seen_ns=500))
    tell("bad", *(sight(at, 70.0) for at in range(600, 640)))
    shared.trust("bad", 0.3)
    assert Questions(shared).last_seen("trolley").time_ns == 500


def test_trust_is_checked_and_followed(shared: MemoryStore) -> None:
    for wrong in (-0.1, 1.1, float("nan"), True):
        with pytest.raises(ValueError, match="trust must be from 0 to 1"):
            shared.trust("one", wrong)
    with pytest.raises(ValueError, match="name of a robot"):
        shared.trust(" ", 0.5)
    assert shared.generation == 0
    shared.trust("one", 0.5)
    again = shared.trust("one", 0.7)
    shared.trust("two", 0.1)
    shared.trust("two", 1)
    assert shared.database.trusts() == {"one": 0.7}
    undone = shared.undo(again)
    assert shared.database.trusts() == {"one": 0.5}
    shared.undo(undone)
    assert shared.database.trusts() == {"one": 0.7}


def test_equal_trust_changes_nothing() -> None:
    random = np.random.default_rng(0)
    memories = [
        dataclasses.replace(
            sight(at, float(random.normal())), id=at, yaw=float(random.uniform(-3.0, 3.0)),
            payload={"seen_by": {f"robot-{at % 2}": [at, at, 1]}}, reward=float(random.normal()),
        )
        for at in range(1, 6)
    ]  # fmt: skip
    plain = fuse(memories)
    same = fuse(memories, trust={"robot-0": 0.2, "robot-1": 0.2})
    none = fuse(memories, trust={"robot-0": 0.0, "robot-1": 0.0})
    for found in (same, none):
        assert (found.position, found.yaw, found.reward) == (plain.position, plain.yaw, plain.reward)
    trust = {"robot-0": 0.2, "robot-1": 0.4}
    assert weights_of(memories, trust).tolist() == [1.0, 0.5, 1.0, 0.5, 1.0]
    assert trust_of(sight(1), trust) == 1.0
    # Who is not believed at all adds nothing to a mean.
    assert fuse(memories, trust={"robot-0": 0.0}).position == pytest.approx(fuse(memories[::2]).position)


def test_robots_are_listed(tell: Callable[..., None], shared: MemoryStore) -> None:
    tell("good", sight(100), sight(0, 30.0))
    tell("bad", sight(200))
    shared.add([sight(300, 60.0)])
    shared.consolidate(now_ns=1000)
    shared.trust("bad", 0.25)
    shared.trust("later", 0.5)
    robots = robots_of(shared.database)
    assert [-5e9 < (robot.ahead_ns or 0) <= 0 for robot in robots] == [True] * 3
    assert [dataclasses.replace(robot, ahead_ns=None) for robot in robots] == [
        Robot("bad", 0.25, 1, 0, 1, 200, 200),
        Robot("good", 1.0, 2, 1, 2, 0, 100),
        Robot("later", 0.5),
    ]


def test_on_the_command_line(
    tell: Callable[..., None],
    shared: MemoryStore,
    location: Path | str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell("bad", sight(200))
    shared.close()
    assert main(["trust", str(location), "bad", "0.2", "--why", "loose"]) == 0
    assert "trust of bad is now 0.2; undo with: recall undo " in capsys.readouterr().out
    assert main(["robots", str(location)]) == 0
    assert "0.2" in capsys.readouterr().out
    assert main(["robots", str(location), "--json"]) == 0
    (robot,) = json.loads(capsys.readouterr().out)["robots"]
    assert (robot["name"], robot["trust"], robot["frames"]) == ("bad", 0.2, {})
    assert main(["explain", str(location), "1"]) == 0
    assert "bad is trusted 0.2" in capsys.readouterr().out
    assert main(["trust", str(location), "bad", "much"]) == 2
    assert main(["trust", str(location), "bad", "2", "--json"]) == 2
    capsys.readouterr()
    assert main(["trust", str(location), "bad", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"robot": "bad", "trust": 1.0, "operation": 3}
