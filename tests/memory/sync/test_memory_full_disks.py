"""Disks that are full, of a robot, of the shared store and of a server: real ones, of a few megabytes."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from memory import Memory, MemoryStore
from memory.errors import StoreError, StoreFullError
from memory.persistence.postgres import server
from memory.sync import Inbox, Outbox, sync

DIM = 64


class Disk:
    """A small disk, and a file on it that can be deleted to make room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def leave(self, room: int) -> None:
        """Fill it up but for so many bytes."""
        left = os.statvfs(self.folder)
        self._ballast.write_bytes(bytes(left.f_bavail * left.f_frsize - room))

    def free(self) -> None:
        """Delete what only fills it."""
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Disk]]:
    """Makes small disks; only root can."""
    made: list[Path] = []

    def make(size: str) -> Disk:
        folder = Path("/tmp") / f"sparsight-disk-{os.getpid()}-{len(made)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            folder.rmdir()
            pytest.skip(f"no disk can be mounted: {done.stderr.strip()}")
        made.append(folder)
        return Disk(folder)

    if os.geteuid() or shutil.which("mount") is None:
        pytest.skip("only root can mount a disk")
    yield make
    for folder in made:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def sights(first: int, end: int) -> list[Memory]:
    """Things that a robot saw."""
    payload = {"text": "x" * 500}
    return [
        Memory(time_ns=at, label=f"thing {at}", embedding=np.full(DIM, 1.0 + at), payload=payload)
        for at in range(first, end)
    ]


def labels(store: MemoryStore) -> list[str]:
    """Of everything in a store."""
    memories = store.database.get(store.database.ids().tolist())
    return sorted(memory.label for memory in memories)


def test_a_robot_whose_disk_is_full_still_tells_what_it_has(
    tmp_path: Path, disk: Callable[[str], Disk]
) -> None:
    small = disk("8m")
    with (
        MemoryStore.open(small.folder / "robot", dim=DIM) as robot,
        MemoryStore.open(tmp_path / "shared", dim=DIM) as shared,
    ):
        robot.add(sights(0, 100))
        small.leave(300_000)
        kept, full = 100, False
        while not full and kept < 20_000:
            try:
                robot.add(sights(kept, kept + 20))
                kept += 20
            except StoreFullError:
                full = True
        assert full
        assert 100 < kept < 20_000
        assert sync(Outbox(robot.database, "robot"), Inbox(shared.database)).added == kept
        assert labels(shared) == labels(robot) == sorted(f"thing {at}" for at in range(kept))
        small.free()
        robot.add(sights(kept, kept + 20))
        assert sync(Outbox(robot.database, "robot"), Inbox(shared.database)).added == 20
        assert labels(shared) == labels(robot)
        assert robot.check().ok
    with MemoryStore.open(small.folder / "robot", readonly=True) as robot:
        assert len(robot) == kept + 20


def send_until_full(robot: MemoryStore, shared: MemoryStore, small: Disk) -> None:
    """Send to a full disk, then with room again; nothing is lost, doubled or half there."""
    receiver = Inbox(shared.database)
    with pytest.raises(StoreFullError, match="no room left"):
        sync(Outbox(robot.database, "robot", portion=50), receiver)
    there = labels(shared)
    assert 0 < len(there) < len(robot)
    assert len(there) % 50 == 0  # Batches are there whole, or not.
    assert shared.check().ok
    with pytest.raises(StoreFullError):
        sync(Outbox(robot.database, "robot", portion=500), receiver)
    assert labels(shared) == there
    small.free()
    report = sync(Outbox(robot.database, "robot", portion=50), receiver)
    assert report.added == len(robot) - len(there)
    assert labels(shared) == labels(robot)
    assert shared.check().ok


def test_a_shared_folder_on_a_full_disk(tmp_path: Path, disk: Callable[[str], Disk]) -> None:
    small = disk("16m")
    with (
        MemoryStore.open(tmp_path / "robot", dim=DIM) as robot,
        MemoryStore.open(small.folder / "shared", dim=DIM) as shared,
    ):
        robot.add(sights(0, 1000))
        small.leave(1_200_000)
        send_until_full(robot, shared, small)


@pytest.mark.slow
def test_a_server_whose_tables_are_on_a_full_disk(
    tmp_path: Path,
    disk: Callable[[str], Disk],
    postgresql: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import psycopg

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small, address = disk("32m"), postgresql()
    user = pwd.getpwnam(server.OTHER_USER)
    os.chown(small.folder, user.pw_uid, user.pw_gid)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{small.folder}'")
        try:
            there = f"{address}{quote(' -cdefault_tablespace=small', safe='')}"
            with (
                MemoryStore.open(tmp_path / "robot", dim=DIM) as robot,
                MemoryStore.open(there, dim=DIM) as shared,
            ):
                robot.add(sights(0, 2000))
                small.leave(2_000_000)
                send_until_full(robot, shared, small)
        finally:
            (schema,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
            connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
            connection.execute("DROP TABLESPACE small")


@pytest.mark.slow
def test_a_server_whose_log_is_on_a_full_disk(
    tmp_path: Path,
    disk: Callable[[str], Disk],
    server_folder: Callable[[], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends at once, as PostgreSQL does, and goes on when there is room: with all that it acknowledged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, small = server_folder(), disk("160m")
    user = pwd.getpwnam(server.OTHER_USER)
    settings = {"max_wal_size": "32MB", "min_wal_size": "32MB"}
    address = server.start(folder, settings=settings)
    data = Path(server.info(folder)["data_dir"])
    server.stop(folder)
    shutil.copytree(data / "pg_wal", small.folder / "pg_wal")
    for each in [small.folder, *small.folder.rglob("*")]:
        os.chown(each, user.pw_uid, user.pw_gid)
    os.chmod(small.folder / "pg_wal", 0o700)
    shutil.rmtree(data / "pg_wal")
    (data / "pg_wal").symlink_to(small.folder / "pg_wal")
    try:
        assert server.start(folder, settings=settings) == address
        with (
            MemoryStore.open(tmp_path / "robot", dim=DIM) as robot,
            MemoryStore.open(address, dim=DIM) as shared,
        ):
            small.leave(1_000_000)
            acknowledged, failed = 0, False
            for at in range(0, 40_000, 500):
                robot.add(sights(at, at + 500))
                try:
                    acknowledged += sync(Outbox(robot.database, "robot"), Inbox(shared.database)).added
                except StoreError:
                    failed = True
                    break
            assert failed
            assert acknowledged
            small.free()
            deadline = time.monotonic() + 300.0
            while True:
                with contextlib.suppress(StoreError):
                    server.start(folder, settings=settings)
                with contextlib.suppress(StoreError):
                    assert len(shared) >= acknowledged
                    break
                assert time.monotonic() < deadline
                time.sleep(0.2)
            sync(Outbox(robot.database, "robot"), Inbox(shared.database))
            assert labels(shared) == labels(robot)
            assert shared.check().ok
    finally:
        server.stop(folder)
