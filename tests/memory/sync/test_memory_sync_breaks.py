"""Nothing is lost and nothing is there twice, whatever breaks: messages, senders, receivers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from robot_processes import killed, labels_of, serve, start_again

from memory import Memory, MemoryStore
from memory.errors import RecallError, StaleSyncError, SyncError
from memory.persistence.postgres import server
from memory.sync import Inbox, Outbox, sync
from memory.sync.service import ServiceClient

DIM = 4


def sight(robot: str, number: int) -> Memory:
    """Something that a robot saw."""
    return Memory(time_ns=number, label=f"{robot} {number}", embedding=np.ones(DIM), importance=0.5)


def contents(store: MemoryStore) -> list[tuple[str, str, tuple[float, ...]]]:
    """Everything that a store has."""
    memories = store.database.get(store.database.ids().tolist())
    return sorted((memory.label, memory.state, memory.position) for memory in memories)


class Robot:
    """Does what robots do with its store, at random."""

    def __init__(self, name: str, folder: Path, dice: random.Random) -> None:
        self.name, self.dice, self.count = name, dice, 0
        self.store = MemoryStore.open(folder, dim=DIM)

    def act(self) -> None:
        ids = self.store.database.ids().tolist()
        some = self.dice.sample(ids, min(len(ids), self.dice.randint(1, 3)))
        what = self.dice.choice(["add", "add", "add", "forget", "mark", "move", "undo"])
        if what == "add":
            self.count += (new := self.dice.randint(1, 6))
            self.store.add([sight(self.name, self.count - at) for at in range(new)])
        elif what == "forget" and some:
            self.store.forget(some)
        elif what == "mark" and some:
            self.store.mark(some, self.dice.choice(["gone", "moved", "present"]), at_ns=10**6)
        elif what == "move" and some:
            self.store.repose(some, [(self.dice.random(), 0.0, 0.0)] * len(some), [0.0] * len(some))
        elif what == "undo":
            with contextlib.suppress(RecallError):
                self.store.undo(self.dice.randint(1, max(self.store.generation, 1)))


@pytest.mark.parametrize("seed", [0, 1, 2, 123])
def test_any_order_and_loss_of_messages_heals(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    robots = [Robot(name, tmp_path / name, dice) for name in ("one", "two")]
    with MemoryStore.open(tmp_path / "shared", dim=DIM) as shared:
        inboxes = [Inbox(shared.database), Inbox(shared.database)]
        on_the_way = []
        for _ in range(30):
            robot = dice.choice(robots)
            robot.act()
            if dice.random() < 0.5:
                outbox = Outbox(robot.store.database, robot.name, portion=dice.randint(1, 5))
                on_the_way += outbox.batches(dice.choice(inboxes).position(outbox.store))
            dice.shuffle(on_the_way)
            # Some get lost, some come twice, all in any order.
            for _ in range(dice.randint(0, min(len(on_the_way), 4))):
                batch = dice.choice(on_the_way) if dice.random() < 0.3 else on_the_way.pop()
                with contextlib.suppress(StaleSyncError):
                    dice.choice(inboxes).receive(batch)
        for robot in robots:
            sync(Outbox(robot.store.database, robot.name), inboxes[0])
        expected = sorted(entry for robot in robots for entry in contents(robot.store))
        assert contents(shared) == expected
        assert shared.check().ok
    for robot in robots:
        robot.store.close()


def test_a_killed_sender_goes_on(tmp_path: Path) -> None:
    dice = random.Random(0)
    with MemoryStore.open(tmp_path / "robot", dim=DIM) as robot:
        robot.add([sight("robot", number) for number in range(400)])
    with MemoryStore.open(tmp_path / "shared", dim=DIM):
        pass
    for _ in range(12):
        child = os.fork()
        if child == 0:
            try:
                with (
                    MemoryStore.open(tmp_path / "robot", readonly=True) as robot,
                    MemoryStore.open(tmp_path / "shared") as shared,
                ):
                    sync(Outbox(robot.database, "robot", portion=7), Inbox(shared.database))
                    while True:  # Killed in the middle or here.
                        signal.pause()
            finally:
                os._exit(1)
        time.sleep(dice.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with (
        MemoryStore.open(tmp_path / "robot", readonly=True) as robot,
        MemoryStore.open(tmp_path / "shared") as shared,
    ):
        sync(Outbox(robot.database, "robot", portion=100), Inbox(shared.database))
        assert contents(shared) == contents(robot)
        assert shared.check().ok


SENDER = """
import sys, time
from memory import Memory, MemoryStore
from memory.errors import RecallError
from memory.sync import Inbox, Outbox, sync
from memory.sync.service import ServiceClient
import numpy as np
folder, address = sys.argv[1:]

