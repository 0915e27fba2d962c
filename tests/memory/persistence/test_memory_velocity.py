"""Velocities of memories: stored to the bit, turned with the map, checked, and absent in old stores."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from memory import Filter, Memory, MemoryStore, Query
from memory.errors import CorruptStoreError
from memory.merging import fuse
from memory.merging.motion import Motion
from memory.persistence.sqlite.migrations import MIGRATIONS
from memory.sync import Inbox, Outbox, sync
from memory.sync.wire import batch_json, batch_of

DIM, S = 4, 10**9
FAST = (8.123456789012345, -0.1, 1e-17)


def cars(count: int = 3, **parts: object) -> list[Memory]:
    """Cars that move, and every other one without a known velocity."""
    return [
        Memory(
            time_ns=number * S,
            position=(float(number), 2.0, 0.0),
            yaw=0.3 * number - 1.0,
            label="Car",
            velocity=None if number % 2 else (FAST[0] + number, FAST[1], FAST[2]),
            **parts,
        )
        for number in range(count)
    ]


def test_it_is_kept_to_the_bit(store: MemoryStore) -> None:
    rows = cars(5)
    (one,) = store.add(rows[:1])
    ids = [one, *store.add(rows[1:])]
    assert [memory.velocity for memory in store.get(ids)] == [row.velocity for row in rows]
    assert [memory.velocity for memory in store.find(Filter(), newest_first=False)] == [
        row.velocity for row in rows
    ]
    known, unknown = store.get(ids[:2])
    assert known.speed_m_s == pytest.approx(math.hypot(8.123456789, 0.1))
    assert (known.moving, unknown.speed_m_s, unknown.moving) == (True, None, None)
    assert Memory(time_ns=0, velocity=(0.2, 0.2, 5.0)).moving is False
    assert store.explain(ids[0]).parts["speed_m_s"] == known.speed_m_s
    assert "it moved when it was last seen, at 8.1 m/s" in store.explain(ids[0]).reasons
    assert not any("m/s" in reason for reason in store.explain(ids[1]).reasons)
    assert store.check().ok


@pytest.mark.parametrize("wrong", [(1.0, 2.0), (1.0, 2.0, math.nan), "fast"])
def test_a_wrong_one_is_refused(wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match="velocity must"):
        Memory(time_ns=0, velocity=wrong)  # type: ignore[arg-type]


def test_it_turns_with_the_memory_and_back(store: MemoryStore) -> None:
    rows = cars(3)
    ids = store.add(rows)
    before = store.get(ids)
    turned = [row.yaw + math.pi / 2 for row in rows]
    operation = store.repose(ids, [row.position for row in rows], turned)
    first, second, third = store.get(ids)
    assert first.velocity == pytest.approx((-FAST[1], FAST[0], FAST[2]))
    assert second.velocity is None
    assert third.velocity == pytest.approx((-FAST[1], FAST[0] + 2, FAST[2]))
    # Moved without a turn, it stays to the bit.
    store.repose(ids, [(9.0, 9.0, 9.0)] * 3, turned)
    assert store.get(ids)[0].velocity == first.velocity
    store.undo(store.generation)
    store.undo(operation)
    assert [memory.velocity for memory in store.get(ids)] == [memory.velocity for memory in before]
    assert store.check().ok


def test_what_moved_and_what_stood_is_found(store: MemoryStore) -> None:
    rows = [Memory(time_ns=at, label="Car", velocity=each) for at, each in enumerate(
        [None, (0.39, 0.0, 3.0), (0.0, -0.4, 0.0), (1e-300, 0.0, 0.0), (1e200, 0.0, 0.0)]
    )]  # fmt: skip
    ids = store.add(rows)
    for moving, expected in ((True, [2, 4]), (False, [1, 3]), (None, [0, 1, 2, 3, 4])):
        wanted = [ids[at] for at in expected]
        found = store.find(Filter(moving=moving), newest_first=False)
        assert [memory.id for memory in found] == wanted
        assert store.database.ids(Filter(moving=moving)).tolist() == wanted
        assert sorted(hit.memory.id for hit in store.query(Query(moving=moving, k=9))) == wanted
        assert store.count(Filter(moving=moving)) == len(wanted)


def test_a_motion_turns_it() -> None:
    (car,) = cars(1)
    moved = Motion(math.pi / 2, 3.0, 4.0).memory(car)
    assert moved.velocity == pytest.approx((-FAST[1], FAST[0], FAST[2]))
    nowhere = dataclasses.replace(car, position=None)
    assert Motion(math.pi, 0.0, 0.0).memory(nowhere).velocity == pytest.approx((-FAST[0], -FAST[1], FAST[2]))


def test_undo_and_forgetting_bring_it_back(store: MemoryStore) -> None:
    ids = store.add(cars(2))
    before = store.get(ids)
    for change in (store.forget, lambda ids: store.mark(ids, "gone")):
        change(ids)
        store.undo(store.generation)
        assert store.get(ids) == before


def test_merged_it_is_that_of_the_latest() -> None:
    early, late = (dataclasses.replace(cars(1)[0], time_ns=at, id=at) for at in (5, 9))
    late = dataclasses.replace(late, velocity=(1.0, 2.0, 3.0))
    assert fuse([late, early]).velocity == (1.0, 2.0, 3.0)
    assert fuse([early, dataclasses.replace(late, velocity=None)]).velocity is None
    assert fuse([dataclasses.replace(early, velocity=None), late]).velocity == (1.0, 2.0, 3.0)


def test_it_travels_between_stores(store: MemoryStore, tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "robot", dim=3) as robot:
        robot.add(cars(3))
        outbox, inbox = Outbox(robot.database, "robot"), Inbox(store.database)
        (batch,) = outbox.batches(inbox.position(outbox.store))
        assert [memory.velocity for memory in batch_of(batch_json(batch)).memories] == [
            row.velocity for row in cars(3)
        ]
        sync(outbox, inbox)
        found = store.find(Filter(), newest_first=False)
        assert [memory.velocity for memory in found] == [row.velocity for row in cars(3)]
        store.align("robot", frame=Motion(math.pi / 2))
        (first, *_) = store.find(Filter(), newest_first=False)
        assert first.velocity == pytest.approx((-FAST[1], FAST[0], FAST[2]))
        store.align("robot", frame=Motion(math.pi / 2, clock_ns=5))
        (first, *_) = store.find(Filter(), newest_first=False)
        assert first.velocity == pytest.approx((-FAST[1], FAST[0], FAST[2]))
        store.align("robot", frame=Motion())
        assert store.find(Filter(), newest_first=False)[0].velocity == pytest.approx(FAST)


@pytest.fixture
def version_6(tmp_path: Path) -> Path:
    """As the release before wrote it: two cars that were merged, and a sign; a dog was forgotten."""
    folder = tmp_path / "old"
    folder.mkdir()
    data = (Path(__file__).parent / "stores" / "version_6.db.gz").read_bytes()
    (folder / "memory.db").write_bytes(gzip.decompress(data))
    return folder


def test_a_store_of_version_6_keeps_everything(version_6: Path) -> None:
    raw = sqlite3.connect(version_6 / "memory.db")
    assert raw.execute("PRAGMA user_version").fetchone() == (6,)
    sums = raw.execute("SELECT id, crc FROM memory").fetchall()
    assert [id for id, _ in sums] == [3, 4]
    with MemoryStore.open(version_6) as store:
        assert store.check().ok
        # Rows from before velocities keep their checksums.
        assert raw.execute("SELECT id, crc FROM memory").fetchall() == sums
        raw.close()
        car, sign = store.get([4, 3])
        assert (car.label, car.count, car.velocity, car.moving) == ("Car", 2, None, None)
        assert (sign.label, sign.caption, sign.state) == ("Straße", "日本の看板", "gone")
        assert car.payload["size_m"] == [4.2, 1.8, 1.5]
        # Its log still gives back what it holds.
        store.undo(5)
        (dog,) = store.find(Filter(labels=["dog"]))
        assert (dog.position, dog.velocity, dog.importance) == ((4.0, 4.0, 0.0), None, 0.4)
        store.undo(3)
        store.undo(2)
        assert [memory.time_ns for memory in store.get([1, 2])] == [10 * S, 20 * S]
        store.add(cars(3))
        assert store.check().ok
    raw = sqlite3.connect(version_6 / "memory.db")
    assert raw.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert raw.execute("SELECT crc, velocity FROM memory WHERE id = 3").fetchone()[1] is None
    assert dict(raw.execute("SELECT id, crc FROM memory").fetchall()).keys() >= {3}
    raw.close()
    with MemoryStore.open(version_6, readonly=True) as store:
        assert store.find(Filter(labels=["Car"]))[2].velocity == (FAST[0] + 2, *FAST[1:])


def test_a_repair_keeps_rows_without_and_with_velocities(version_6: Path) -> None:
    """Rows of the old schema end before the new column; they are found by their checksums alone."""
    with MemoryStore.open(version_6) as store:
        ids = store.add(cars(40))
        before = store.get([3, 4, *ids])
    data = (version_6 / "memory.db").read_bytes()
    at = data.index(json.dumps(FAST)[:-1].encode())
    (version_6 / "memory.db").write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    with MemoryStore.open(version_6) as store:
        with pytest.raises(CorruptStoreError, match=f"memory {ids[0]} "):
            store.get(ids[:1])
        assert not store.check().ok
        report = store.check(repair=True)
        assert report.ok
        assert not report.lost
        assert "one flipped bit was corrected in each of 1 rows" in str(report)
        assert store.get([3, 4, *ids]) == before


def test_a_changed_velocity_is_noticed(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=DIM) as store:
        ids = store.add(cars(2))
    raw = sqlite3.connect(tmp_path / "memory.db")
    raw.execute("UPDATE memory SET velocity = '[1, 2, 3, 0]'")
    raw.commit()
    raw.close()
    with MemoryStore.open(tmp_path) as store:
        for id in ids:
            with pytest.raises(CorruptStoreError, match=f"memory {id} "):
                store.get([id])
        assert len(store.check().problems) >= 2


def test_random_velocities_agree_with_numpy(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with MemoryStore.open(tmp_path, dim=DIM) as store:
        rows = [
            Memory(
                time_ns=0,
                position=(0, 0, 0),
                yaw=float(yaw),
                velocity=tuple(random.normal(0, 10, 3).tolist()),
            )
            for yaw in random.uniform(-4, 4, 50)
        ]
        ids = store.add(rows)
        yaws = random.uniform(-4, 4, 50)
        store.repose(ids, np.zeros((50, 3)), yaws)
        for row, yaw, found in zip(rows, yaws, store.get(ids), strict=True):
            assert found.velocity == pytest.approx(Motion(yaw - row.yaw).turn() @ row.velocity)
