"""Processes with a real network between that breaks: partitions, lost answers, slow and silent links."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest
from network_links import Link
from robot_processes import serve

from memory import Memory, MemoryStore
from memory.errors import StoreError, SyncError
from memory.persistence.postgres.connection import ALIVE, options_of
from memory.persistence.postgres.database import PostgresDatabase
from memory.sync import Inbox, Outbox, Receiver, sync
from memory.sync.service import ServiceClient

DIM = 4
Seen = tuple[str, str, tuple[float, ...], str]


class Shared(NamedTuple):
    """`recall serve` of a store, in a process of its own.

    Attributes:
        folder: of the store.
        port: of the service.
    """

    folder: Path
    port: int

    def contents(self, *robots: str) -> list[Seen]:
        """What is there of some robots."""
        with MemoryStore.open(self.folder, readonly=True) as store:
            assert store.check().ok
            return [seen for seen in contents(store) if seen[0].split()[0] in robots]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """One for all tests: each has robots of its own."""
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    folder = tmp_path_factory.mktemp("links") / "shared"
    with MemoryStore.open(folder, dim=DIM):
        pass
    process, address = serve(folder)
    yield Shared(folder, int(urlsplit(address).port or 0))
    process.terminate()
    process.communicate()


@pytest.fixture
def link() -> Iterator[Callable[[int], Link]]:
    """Makes links to ports."""
    made: list[Link] = []

    def make(port: int) -> Link:
        made.append(Link(port))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Robot:
    """A robot's store beside what it should have, in a plain dictionary: the model."""

    def __init__(self, name: str, folder: Path, dice: random.Random, clock_ns: int = 0) -> None:
        self.name, self.dice, self.clock_ns, self.count = name, dice, clock_ns, 0
        self.store = MemoryStore.open(folder, dim=DIM)
        self.model: dict[int, Memory] = {}

    def act(self) -> None:
        """Something that robots do with their stores."""
        some = self.dice.sample(sorted(self.model), min(len(self.model), self.dice.randint(1, 3)))
        what = self.dice.choice(["add", "add", "add", "forget", "mark", "move", "say"])
        if what == "add":
            rows = [self.sight() for _ in range(self.dice.randint(1, 6))]
            self.model |= dict(zip(self.store.add(rows), rows, strict=True))
        elif what == "forget" and some:
            self.store.forget(some)
            for id in some:
                del self.model[id]
        elif what == "mark" and some:
            self.store.mark(some, "gone", at_ns=self.clock_ns + 10**6)
            self.change(some, state="gone")
        elif what == "move" and some:
            place = (self.dice.random(), 0.0, 0.0)
            self.store.repose(some, [place] * len(some), [0.0] * len(some))
            self.change(some, position=place)
        elif what == "say" and some:
            self.change(some, caption=f"said {self.count} {self.dice.random()}")
            rows = [dataclasses.replace(self.model[id], id=id) for id in some]
            self.store.database.update(rows)

    def sight(self) -> Memory:
        self.count += 1
        time_ns = self.clock_ns + self.count
        label = f"{self.name} {self.count}"
        return Memory(time_ns=time_ns, label=label, embedding=np.ones(DIM), importance=self.dice.random())

    def change(self, ids: list[int], **values: object) -> None:
        for id in ids:
            self.model[id] = dataclasses.replace(self.model[id], **values)  # type: ignore[arg-type]

    def expected(self) -> list[Seen]:
        """What the model says."""
        return sorted((m.label, m.state, m.position, m.caption) for m in self.model.values())


def contents(store: MemoryStore) -> list[Seen]:
    """Everything that a store has."""
    memories = store.database.get(store.database.ids().tolist())
    return sorted((m.label, m.state, m.position, m.caption) for m in memories)


#: Clocks of three robots: one is right, one is a day ahead, one begins in 1970.
CLOCKS = {"one": 1_800_000_000 * 10**9, "two": 1_800_086_400 * 10**9, "three": 0}


