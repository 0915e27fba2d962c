"""Backups of a store on a real server, and the way back: by a dump, and to any moment."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
import pytest

from memory import Memory, MemoryStore, Query
from memory.cli import main
from memory.errors import StoreError
from memory.persistence.postgres import dump, server

DIM = 8


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def things(count: int, label: str = "cup") -> list[Memory]:
    random = np.random.default_rng(0)
    return [
        Memory(
            time_ns=at, position=(at, 0, 0), label=label, caption="a naïve \\ 'cup'", payload={"at": at},
            embedding=random.normal(size=DIM),
        )
        for at in range(count)
    ]  # fmt: skip


def contents(store: MemoryStore) -> list[object]:
    """Everything, comparable."""
    found = store.get(store.database.ids())
    return [
        [(m.id, m.label, m.caption, m.payload, m.position, m.embedding.tobytes()) for m in found],
        store.log(),
        [hit.memory.id for hit in store.query(Query(text="naive cups", k=5))],
        store.config,
    ]


def test_a_dump_is_restored_to_the_bit(
    postgresql: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    address = postgresql()
    with psycopg.connect(address) as connection:
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        (name,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
    folder = Path(data).parents[3]
    monkeypatch.setenv("PATH", str(server.programs(folder)), prepend=os.pathsep)
    with MemoryStore.open(address, dim=DIM) as store:
        ids = store.add(things(30))
        store.forget(ids[:3])
        store.settle()
        before = contents(store)
        assert main(["backup", address, str(tmp_path / "copy")]) == 0
        assert "27 memories" in capsys.readouterr().out
        with pytest.raises(FileExistsError):
            store.backup(tmp_path / "copy")
        store.add(things(2, "later"))
    file = tmp_path / "copy" / dump.FILE_NAME
    assert file.stat().st_mode & 0o077 == 0  # Nobody else reads it.
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {name} CASCADE")
    subprocess.run([dump.program("pg_restore"), f"--dbname={address}", str(file)], check=True)
    with MemoryStore.open(address) as store:
        assert contents(store) == before
        store.undo(2)
        assert len(store) == 30
        assert store.add(things(1)) == [31]
        assert store.check().ok


def test_what_lacks_is_named(
    postgresql: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server, "default_folder", lambda: tmp_path)
    with (
        MemoryStore.open(postgresql(), dim=DIM) as store,
        pytest.raises(StoreError, match="postgresql-client"),
    ):
        store.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def as_server(words: list[str], **more: object) -> str:
    """What a program of the server says, run by the user that the server is run by."""
    if os.geteuid() == 0:
        user = pwd.getpwnam(server.OTHER_USER)
        more |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_server_goes_back_to_any_moment(server_folder: Callable[[], Path]) -> None:
    folder = server_folder()
    kept = folder / "kept"
    address = server.start(folder, settings={"archive_mode": "on", "wal_level": "replica"})
    tools = server.programs(folder)
    assert tools is not None
    as_server(["mkdir", str(kept)])
    try:
        with psycopg.connect(address, autocommit=True) as connection:
            command = f"test ! -f {kept}/%f && cp %p {kept}/%f"
            connection.execute(f"ALTER SYSTEM SET archive_command = '{command}'".encode())
            connection.execute("SELECT pg_reload_conf()")
        with MemoryStore.open(address, dim=DIM) as store:
            store.add(things(20))
            base = folder / "base"
            as_server(
                [
                    str(tools / "pg_basebackup"),
                    f"--dbname={address}",
                    f"--pgdata={base}",
                    "--checkpoint=fast",
                ],
                cwd=folder,
            )
            lost = store.add(things(5, "later"))
            before = contents(store)
            with psycopg.connect(address, autocommit=True) as connection:
                (moment,) = connection.execute("SELECT clock_timestamp()::text").fetchone() or ("",)
                time.sleep(0.05)
                store.forget(lost, secure=True, reason="by mistake")
                store.add(things(1))
                connection.execute("SELECT pg_switch_wal()")
                for _ in range(200):
                    sql = "SELECT last_archived_wal IS NOT NULL, failed_count FROM pg_stat_archiver"
                    done = connection.execute(sql).fetchone()
                    (waiting,) = connection.execute(
                        "SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready'"
                    ).fetchone() or (1,)
                    if done and done[0] and not waiting:
                        break
                    time.sleep(0.05)
    finally:
        server.stop(folder)
    # The data are gone; what is left are the base backup and the log that was archived.
    data = Path(server.info(folder)["data_dir"])
    shutil.rmtree(data)
    as_server(["mv", str(base), str(data)])
    settings = f"""
        restore_command = 'cp {kept}/%f %p'
        recovery_target_time = '{moment}'
        recovery_target_action = 'promote'
    """
    as_server(
        ["sh", "-c", f"cat >> {data}/postgresql.auto.conf && touch {data}/recovery.signal"], input=settings
    )
    assert server.start(folder) == address
    try:
        for _ in range(100):
            with psycopg.connect(address) as connection:
                if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,):
                    break
            time.sleep(0.05)
        with MemoryStore.open(address) as store:
            assert contents(store) == before
            assert len(store) == 25
            assert store.add(things(1)) == [26]
            assert store.check().ok
    finally:
        server.stop(folder)
