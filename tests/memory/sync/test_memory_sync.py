"""What a robot remembers is in the shared store, once, and follows what becomes of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore, Query
from memory.errors import DataError, DimensionError, ForkedStoreError, StaleSyncError
from memory.merging.robots import SeenBy, seen_by
from memory.sync import Batch, Inbox, Outbox, Position, pull, sync
from memory.sync.pulls import Pulls
from memory.sync.wire import batch_json, batch_of, position_json, position_of
from memory.types import Visit

DIM = 8

Open = Callable[[str], MemoryStore]


def sight(number: int) -> Memory:
    """Something that a robot saw."""
    random = np.random.default_rng(number)
    return Memory(
        time_ns=number * 10**9,
        position=(float(number), 0.0, 0.0),
        label="Car",
        embedding=random.standard_normal(DIM),
        importance=float(random.uniform()),
        payload={"number": number},
    )


def numbers(store: MemoryStore) -> list[int]:
    """Of the sights in a store."""
    memories = store.database.get(store.database.ids().tolist())
    return sorted(memory.payload["number"] for memory in memories)


def send(
    source: MemoryStore, target: MemoryStore, robot: str = "robot-1", **options: object
) -> tuple[int, ...]:
    """What was added, changed and removed."""
    done = sync(Outbox(source.database, robot, **options), Inbox(target.database))  # type: ignore[arg-type]
    return done.added, done.changed, done.removed


def test_all_of_a_robot_arrives_with_who_saw_it(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    ids = robot.add([sight(number) for number in range(25)])
    assert send(robot, shared, portion=10) == (25, 0, 0)
    assert send(robot, shared) == (0, 0, 0)
    mine = {memory.payload["number"]: memory for memory in robot.database.get(ids)}
    for memory in shared.database.get(shared.database.ids().tolist()):
        own = mine[memory.payload["number"]]
        assert seen_by(memory) == {"robot-1": SeenBy(own.time_ns, own.time_ns, 1)}
        assert memory.provenance == "robot-1"
        assert memory.position == own.position
        assert np.allclose(memory.embedding, own.embedding, atol=1e-3)
        assert memory.importance == own.importance
    (hit,) = shared.query(Query(embedding=mine[7].embedding, k=1))
    assert hit.memory.payload["number"] == 7


def test_what_becomes_of_a_memory_follows(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    ids = robot.add([sight(number) for number in range(6)])
    send(robot, shared)
    forgotten = robot.forget(ids[:2])
    robot.mark(ids[2:3], "gone")
    robot.repose(ids[3:4], [(50.0, 1.0, 0.0)], [0.5])
    robot.database.see({ids[4]: [Visit(10**12, 10**12, 3)]})
    robot.flush()
    assert send(robot, shared) == (0, 3, 2)
    found = {m.payload["number"]: m for m in shared.database.get(shared.database.ids().tolist())}
    assert sorted(found) == [2, 3, 4, 5]
    assert found[2].state == "gone"
    assert found[3].position == (50.0, 1.0, 0.0)
    assert found[4].count == 4
    assert seen_by(found[4]) == {"robot-1": SeenBy(4 * 10**9, 10**12, 4)}
    robot.undo(forgotten)
    assert send(robot, shared) == (2, 0, 0)
    assert numbers(shared) == [0, 1, 2, 3, 4, 5]


def test_what_breaks_off_goes_on_where_it_was(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    ids = robot.add([sight(number) for number in range(20)])
    inbox = Inbox(shared.database)
    outbox = Outbox(robot.database, "robot-1", portion=6)
    batches = outbox.batches(inbox.position(outbox.store))
    first = next(batches)
    # The most important first.
    importances = sorted((memory.importance or 0 for memory in robot.database.get(ids)), reverse=True)
    assert sorted((memory.importance for memory in first.memories), reverse=True) == importances[:6]
    inbox.receive(first)
    changed = next(memory.id for memory in first.memories)
    robot.mark([changed], "gone")
    robot.add([sight(20)])
    # Of the six that had come only the one that changed is sent again; another process goes on.
    assert send(robot, shared) == (15, 1, 0)
    assert numbers(shared) == list(range(21))
    # What was on its way all the time comes late: it is older than what is there.
    for late in batches:
        with pytest.raises(StaleSyncError):
            inbox.receive(late)
    assert numbers(shared) == list(range(21))
    gone = [m for m in shared.database.get(shared.database.ids().tolist()) if m.state == "gone"]
    assert len(gone) == 1


def test_a_batch_that_comes_twice_is_there_once(stores: Open, shared: MemoryStore) -> None:
    robot, inbox = stores("robot"), Inbox(shared.database)
    robot.add([sight(number) for number in range(10)])
    outbox = Outbox(robot.database, "robot-1", portion=4)
    batches = list(outbox.batches(inbox.position(outbox.store)))
    for batch in (batches[1], batches[1], batches[0], batches[2], batches[2], batches[0]):
        inbox.receive(batch)
    assert numbers(shared) == list(range(10))
    assert send(robot, shared) == (0, 0, 0)


def test_two_senders_of_one_store(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    robot.add([sight(number) for number in range(4)])
    outbox = Outbox(robot.database, "robot-1", portion=2)
    one, other = Inbox(shared.database), Inbox(shared.database)
    slow = outbox.batches(one.position(outbox.store))
    one.receive(next(slow))
    robot.add([sight(4)])
    sync(outbox, other)
    robot.add([sight(5)])
    sync(outbox, other)
    # The point that the slow one started from is passed.
    with pytest.raises(StaleSyncError, match="robot-1 up to operation 3"):
        one.receive(next(slow))
    assert numbers(shared) == list(range(6))


def test_what_was_forgotten_there_does_not_come_again(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    ids = robot.add([sight(1), sight(2)])
    send(robot, shared)
    shared.forget(shared.database.ids()[:1].tolist())
    robot.mark(ids, "gone")
    done = sync(Outbox(robot.database, "robot-1"), Inbox(shared.database))
    assert (done.added, done.changed, done.kept) == (0, 1, 1)
    assert numbers(shared) == [2]


def test_what_was_found_gone_there_stays_so_until_it_is_seen(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    (id,) = robot.add([sight(1)])
    send(robot, shared)
    shared.mark(shared.database.ids().tolist(), "gone")
    robot.repose([id], [(2.0, 0.0, 0.0)], [0.0])
    send(robot, shared)
    (memory,) = shared.database.get(shared.database.ids().tolist())
    assert (memory.state, memory.position) == ("gone", (2.0, 0.0, 0.0))
    robot.database.see({id: [Visit(10**13, 10**13, 1)]})
    robot.flush()
    send(robot, shared)
    (memory,) = shared.database.get(shared.database.ids().tolist())
    assert memory.state == "present"


def test_things_that_robots_share_become_one_and_follow_still(stores: Open, shared: MemoryStore) -> None:
    one, two = stores("one"), stores("two")
    (own,) = one.add([sight(1)])
    # The same thing at the same nanosecond, by the other.
    two.add([dataclasses.replace(sight(1), position=(1.1, 0.0, 0.0))])
    send(one, shared, "one")
    send(two, shared, "two")
    assert len(shared.consolidate(now_ns=2 * 10**9).merged) == 1
    (memory,) = shared.database.get(shared.database.ids().tolist())
    share = SeenBy(10**9, 10**9, 1)
    assert seen_by(memory) == {"one": share, "two": share}
    assert set(memory.provenance.split("\n")) == {"one", "two"}
    # One of them sees it again: the merge is taken back, and made again.
    one.database.see({own: [Visit(10**11, 10**11, 2)]})
    one.flush()
    assert send(one, shared, "one") == (0, 1, 0)
    assert len(shared) == 2
    shared.consolidate(now_ns=10**12)
    (memory,) = shared.database.get(shared.database.ids().tolist())
    assert seen_by(memory) == {"one": SeenBy(10**9, 10**11, 3), "two": share}
    assert memory.count == 4
    one.forget([own])
    assert send(one, shared, "one") == (0, 0, 1)
    (memory,) = shared.database.get(shared.database.ids().tolist())
    assert seen_by(memory) == {"two": share}


def test_a_store_that_was_put_back_is_told_from_one_that_went_on(
    stores: Open, shared: MemoryStore, tmp_path: Path
) -> None:
    with MemoryStore.open(tmp_path / "first", dim=DIM) as first:
        first.add([sight(1), sight(2)])
        send(first, shared)
        first.backup(tmp_path / "copy")
        first.add([sight(3)])
        send(first, shared)
    shutil.rmtree(tmp_path / "first")
    copy = stores("copy")
    copy.add([sight(4)])  # With the id that the lost one had.
    with pytest.raises(ForkedStoreError, match=r"up to 2.*up to 1"):
        send(copy, shared)
    assert send(copy, shared, forked=True) == (1, 0, 0)
    # What was lost on the robot is in the shared store; what became of the copy is too.
    assert numbers(shared) == [1, 2, 3, 4]
    copy.forget([3])
    assert send(copy, shared) == (0, 0, 1)
    assert numbers(shared) == [1, 2, 3]


def test_pulled_memories_stay_apart(stores: Open, shared: MemoryStore) -> None:
    one, two = stores("one"), stores("two")
    one.add([sight(1)])
    two.add([sight(2), dataclasses.replace(sight(3), map_id="elsewhere")])
    two.add([dataclasses.replace(sight(1), position=(1.05, 0.0, 0.0))])
    send(one, shared, "one")
    send(two, shared, "two")
    assert pull(shared.database, one.database).added == 2
    assert pull(shared.database, one.database).batches == 0
    assert numbers(one) == [1, 1, 2]  # Not what is in a map that it does not have.
    assert not one.consolidate(now_ns=10**10).merged
    assert send(one, shared, "one") == (0, 0, 0)
    two.forget([1])
    send(two, shared, "two")
    assert pull(shared.database, one.database).removed == 1
    assert numbers(one) == [1, 1]


def test_requests_of_a_pull_share_one_list(
    stores: Open, shared: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, one = stores("two"), stores("one")
    one.add([sight(0)])
    two.add([sight(number) for number in range(1, 21)])
    send(two, shared, "two")
    made: list[Position] = []
    batches = Outbox.batches

    def counted(outbox: Outbox, position: Position) -> Iterator[Batch]:
        made.append(position)
        return batches(outbox, position)

    monkeypatch.setattr(Outbox, "batches", counted)
    pulls, inbox, store = Pulls(), Inbox(one.database), shared.database.store

    def ask(*, arrives: bool = True) -> int:
        outbox = Outbox(shared.database, "shared", portion=3, shared=True, forked=True)
        batch = pulls.next(outbox, inbox.position(store), None)
        if batch is not None and arrives:
            inbox.receive(batch)
        return 0 if batch is None else len(batch.memories)

    assert [ask(), ask(), ask()] == [3, 3, 3]
    assert len(made) == 1
    assert ask(arrives=False) == 3
    assert ask() == 3  # Made anew: what was sent had not come.
    assert len(made) == 2
    two.add([sight(21)])
    send(two, shared, "two")
    before = len(made)
    assert ask() == 3
    assert len(made) == before + 1  # Something was written.
    while ask():
        pass
    assert numbers(one) == list(range(22))
    assert ask() == 0
    assert not pulls._lists


def test_a_reader_sends_while_another_writes(stores: Open, shared: MemoryStore, tmp_path: Path) -> None:
    robot = stores("robot")
    robot.add([sight(1)])
    with MemoryStore.open(tmp_path / "robot", readonly=True) as reader:
        assert send(reader, shared) == (1, 0, 0)
        robot.add([sight(2)])
        assert send(reader, shared) == (1, 0, 0)


def test_vectors_of_another_length_are_refused_whole(tmp_path: Path, shared: MemoryStore) -> None:
    with MemoryStore.open(tmp_path / "long", dim=2 * DIM) as robot:
        robot.add([Memory(time_ns=1), Memory(time_ns=1, embedding=np.ones(2 * DIM))])
        with pytest.raises(DimensionError):
            send(robot, shared)
    assert not len(shared)
    assert not shared.database.log(operation="sync")


def test_batches_travel_as_json(stores: Open, shared: MemoryStore) -> None:
    robot, inbox = stores("robot"), Inbox(shared.database)
    robot.add([sight(1), dataclasses.replace(sight(2), embeddings={"other": np.ones(3)}, embedding=None)])
    outbox = Outbox(robot.database, "robot-1")
    (batch,) = outbox.batches(inbox.position(outbox.store))
    found = batch_of(json.loads(json.dumps(batch_json(batch))))
    assert found == dataclasses.replace(batch, progress=(0, 0))
    for one, other in zip(found.memories, batch.memories, strict=True):
        assert one.embeddings.keys() == other.embeddings.keys()
        assert one.embedding is None or (one.embedding == other.embedding).all()
    inbox.receive(found)
    position = inbox.position(outbox.store)
    assert position_of(json.loads(json.dumps(position_json(position)))) == position


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"store": None}, "store must be text"),
        ({"until": [1]}, "batch: "),
        ({"whole": 1}, "batch: "),
        ({"gone": [[5, 3]]}, "rising runs"),
        ({"gone": [[1, 10**12]]}, "rising runs"),
        ({"memories": [{"time": "2026-01-01", "vectors": {"": "?"}}]}, r"memories\[0\]"),
        ({"memories": [{"time": "2026-01-01"}]}, r"memories\[0\]: id is missing"),
    ],
)
def test_a_wrong_batch_is_refused_with_its_field(
    stores: Open, change: dict[str, object], message: str
) -> None:
    robot = stores("robot")
    robot.add([sight(1)])
    outbox = Outbox(robot.database, "robot-1")
    (batch,) = outbox.batches(Inbox(robot.database).position(outbox.store))
    with pytest.raises(DataError, match=message):
        batch_of(batch_json(batch) | change)


def test_two_memories_of_one_id_are_refused(stores: Open) -> None:
    robot, target = stores("robot"), stores("target")
    robot.add([sight(1)])
    outbox, inbox = Outbox(robot.database, "robot-1"), Inbox(target.database)
    (batch,) = outbox.batches(inbox.position(outbox.store))
    twice: Batch = dataclasses.replace(batch, memories=[*batch.memories, *batch.memories])
    with pytest.raises(ValueError, match="its own id"):
        inbox.receive(twice)
    with pytest.raises(ValueError, match="robot name"):
        Outbox(robot.database, " ")