def disturb(way: Link, dice: random.Random, words: Sequence[bytes]) -> None:
    """What may happen to a link at any moment."""
    what = dice.random()
    if what < 0.4:
        way.heal()
    elif what < 0.5:
        way.cut()
    elif what < 0.8:
        way.heal()
        way.lose_after = dice.choice(words)
    elif what < 0.83:
        way.silent = True
    elif what < 0.9:
        way.rate = 200_000


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))])
def test_robots_behind_links_that_break_converge(
    tmp_path: Path, shared: Shared, link: Callable[[int], Link], seed: int
) -> None:
    """Against a model: a dictionary for each robot, which knows nothing of stores and batches."""
    dice = random.Random(seed)
    robots = [Robot(f"{name}-{seed}", tmp_path / name, dice, clock) for name, clock in CLOCKS.items()]
    links = [link(shared.port) for _ in robots]
    there = [ServiceClient(f"http://127.0.0.1:{each.port}", timeout_s=0.5) for each in links]
    failed = sent = 0
    for _ in range(60):
        at = dice.randrange(len(robots))
        robots[at].act()
        disturb(links[at], dice, [b"POST /api/sync", b'"memories"', b"GET /api/sync"])
        if dice.random() < 0.7:
            try:
                outbox = Outbox(robots[at].store.database, robots[at].name, portion=dice.randint(1, 4))
                sync(outbox, there[at])
                sent += 1
            except SyncError:
                failed += 1
    assert min(failed, sent, sum(each.lost for each in links)) >= 3  # It was no idle network.
    for robot, each, receiver in zip(robots, links, there, strict=True):
        each.heal()
        receiver.close()
        receiver._timeout_s = 300.0
        sync(Outbox(robot.store.database, robot.name), receiver)
        assert contents(robot.store) == robot.expected()
        robot.store.close()
        receiver.close()
    expected = sorted(row for robot in robots for row in robot.expected())
    assert shared.contents(*(robot.name for robot in robots)) == expected


def test_an_answer_that_is_lost_is_no_second_memory(
    tmp_path: Path, shared: Shared, link: Callable[[int], Link]
) -> None:
    way = link(shared.port)
    there = ServiceClient(f"http://127.0.0.1:{way.port}")
    with MemoryStore.open(tmp_path / "robot", dim=DIM) as robot:
        robot.add([Memory(time_ns=at, label=f"answers {at}") for at in range(20)])
        way.lose_after = b"POST /api/sync"
        with pytest.raises(SyncError, match="cannot reach"):
            sync(Outbox(robot.database, "answers", portion=7), there)
        assert way.lost == 1
        report = sync(Outbox(robot.database, "answers", portion=7), there)
        # The batch whose answer was lost had come.
        assert (report.added, report.batches) == (13, 2)
        assert shared.contents("answers") == contents(robot)
    there.close()


def test_a_slow_link_is_gone_through(tmp_path: Path, shared: Shared, link: Callable[[int], Link]) -> None:
    way = link(shared.port)
    way.rate, way.delay_s = 200_000.0, 0.01
    there = ServiceClient(f"http://127.0.0.1:{way.port}", timeout_s=2.0)
    with MemoryStore.open(tmp_path / "robot", dim=DIM) as robot:
        payload = {"text": "x" * 6000}
        robot.add([Memory(time_ns=at, label=f"slow {at}", payload=payload) for at in range(100)])
        start = time.monotonic()
        report = sync(Outbox(robot.database, "slow", portion=100), there)
        took = time.monotonic() - start
        # 600 kB in one message at 200 kB/s: longer than the timeout, which is of silence.
        assert took > 3.0
        assert (report.added, report.batches) == (100, 1)
        assert shared.contents("slow") == contents(robot)
    there.close()


def test_a_link_that_falls_silent_is_given_up_and_gone_on_from(
    tmp_path: Path, shared: Shared, link: Callable[[int], Link]
) -> None:
    way = link(shared.port)
    there = ServiceClient(f"http://127.0.0.1:{way.port}", timeout_s=300.0)
    with MemoryStore.open(tmp_path / "robot", dim=DIM) as robot:
        robot.add([Memory(time_ns=at, label=f"silent {at}") for at in range(30)])
        batches = Outbox(robot.database, "silent", portion=10).batches(there.position(robot.database.store))
        there.receive(next(batches))
        way.silent = True
        there.close()
        there._timeout_s = 0.5
        with pytest.raises(SyncError, match="timed out"):
            there.receive(next(batches))
        way.heal()
        there._timeout_s = 300.0
        assert sync(Outbox(robot.database, "silent", portion=10), there).added == 20
        assert shared.contents("silent") == contents(robot)
    there.close()


@pytest.fixture
def server(postgresql: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Address of a new database of a real server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return postgresql()


def behind(address: str, way: Link) -> str:
    """The address by way of a link."""
    parts = urlsplit(address)
    user, _, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}@127.0.0.1:{way.port}").geturl()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_robots_behind_links_to_a_database_converge(
    tmp_path: Path, server: str, link: Callable[[int], Link], seed: int
) -> None:
    dice = random.Random(seed)
    with MemoryStore.open(server, dim=DIM):
        pass
    robots = [Robot(name, tmp_path / name, dice, clock) for name, clock in CLOCKS.items()]
    links = [link(urlsplit(server).port or 5432) for _ in robots]
    failed = 0
    for _ in range(60):
        at = dice.randrange(len(robots))
        robots[at].act()
        disturb(links[at], dice, [b"COMMIT", b"pg_advisory_xact_lock", b"INSERT INTO log"])
        links[at].silent = False  # The operating system would give up after minutes.
        if dice.random() < 0.7:
            outbox = Outbox(robots[at].store.database, robots[at].name, portion=dice.randint(1, 4))
            try:
                with MemoryStore.open(behind(server, links[at])) as shared:
                    sync(outbox, Inbox(shared.database))
            except StoreError:
                failed += 1
    assert min(failed, sum(each.lost for each in links)) >= 3
    with MemoryStore.open(server) as shared:
        for robot in robots:
            receiver: Receiver = Inbox(shared.database)
            sync(Outbox(robot.store.database, robot.name), receiver)
            assert contents(robot.store) == robot.expected()
            robot.store.close()
        assert contents(shared) == sorted(row for robot in robots for row in robot.expected())
        assert shared.check().ok


