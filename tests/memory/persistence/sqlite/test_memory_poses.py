"""Poses of many ids in a row against a dictionary."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import CorruptStoreError, UnknownMemoryError
from memory.persistence.poses import (
    POSE,
    POSE_COLUMNS,
    SPREAD,
    check_covariances,
    check_known,
    pack_covariance,
    unpack_covariance,
)
from memory.persistence.sqlite import poses
from memory.persistence.sqlite.database import SqliteDatabase
from memory.persistence.sqlite.migrations import migrate
from memory.types import Memory, check_covariance

IDS = st.lists(st.integers(1, 400) | st.integers(9990, 10_100), unique=True, min_size=1, max_size=200)


def open_plain() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    return connection


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = open_plain()
    yield opened
    opened.close()


def compare(connection: sqlite3.Connection, model: dict[int, np.ndarray]) -> None:
    ids = np.array([*range(405), *range(9980, 10_110)])
    expected = np.full((len(ids), POSE_COLUMNS), np.nan)
    for at, id in enumerate(ids.tolist()):
        expected[at] = model.get(id, expected[at])
    np.testing.assert_array_equal(poses.read(connection, ids, spread=True), expected)
    np.testing.assert_array_equal(poses.read(connection, ids), expected[:, :POSE])
    few = ids[::53][::-1]
    np.testing.assert_array_equal(poses.read(connection, few, spread=True), expected[::53][::-1])
    there, values = poses.scan(connection)
    assert there.tolist() == sorted(model)
    for id, value in zip(there.tolist(), values, strict=True):
        np.testing.assert_array_equal(value, model[id][:POSE])
    middle, _ = poses.scan(connection, 100, 10_000)
    assert middle.tolist() == [id for id in sorted(model) if 100 <= id <= 10_000]


@settings(deadline=None)
@given(st.lists(st.tuples(IDS, st.sampled_from(["bare", "spread", "append", "clear"])), max_size=6))
def test_what_is_written_is_read_and_nothing_else_changes(steps: list[tuple[list[int], str]]) -> None:
    connection = open_plain()
    random = np.random.default_rng(0)
    model: dict[int, np.ndarray] = {}
    for ids, how in steps:
        if how == "append":  # Consecutive ids that span several rows.
            ids = list(range(ids[0], ids[0] + 70 * len(ids))) if ids else []
        values = random.standard_normal((len(ids), POSE_COLUMNS))
        if how == "clear":
            poses.clear(connection, np.array(ids))
            model = {id: value for id, value in model.items() if id not in ids}
            continue
        if how == "spread":
            values[::3, POSE:] = np.nan
            poses.write(connection, np.array(ids), values)
        elif how == "bare":
            poses.write(connection, np.array(ids), values[:, :POSE])
        elif ids:
            poses.append(connection, ids[0], values[:, :POSE].tobytes())
        for id, value in zip(ids, values, strict=True):
            before = model.get(id, np.full(POSE_COLUMNS, np.nan))
            kept = before[POSE:] if how != "spread" else value[POSE:]
            model[id] = np.concatenate([value[:POSE], kept])
    compare(connection, model)
    poses.clear(connection, np.array(sorted(model), dtype=np.int64))
    assert connection.execute("SELECT count(*) FROM pose").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM spread").fetchone() == (0,)
    connection.close()


def test_the_first_that_is_not_there_is_named(connection: sqlite3.Connection) -> None:
    one, three = np.array([126]), np.array([126, 127, 128])
    poses.append(connection, 126, np.array([1.0, 2.0, 3.0, 4.0]).tobytes())
    np.testing.assert_array_equal(check_known(one, poses.read(connection, one)), [[1, 2, 3, 4]])
    with pytest.raises(UnknownMemoryError, match="id 127"):
        check_known(three, poses.read(connection, three))
    assert poses.read(connection, np.zeros(0, np.int64), spread=True).shape == (0, POSE_COLUMNS)


def test_a_row_of_another_length_is_said_to_be_damaged(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO pose (chunk, poses) VALUES (0, x'00')")
    for read in (
        lambda: poses.scan(connection),
        lambda: poses.read(connection, np.arange(100)),
        lambda: poses.read(connection, np.array([0])),
    ):
        with pytest.raises(CorruptStoreError, match="Restore a backup"):
            read()


def test_covariances_keep_their_bits_and_are_judged_like_single_ones() -> None:
    random = np.random.default_rng(0)
    factors = random.standard_normal((50, 3, 3))
    good = factors @ factors.transpose(0, 2, 1)
    good[7], good[8] = 0.0, np.diag([1e12, 1e-12, 0.0])
    packed = check_covariances(good, 50)
    for matrix, numbers in zip(good, packed, strict=True):
        np.testing.assert_array_equal(unpack_covariance(numbers), check_covariance(matrix))
        np.testing.assert_array_equal(pack_covariance(check_covariance(matrix)), numbers)
    almost = np.diag([1.0, 1.0, -1e-7])
    np.testing.assert_array_equal(unpack_covariance(check_covariances([almost], 1)[0]), almost)
    for wrong, said in (
        (np.diag([1.0, 1.0, -1e-5]), "semidefinite"),
        (np.triu(np.ones((3, 3))), "symmetric"),
        (np.full((3, 3), np.nan), "finite"),
    ):
        with pytest.raises(ValueError, match=said):
            check_covariance(wrong)
        with pytest.raises(ValueError, match=said):
            check_covariances([np.eye(3), wrong], 2)
    with pytest.raises(ValueError, match="must have shape"):
        check_covariances([np.eye(3)], 2)
    assert check_covariances(np.zeros((0, 3, 3)), 0).shape == (0, SPREAD)
    assert np.isnan(pack_covariance(None)).all()


def test_changes_tell_who_was_only_moved(tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path, dim=4) as database:
        ids = database.add([Memory(time_ns=i, embedding=np.eye(4)[i % 4]) for i in range(6)])
        start = database.generation
        database.repose(ids[:4], np.ones((4, 3)), np.zeros(4))
        (second,) = database.get(ids[1:2])
        changed = database.update([dataclasses.replace(second, embedding=np.ones(4))])
        database.remove(ids[2:3])
        (new,) = database.add([Memory(time_ns=9)])
        database.repose([new], np.ones((1, 3)), np.zeros(1))
        found = database.changes(start)
        assert found.changed.tolist() == [ids[0], ids[1], ids[3]]
        assert found.moved.tolist() == [ids[0], ids[3]]
        assert found.revised.tolist() == [ids[1]]
        assert (found.added.tolist(), found.removed.tolist()) == ([new], [ids[2]])
        # Taking a re-posing back is one, too.
        database.undo(changed)
        later = database.generation
        database.undo(database.repose(ids[3:5], np.zeros((2, 3)), np.zeros(2)))
        assert database.changes(later).moved.tolist() == ids[3:5]
        assert database.changes(later).revised.tolist() == []
        assert database.changes(database.generation).revised.tolist() == []
