"""Who writes, how far it came, and what becomes of a file that is taken away under it."""

from __future__ import annotations

import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.errors import StoreError, StoreLockedError, StoreReadOnlyError
from memory.persistence.log import journal
from memory.persistence.sqlite.database import SqliteDatabase
from memory.persistence.sqlite.lock import Acknowledgement, WriterLock
from memory.store import MemoryStore
from memory.types import Memory

Kill = Callable[[Path, int], int]


def test_a_forked_worker_does_not_keep_the_lock_of_a_killed_writer(tmp_path: Path) -> None:
    listen, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Of forking beside threads; these only wait.
        writer = os.fork()
        if writer == 0:
            try:
                held = WriterLock(tmp_path / "lock")
                worker = os.fork()
                if worker:
                    os.write(tell, f"{worker}\n".encode())
                time.sleep(3600 if held else 0)
            finally:
                os._exit(0)
    worker = int(os.read(listen, 20))
    try:
        with pytest.raises(StoreLockedError, match=f"process {writer}"):
            WriterLock(tmp_path / "lock")
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.kill(worker, 0)  # It lives.
        deadline = time.monotonic() + 300
        while True:  # It may just be closing its copy of the descriptor.
            try:
                WriterLock(tmp_path / "lock").release()
                break
            except StoreLockedError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    finally:
        os.kill(worker, signal.SIGKILL)


def test_what_a_killed_writer_acknowledged_is_known(tmp_path: Path, killed_store: Kill) -> None:
    last = killed_store(tmp_path / "s", 7)
    lock = WriterLock(tmp_path / "s" / "writer.lock")
    with SqliteDatabase.open(tmp_path / "s", readonly=True) as database:
        assert lock.last_acknowledgement is not None
        assert (lock.last_acknowledgement.generation, lock.last_acknowledgement.next_id) == (
            database.generation,
            last + 1,
        )
    lock.release(whole=False)
    with SqliteDatabase.open(tmp_path / "s") as database:
        assert database.remarks == []
        assert database.check().ok
    lock = WriterLock(tmp_path / "s" / "writer.lock")
    assert lock.last_acknowledgement is not None
    lock.release()


def test_a_damaged_note_says_nothing(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path / "lock")
    lock.acknowledge(Acknowledgement("name", 3, 4))
    lock.release(whole=False)
    data = (tmp_path / "lock").read_bytes()
    for at in range(16, len(data) - 1):
        (tmp_path / "lock").write_bytes(data[:at] + b"x" + data[at + 1 :])
        lock = WriterLock(tmp_path / "lock")
        assert lock.last_acknowledgement is None or lock.last_acknowledgement == Acknowledgement("name", 3, 4)
        lock.release(whole=False)


def test_an_older_copy_in_the_place_of_a_killed_writers_file_is_told(
    tmp_path: Path, killed_store: Kill
) -> None:
    folder = tmp_path / "s"
    killed_store(folder, 3)
    SqliteDatabase.open(folder).close()
    shutil.copy(folder / "memory.db", tmp_path / "older")
    last = killed_store(folder, 4)
    for name in ("memory.db-wal", "memory.db-shm"):
        (folder / name).unlink()
    shutil.copy(tmp_path / "older", folder / "memory.db")
    with MemoryStore.open(folder) as store:
        (said,) = store.database.remarks
        assert "operations 4 to 7 were acknowledged, but are missing from the file: an older copy" in said
        assert said in str(store.check())
        assert store.add([Memory(time_ns=0)]) == [last + 1], "ids that were given are not given again"
        report = store.check(repair=True)
        assert report.ok
        assert said in str(report.lost)
        assert store.check().ok


def test_a_file_that_is_replaced_under_a_writer_gets_no_memory(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with SqliteDatabase.open(folder, dim=4) as database:
        database.add([Memory(time_ns=1)])
        database.backup(tmp_path / "backup")
        database.add([Memory(time_ns=2)])
        os.replace(tmp_path / "backup" / "memory.db", folder / "memory.db")
        for _ in range(2):
            with pytest.raises(StoreError, match=r"replaced, renamed or removed"):
                database.add([Memory(time_ns=3)])


@pytest.mark.skipif(os.geteuid() == 0 and not hasattr(os, "seteuid"), reason="root reads everything")
@pytest.mark.parametrize("name", ["memory.db", "config.json"])
def test_files_that_cannot_be_read_are_named(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("open") / "store"
    with MemoryStore.open(folder, dim=4) as store:
        store.config.save(folder)
    for path in (folder, *folder.parents):
        if path != Path("/tmp") and path != Path("/") and os.access(path, os.W_OK):
            path.chmod(0o755)
    (folder / name).chmod(0o000)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(StoreReadOnlyError, match=name):
            MemoryStore.open(folder, readonly=True)
    finally:
        if root:
            os.seteuid(0)


def test_a_clock_that_goes_backwards_changes_nothing_but_the_times_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(2_000_000_000_000_000_000, 0, -86_400_000_000_000))
    monkeypatch.setattr(journal.time, "time_ns", lambda: next(clock))
    with MemoryStore.open(tmp_path, dim=16) as store:
        for number in range(5):
            store.add([Memory(time_ns=number)])
        gone = store.forget([2])
        assert [entry.generation for entry in store.log()] == [1, 2, 3, 4, 5, 6]
        assert store.database.changes(3).added.tolist() == [4, 5]
        store.undo(gone)
        store.observe([Memory(time_ns=9)])
        assert store.check().ok
    with MemoryStore.open(tmp_path) as store:
        times = [entry.time_ns for entry in store.log()]
        assert times == sorted(times, reverse=True)
        # Everything is as old as the oldest that follows it: nothing young loses its undoing.
        assert store.trim(keep_ns=10 * 86_400_000_000_000, keep_operations=2).generation <= len(times) - 2
        assert store.check().ok
