"""What one robot said is taken back, and what others saw stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore
from memory.cli import main
from memory.merging.robots import seen_by
from memory.questions import Questions
from memory.sync import Inbox, Outbox, sync
from memory.upkeep.withdrawal import WithdrawalResult, withdraw

DIM = 8
LOOK = np.eye(DIM)[0]


def sight(at_ns: int, x: float = 0.0, label: str = "trolley") -> Memory:
    """Of a thing that stands at the origin."""
    return Memory(time_ns=at_ns, position=(x, 0.0, 0.0), label=label, embedding=LOOK)


@pytest.fixture
def told(stores: Callable[[str], MemoryStore], shared: MemoryStore) -> MemoryStore:
    """Three robots saw a trolley; the third saw it 0.3 m away, and a ghost."""
    for at, name in enumerate(("one", "two", "three")):
        robot = stores(name)
        robot.add([sight(100 + at, 0.3 * (name == "three"))])
        if name == "three":
            robot.add([sight(500, 40.0, "ghost")])
        sync(Outbox(robot.database, name), Inbox(shared.database))
    shared.consolidate(now_ns=1000)
    assert len(shared) == 2
    return shared


def test_what_one_robot_said_is_gone_and_nothing_else(told: MemoryStore) -> None:
    done = withdraw(told.database, "three")
    assert len(done.forgotten) == 2
    assert len(done.taken_apart) == 1
    assert (done.partly, done.merged_for_good) == ((), ())
    told.consolidate(now_ns=1000)
    (trolley,) = told.database.get(told.database.ids().tolist())
    assert set(seen_by(trolley)) == {"one", "two"}
    assert trolley.position == (0.0, 0.0, 0.0)
    assert trolley.count == 2
    assert withdraw(told.database, "three") == WithdrawalResult()


def test_only_of_a_time(told: MemoryStore) -> None:
    done = withdraw(told.database, "three", between_ns=(400, 600))
    assert (len(done.forgotten), done.taken_apart) == (1, ())
    assert withdraw(told.database, "three", between_ns=(0, 10)) == WithdrawalResult()


def test_what_was_seen_at_other_times_too_stays(
    stores: Callable[[str], MemoryStore], shared: MemoryStore
) -> None:
    robot = stores("one")
    robot.add([Memory(time_ns=100, label="cup", count=3, first_seen_ns=50, last_seen_ns=150)])
    sync(Outbox(robot.database, "one"), Inbox(shared.database))
    assert withdraw(shared.database, "one", between_ns=(90, 200)).partly == (1,)
    assert len(shared) == 1


def test_what_cannot_be_taken_apart_stays(told: MemoryStore) -> None:
    told.database.trim_log(told.generation)
    done = withdraw(told.database, "three")
    (trolley,) = told.database.get(told.database.ids().tolist())
    assert done.merged_for_good == (trolley.id,)
    assert len(done.forgotten) == 1  # The ghost.
    assert "three" in seen_by(trolley)


def test_an_answer_says_who_saw_it(told: MemoryStore) -> None:
    assert str(Questions(told).last_seen("trolley")).endswith(", by three (also seen by two, one).")
    assert str(Questions(told).first_seen("trolley")).endswith(", by one (also seen by two, three).")


def test_on_the_command_line(
    told: MemoryStore, location: Path | str, capsys: pytest.CaptureFixture[str]
) -> None:
    told.close()
    assert main(["forget", str(location), "--robot", "three", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["forgotten"]) == 2
    assert main(["forget", str(location), "--robot", "three"]) == 0
    assert capsys.readouterr().out == "no observations by three\n"
    assert main(["forget", str(location), "--robot", "one", "--secure"]) == 2
    assert main(["forget", str(location), "1", "--between", "2026-01-01", "2026-01-02"]) == 2
    assert "--between needs --robot" in capsys.readouterr().err
