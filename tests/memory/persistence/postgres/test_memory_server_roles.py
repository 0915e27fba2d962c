"""Readers and writers of a store on a real server: what row-level security lets them do."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore, Query
from memory.errors import StoreError, StoreReadOnlyError
from memory.merging.motion import Motion
from memory.persistence.postgres import access, images, schema
from memory.persistence.postgres.upkeep import Upkeep, with_user
from memory.query import Filter
from memory.types import Visit

DIM = 4
_ROLES = itertools.count()


@pytest.fixture
def address(postgresql: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return postgresql()


def thing(label: str, map_id: str = "hall", **more: object) -> Memory:
    return Memory(time_ns=1, position=(1, 2, 0), label=label, map_id=map_id, embedding=np.eye(DIM)[0], **more)


def upkeep(store: MemoryStore) -> Upkeep:
    assert isinstance(store.database, Upkeep)
    return store.database


def let_in(store: MemoryStore, **more: object) -> str:
    """The address of a new role."""
    found = upkeep(store).grant(f"robot-{next(_ROLES)} of Ä", **more)
    assert found is not None
    return found


def test_a_writer_changes_only_what_is_its_own(address: str) -> None:
    with MemoryStore.open(address, dim=DIM) as owner:
        (first,) = owner.add([thing("of the owner")])
        one, other = let_in(owner, writes=True), let_in(owner, writes=True)
        with MemoryStore.open(one) as mine, MemoryStore.open(other) as theirs:
            (own,) = mine.add([thing("cup", visits=(Visit(1, 2, 2),), count=2)])
            (foreign,) = theirs.add([thing("cup", embeddings={"other": np.ones(3)})])
            assert {hit.memory.id for hit in mine.query(Query(text="cup", k=5))} == {own, foreign}
            for id in (first, foreign):
                with pytest.raises(StoreReadOnlyError, match=f"memory {id} was added by"):
                    mine.forget([id])
                with pytest.raises(StoreReadOnlyError, match="was added by"):
                    mine.mark([id], "gone")
                with pytest.raises(StoreReadOnlyError, match="was added by"):
                    mine.repose([id], [(0, 0, 0)], [0.0])
            # That it was seen again anybody may say.
            mine.database.see({foreign: (Visit(5, 6, 1),)})
            mine.flush()
            assert theirs.get([foreign])[0].count == 2
            done = mine.forget([own])
            mine.undo(done)
            assert mine.get([own])[0].visits == (Visit(1, 2, 2),)
            mine.repose([own], [(5, 5, 5)], [0.0])
            mine.mark([own], "gone")
            # Put back by another it is still the robot's.
            done = owner.forget([own])
            owner.undo(done)
            mine.forget([own])
            with pytest.raises(StoreReadOnlyError):
                mine.forget([foreign], secure=True)
        assert owner.check().ok
        assert owner.count(Filter(labels=["cup"])) == 1


def test_a_role_sees_the_maps_that_it_was_given(address: str) -> None:
    with MemoryStore.open(address, dim=DIM) as owner:
        hall, yard = owner.add([thing("trolley"), thing("gate", "yard")])
        owner.mark([hall, yard], "moved")
        done = owner.forget(owner.add([thing("secret", "yard")]))
        with MemoryStore.open(let_in(owner, maps=["hall"]), readonly=True) as reader:
            assert [hit.memory.id for hit in reader.query(Query(embedding=np.eye(DIM)[0], k=9))] == [hall]
            assert reader.find(Filter(text="gate")) == []
            assert reader.maps() == ["hall"]
            assert len(reader) == 1
            with reader.database._read() as connection:
                for table in ("memory", "embedding", "log_row"):
                    rows = connection.execute(f"SELECT id FROM {table}").fetchall()
                    assert {id for (id,) in rows} == {hall}, table
                (seen,) = connection.execute(
                    "SELECT count(*) FROM log_row WHERE generation = ?", (done,)
                ).fetchone()
                assert seen == 0
            with pytest.raises(StoreReadOnlyError), reader.database._read() as connection:
                connection.execute("SELECT * FROM memory_1")
            with pytest.raises(StoreReadOnlyError), reader.database._read() as connection:
                connection.execute("SELECT * FROM access")
        with MemoryStore.open(let_in(owner, writes=True, maps=["hall"])) as writer:
            (own,) = writer.add([thing("mine")])
            with pytest.raises(StoreReadOnlyError, match="row-level security"):
                writer.add([thing("there", "yard")])
            # Rows of the log that it does not see are numbered too.
            writer.undo(writer.forget([own]))
            with pytest.raises(StoreReadOnlyError, match="owner"):
                writer.check()
        assert owner.check().ok


def test_no_statement_of_a_writer_gets_around_it(address: str) -> None:
    with MemoryStore.open(address, dim=DIM) as owner:
        (foreign,) = owner.add([thing("of the owner")])
        with MemoryStore.open(let_in(owner, writes=True)) as writer:
            (own,) = writer.add([thing("mine")])
            for sql in (
                f"UPDATE memory SET writer = session_user WHERE id = {foreign}",
                f"UPDATE memory SET writer = 'postgres' WHERE id = {own}",
                f"UPDATE memory SET label = 'x', writer = session_user WHERE id = {foreign}",
                f"DELETE FROM memory WHERE id = {foreign}",
                f"DELETE FROM memory_1 WHERE id = {foreign}",
                "UPDATE log SET operation = 'x'",
                "INSERT INTO log SELECT 9, 1, 'x', 1, 1, NULL, '{}', 1, 1, 'postgres' FROM log LIMIT 1",
                "INSERT INTO log_row (row, generation, id, what, map_id) VALUES (99, 1, 1, 'seen', 'yard')",
                "INSERT INTO access VALUES (session_user, true, NULL)",
                "UPDATE meta SET value = 'x'",
                "ALTER TABLE memory DISABLE ROW LEVEL SECURITY",
                # A function's names mean the store's tables, whatever lies before them on the path.
                "CREATE TEMPORARY TABLE memory (id bigint); SET LOCAL search_path = pg_temp, public;"
                f" DELETE FROM {address.split('%3D')[1].split('%2C')[0]}.memory WHERE id = {foreign}",
            ):
                with pytest.raises((StoreReadOnlyError, StoreError)):
                    writer.database._write(lambda connection, sql=sql: connection.raw.execute(sql))
            for sql in (
                f"DELETE FROM embedding WHERE id = {foreign}",
                f"UPDATE embedding SET half = half WHERE id = {foreign}",
                "DELETE FROM log_row WHERE writer <> session_user",
            ):
                gone = writer.database._write(
                    lambda connection, sql=sql: connection.raw.execute(sql).rowcount
                )
                assert gone == 0, sql
        assert owner.get([foreign])[0].label == "of the owner"
        assert owner.check().ok


def test_who_is_revoked_does_nothing_any_more(address: str) -> None:
    with MemoryStore.open(address, dim=DIM) as owner:
        robot = let_in(owner, writes=True)
        role = upkeep(owner).roles()[0].role
        store = MemoryStore.open(robot)
        store.add([thing("cup")])
        assert upkeep(owner).revoke(role)
        with pytest.raises(StoreReadOnlyError):
            store.add([thing("cup")])
        with pytest.raises(StoreReadOnlyError):
            store.get([1])
        with pytest.raises(StoreReadOnlyError):
            store.close()
        with pytest.raises(StoreReadOnlyError):
            MemoryStore.open(robot)
        assert not upkeep(owner).revoke(role)
        assert upkeep(owner).roles() == []
        # The role is there, with its password: it may be let in again, and then read only.
        assert upkeep(owner).grant(role) is None
        with MemoryStore.open(robot, readonly=True) as store:
            assert len(store) == 1
        with pytest.raises(ValueError, match="63 bytes"):
            upkeep(owner).grant("ä" * 40)
        with pytest.raises(ValueError, match="owns"):
            upkeep(owner).grant("postgres")


def test_an_address_for_another_user_is_the_same_otherwise() -> None:
    found = with_user("postgresql://a:b@h:5/d?options=-csearch_path%3Dx%2Cpublic", "r/1", "p@:w")
    assert found == "postgresql://r%2F1:p%40%3Aw@h:5/d?options=-csearch_path%3Dx%2Cpublic"


def test_only_the_owner_says_how_maps_lie_and_whom_to_trust(address: str) -> None:
    with MemoryStore.open(address, dim=DIM) as owner:
        mapped = thing("cup", payload={"seen_by": {"robot-7": [1, 1, 1]}})
        with MemoryStore.open(let_in(owner, writes=True)) as robot:
            (own,) = robot.add([mapped])
            with pytest.raises(StoreReadOnlyError):
                robot.trust("robot-8", 0.0)
            with pytest.raises(StoreReadOnlyError):
                robot.align("robot-7", frame=Motion(1.0, 2.0, 3.0))
            with pytest.raises(StoreReadOnlyError):
                robot.set_area("kitchen", box=(0, 0, 3, 3))
            named = owner.set_area("kitchen", box=(0, 0, 3, 3))
            assert robot.count(Filter(area="kitchen")) == 1
            trusted = owner.trust("robot-7", 0.2)
            aligned = owner.align("robot-7", frame=Motion(1.0, 2.0, 3.0)).operation
            for operation in (trusted, aligned, named):
                with pytest.raises(StoreReadOnlyError):
                    robot.undo(operation)
            undone = owner.undo(trusted)
            with pytest.raises(StoreReadOnlyError):
                robot.undo(undone)
            # What it did itself it takes back as ever, and what the owner did to what is its own.
            robot.undo(robot.undo(robot.forget([own])))
            assert len(robot) == 0
            assert robot.database.frames() == {("robot-7", "hall"): Motion(1.0, 2.0, 3.0)}
            assert robot.database.trusts() == {}
        owner.undo(undone)
        assert owner.database.trusts() == {"robot-7": 0.2}


def test_a_store_from_before_areas_guards_them_after_its_migration(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This release writes the columns of later migrations, so those come first here.
    chain = (*schema.MIGRATIONS[:6], *schema.MIGRATIONS[7:], schema.MIGRATIONS[6])
    monkeypatch.setattr(schema, "MIGRATIONS", chain)
    with monkeypatch.context() as before:
        before.setattr(schema, "MIGRATIONS", chain[:-1])
        with MemoryStore.open(address, dim=DIM) as owner:
            owner.add([thing("cup")])
            robot_address = let_in(owner, writes=True)
    with MemoryStore.open(address) as owner, MemoryStore.open(robot_address) as robot:
        with pytest.raises(StoreReadOnlyError):
            robot.set_area("kitchen", box=(0, 0, 3, 3))
        named = owner.set_area("kitchen", box=(0, 0, 3, 3))
        with pytest.raises(StoreReadOnlyError):
            robot.undo(named)
        assert robot.count(Filter(area="kitchen")) == 1


def test_a_writer_of_before_velocities_stores_them_after_the_migration(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:7])
        columns = tuple(name for name in images.COLUMNS if name != "velocity")
        before.setattr(images, "COLUMNS", columns)
        before.setattr(images, "SCALARS", images.SCALARS[:-1])
        before.setattr(access, "_SIGNED", {**access._SIGNED, "memory": columns})
        with MemoryStore.open(address, dim=DIM) as owner:
            (old,) = owner.add([thing("cup")])
            robot_address = let_in(owner, writes=True)
    fast = dataclasses.replace(thing("car"), velocity=(9.0, 1.0, 0.0))
    with MemoryStore.open(address) as owner, MemoryStore.open(robot_address) as robot:
        (id,) = robot.add([fast])
        assert [memory.velocity for memory in owner.get([old, id])] == [None, (9.0, 1.0, 0.0)]
        change = f"UPDATE memory SET velocity = '[0, 0, 0, 0]' WHERE id = {old}"
        with pytest.raises(StoreError, match=f"memory {old} was added by"):
            robot.database._write(lambda connection: connection.raw.execute(change))
        assert owner.get([old])[0].velocity is None
