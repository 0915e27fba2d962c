"""Clocks that differ are noticed, and said."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from memory import Memory, MemoryStore
from memory.cli import main
from memory.sync import Inbox, Outbox, SyncReport, sync
from memory.upkeep.roster import robots_of

HOUR_NS = 3600 * 10**9
#: What a clock may be off by in a test, whatever the machine does meanwhile.
SLACK_NS = 30 * 10**9

Open = Callable[[str], MemoryStore]


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock of whoever sends."""

    def set_clock(ahead_ns: int) -> None:
        clock = SimpleNamespace(time_ns=lambda: time.time_ns() + ahead_ns)
        monkeypatch.setattr("memory.sync.outbox.time", clock)

    return set_clock


def send(source: MemoryStore, target: MemoryStore) -> SyncReport:
    return sync(Outbox(source.database, "robot"), Inbox(target.database))


@pytest.mark.parametrize("ahead_ns", [-HOUR_NS, 0, 2 * HOUR_NS])
def test_how_far_a_clock_is_off_is_told(
    stores: Open, shared: MemoryStore, off: Callable[[int], None], ahead_ns: int
) -> None:
    robot = stores("robot")
    off(ahead_ns)
    now = time.time_ns() + ahead_ns
    robot.add([Memory(time_ns=now, label="cup"), Memory(time_ns=now - HOUR_NS // 2, label="cup")])
    done = send(robot, shared)
    assert abs(done.ahead_ns - ahead_ns) < SLACK_NS
    assert done.future == (2 if ahead_ns > 0 else 0)
    (known,) = robots_of(shared.database)
    assert known.ahead_ns is not None
    assert abs(known.ahead_ns - ahead_ns) < SLACK_NS
    # What it says stays as it is.
    times = {memory.time_ns for memory in shared.database.get(shared.database.ids().tolist())}
    assert times == {now, now - HOUR_NS // 2}
    assert (send(robot, shared).ahead_ns, send(robot, shared).future) == (0, 0)


def test_the_last_send_counts(stores: Open, shared: MemoryStore, off: Callable[[int], None]) -> None:
    robot = stores("robot")
    for ahead_ns in (5 * HOUR_NS, 0):
        off(ahead_ns)
        robot.add([Memory(time_ns=1, label="cup")])
        send(robot, shared)
    (known,) = robots_of(shared.database)
    assert abs(known.ahead_ns or 0) < SLACK_NS


def test_on_the_command_line(
    stores: Open, tmp_path: Path, off: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    robot = stores("robot")
    robot.add([Memory(time_ns=time.time_ns() + 3 * HOUR_NS, label="cup")])
    robot.close()
    stores("all").close()
    off(3 * HOUR_NS)
    assert main(["sync", str(tmp_path / "robot"), str(tmp_path / "all")]) == 0
    said = capsys.readouterr().err
    assert "3.0 hours ahead of the other side" in said
    assert "robot: 1 memory dated in the future" in said
    assert main(["robots", str(tmp_path / "all")]) == 0
    assert "3.0 hours ahead" in capsys.readouterr().out
    assert main(["robots", str(tmp_path / "all"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["robots"]
    assert abs(told["ahead_ns"] - 3 * HOUR_NS) < SLACK_NS