def test_what_several_added_together_is_not_added_again_when_its_answer_is_lost(
    server: str, link: Callable[[int], Link]
) -> None:
    way = link(urlsplit(server).port or 5432)
    with MemoryStore.open(server, dim=DIM) as direct, MemoryStore.open(behind(server, way)) as store:
        database = store.database
        assert isinstance(database, PostgresDatabase)
        writer = database._check_writer()
        said: list[BaseException | list[int]] = []

        def add(name: str) -> None:
            try:
                said.append(store.add([Memory(time_ns=0, label=name, embedding=np.ones(DIM))]))
            except StoreError as error:
                said.append(error)

        threads = [threading.Thread(target=add, args=(name,)) for name in ("first", "second", "third")]
        with writer.lock:  # All wait, and then share a commit.
            for thread in threads:
                thread.start()
            while len(writer._queue) < 3:
                time.sleep(0.01)
            way.lose_after = b"COMMIT"
        for thread in threads:
            thread.join()
        assert way.lost == 1
        assert all(isinstance(each, StoreError) for each in said)
        memories = direct.database.get(direct.database.ids().tolist())
        assert sorted(memory.label for memory in memories) == ["first", "second", "third"]
        # The store goes on.
        assert store.add([Memory(time_ns=0, label="fourth")]) == [4]
        assert direct.check().ok


ADDING = """
import sys
from memory import Memory, MemoryStore
from memory.errors import StoreError
with MemoryStore.open(sys.argv[1]) as store:
    for line in sys.stdin:
        try:
            print(*store.add([Memory(time_ns=0, label="seen")]), flush=True)
        except StoreError as error:
            print("failed", flush=True)
"""


@pytest.fixture
def far() -> Iterator[Callable[[bool], None]]:
    """A network, `sparsight-far` at 10.77.31.2, behind a cable that can be pulled; only root can make it."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("only root can make a network")
    inside = "ip netns exec sparsight-far ip"
    begin = [
        "ip netns add sparsight-far", "ip link add sparsight-0 type veth peer name sparsight-1",
        "ip link set sparsight-1 netns sparsight-far", "ip addr add 10.77.31.1/24 dev sparsight-0",
        "ip link set sparsight-0 up", f"{inside} addr add 10.77.31.2/24 dev sparsight-1",
        f"{inside} link set sparsight-1 up",
    ]  # fmt: skip
    try:
        for command in begin:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"no network can be made: {done.stderr.strip()}")

        def plug(there: bool) -> None:
            # What is sent meanwhile is lost, and nobody is told.
            subprocess.run(["ip", "link", "set", "sparsight-0", "up" if there else "down"], check=True)

        yield plug
    finally:
        subprocess.run(["ip", "link", "del", "sparsight-0"], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", "sparsight-far"], capture_output=True, check=False)


@pytest.mark.slow
def test_a_cable_that_is_pulled_is_noticed_and_gone_on_without_opening_anew(
    server: str, far: Callable[[bool], None]
) -> None:
    with MemoryStore.open(server, dim=DIM):
        pass
    way = Link(urlsplit(server).port or 5432, "10.77.31.1")
    address = behind(server, way).replace("127.0.0.1", "10.77.31.1")
    address += "&keepalives_idle=1&keepalives_interval=1&keepalives_count=2&tcp_user_timeout=3000"
    command = ["ip", "netns", "exec", "sparsight-far", sys.executable, "-c", ADDING, address]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def add() -> str:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        return child.stdout.readline().strip()

    try:
        assert add() == "1"
        far(False)
        start = time.monotonic()
        assert add() == "failed"
        assert time.monotonic() - start < 100.0  # Of which half a minute to find another connection.
        far(True)
        assert add() == "2"
    finally:
        child.kill()
        child.communicate()
        way.close()


def test_connections_notice_silence_unless_an_address_says_otherwise() -> None:
    assert {name: options_of("postgresql://h/d")[name] for name in ALIVE} == ALIVE
    own = options_of("postgresql://h/d?keepalives_idle=3600&tcp_user_timeout=0")
    assert "keepalives_idle" not in own
    assert "tcp_user_timeout" not in own
    assert own["keepalives_count"] == ALIVE["keepalives_count"]