def send(outbox):
    if address.startswith("http"):
        sync(outbox, ServiceClient(address, timeout_s=5))
        return
    with MemoryStore.open(address) as shared:
        sync(outbox, Inbox(shared.database))

with MemoryStore.open(folder, dim=4) as store:
    while True:
        number = store.generation
        rows = [Memory(time_ns=number, label=f"{number} {at}", embedding=np.ones(4)) for at in range(3)]
        store.add(rows)
        print(*[row.label for row in rows], sep="|", flush=True)
        if number % 5 == 4:
            store.forget([int(store.database.ids()[0])])
        try:
            send(Outbox(store.database, "robot", portion=4))
        except RecallError:
            time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_two_hundred_kills_of_sender_and_receiver(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    dice = random.Random(1)
    with MemoryStore.open(tmp_path / "shared", dim=DIM):
        pass
    acknowledged: set[str] = set()
    service, address = serve(tmp_path / "shared")
    for trial in range(200):
        sender = subprocess.Popen(
            [sys.executable, "-c", SENDER, str(tmp_path / "robot"), address],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert sender.stdout is not None
        acknowledged.update(labels_of(sender.stdout.readline()))  # It is at work.
        time.sleep(dice.uniform(0.0, 0.1))
        if trial % 2:
            service.kill()
            service.communicate()
            time.sleep(dice.uniform(0.0, 0.05))
        acknowledged |= killed(sender)
        if trial % 2:
            service, address = serve(tmp_path / "shared")
    with MemoryStore.open(tmp_path / "robot") as robot, contextlib.closing(ServiceClient(address)) as there:
        sync(Outbox(robot.database, "robot"), there)
        expected = contents(robot)
        ever = {
            memory.label
            for entry in robot.database.log()
            for memory in robot.database.before(entry.generation)
        }
    service.terminate()
    service.communicate()
    with MemoryStore.open(tmp_path / "shared") as shared:
        assert contents(shared) == expected
        assert shared.check().ok
    labels = {label for label, _, _ in expected}
    assert acknowledged <= labels | ever
    assert len(expected) == len(labels) > 300


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_kills_of_a_robot_and_of_the_database_in_turn(
    tmp_path: Path, server_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dice, folder = random.Random(2), server_folder()
    address = server.start(folder)
    try:
        with MemoryStore.open(address, dim=DIM):
            pass
        acknowledged: set[str] = set()
        for trial in range(24):
            sender = subprocess.Popen(
                [sys.executable, "-c", SENDER, str(tmp_path / "robot"), address],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert sender.stdout is not None
            acknowledged.update(labels_of(sender.stdout.readline()))  # It is at work.
            time.sleep(dice.uniform(0.0, 0.5))
            if trial % 2:
                os.kill(int(server.info(folder)["pid"]), signal.SIGKILL)
                if trial % 4 == 1:  # The robot goes on alone, and sends when the server is back.
                    assert start_again(folder, tries=50) == address
                    acknowledged.update(labels_of(sender.stdout.readline()))
            acknowledged |= killed(sender)
            assert start_again(folder, tries=50) == address
        with MemoryStore.open(tmp_path / "robot") as robot, MemoryStore.open(address) as shared:
            sync(Outbox(robot.database, "robot"), Inbox(shared.database))
            assert contents(shared) == contents(robot)
            assert shared.check().ok
            ever = {
                memory.label
                for entry in robot.database.log()
                for memory in robot.database.before(entry.generation)
            }
            labels = [label for label, _, _ in contents(robot)]
            assert acknowledged <= {*labels, *ever}
            assert len(labels) == len(set(labels)) > 50
    finally:
        server.stop(folder)


def test_a_service_that_is_not_there(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "robot", dim=DIM) as robot:
        robot.add([sight("robot", 1)])
        with pytest.raises(SyncError, match=r"cannot reach http://127\.0\.0\.1:9"):
            sync(Outbox(robot.database, "robot"), ServiceClient("http://127.0.0.1:9"))
    for wrong in ("ftp://host", "http://", "host:80"):
        with pytest.raises(ValueError, match="not the address"):
            ServiceClient(wrong)
