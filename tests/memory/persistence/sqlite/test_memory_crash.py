"""Writers that are killed, and power that fails: no acknowledged memory is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from memory.persistence.sqlite import connection as connections
from memory.persistence.sqlite import places
from memory.persistence.sqlite.database import SqliteDatabase
from memory.persistence.sqlite.engine import SqliteEngine
from memory.query import Filter
from memory.types import Memory

PROGRAM = Path(__file__).with_name("crash_trials.py")


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """In RAM where there is such a folder: what a killed process wrote is there either way."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    yield folder / "store"
    shutil.rmtree(folder)


def run_trials(folder: Path, trials: int, seed: int) -> None:
    root = str(Path(__file__).parents[4])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(trials), str(seed)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["problems"] == []
    assert (found["trials"], found["lost"], found["reused"]) == (trials, 0, 0)


def test_killed_writers_lose_nothing_that_was_acknowledged(quick_folder: Path) -> None:
    run_trials(quick_folder, 40, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_killed_writers(quick_folder: Path) -> None:
    run_trials(quick_folder, 1000, seed=2)


#: Contents by name.
Files = dict[str, bytes]


class Event(NamedTuple):
    """What happened to a file: a write, a new length, a sync or a deletion.

    Attributes:
        what: ``"write"``, ``"truncate"``, ``"sync"`` or ``"delete"``.
        name: of the file.
        offset: of a write; the length for ``"truncate"``.
        data: of a write.
    """

    what: str
    name: str
    offset: int = 0
    data: bytes = b""


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    """Writers go through a file system of apsw that notes writes and syncs, in order.

    The statements and settings are the library's own; only the copy of SQLite is apsw's. Its file systems
    have no shared memory, so that the log's index is kept in the process by exclusive locking, which changes
    no write to a file.
    """
    apsw = pytest.importorskip("apsw", reason="the simulated power cut needs apsw")
    events: list[Event] = []

    class File(apsw.VFSFile):
        def __init__(self, base: str, name: Any, flags: list[int]) -> None:
            self.name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "").name
            super().__init__(base, name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:
            super().xWrite(data, offset)
            events.append(Event("write", self.name, offset, bytes(data)))

        def xTruncate(self, size: int) -> None:
            super().xTruncate(size)
            events.append(Event("truncate", self.name, size))

        def xSync(self, flags: int) -> None:
            super().xSync(flags)
            events.append(Event("sync", self.name))

    class System(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("recorder", "unix")

        def xOpen(self, name: Any, flags: list[int]) -> File:
            return File("unix", name, flags)

        def xDelete(self, name: str, sync: bool) -> None:
            super().xDelete(name, sync)
            events.append(Event("delete", Path(name).name))

    system = System()

    class Connection(apsw.Connection):
        """With the method of sqlite3 that apsw calls otherwise."""

        engine = SqliteEngine()

        def create_function(self, name: str, count: int, call: Any, *, deterministic: bool = False) -> None:
            self.create_scalar_function(name, call, count, deterministic=deterministic)

    def connect(file: Path, mode: connections.Mode) -> Any:
        opened = Connection(str(file), vfs="recorder")
        opened.execute("PRAGMA locking_mode = EXCLUSIVE")
        opened.execute("PRAGMA foreign_keys = ON")
        return opened

    monkeypatch.setattr(connections, "connect", connect)
    yield events
    system.unregister()


def after_power_cut(
    start: dict[str, bytes], events: list[Event], random: np.random.Generator
) -> dict[str, bytes]:
    """The files as a disk may have them: what was synced, and of the rest each sector by chance.

    An unsynced write may have reached the disk, in whole or in sectors of 512 bytes, or not at all, in any
    order.
    """
    files = {name: bytearray(data) for name, data in start.items()}
    last_sync = {event.name: at for at, event in enumerate(events) if event.what in ("sync", "delete")}
    for at, event in enumerate(events):
        file = files.setdefault(event.name, bytearray())
        sure = at < last_sync.get(event.name, -1)
        if event.what == "delete":
            files.pop(event.name)
        elif event.what == "truncate":
            if sure or random.random() < 0.5:
                del file[event.offset :]
        elif event.what == "write":
            fate = 1.0 if sure else random.random()
            for begin in range(0, len(event.data), 512):
                if fate > 2 / 3 or (fate > 1 / 3 and random.random() < 0.5):
                    piece = event.data[begin : begin + 512]
                    offset = event.offset + begin
                    file.extend(bytes(max(0, offset + len(piece) - len(file))))
                    file[offset : offset + len(piece)] = piece
    return {name: bytes(data) for name, data in files.items()}


class Recording(NamedTuple):
    """A writer's life.

    Attributes:
        start: the files before.
        events: everything that happened to them.
        acknowledged: how many events there had been when an operation returned, and the ids then.
    """

    start: Files
    events: list[Event]
    acknowledged: list[tuple[int, set[int]]]


def record(folder: Path, recorder: list[Event], *, synchronous: str = "FULL") -> Recording:
    """Add and remove memories in small and larger groups."""
    start = create_elsewhere(folder)
    acknowledged: list[tuple[int, set[int]]] = []
    there: set[int] = set()
    with SqliteDatabase.open(folder) as database:
        assert database._writer is not None
        database._writer.connection.execute(f"PRAGMA synchronous = {synchronous}")
        recorder.clear()
        for number in range(60):
            there = there | set(database.add([row_of(number, i) for i in range([1, 1, 5, 30][number % 4])]))
            acknowledged.append((len(recorder), there))
            if number % 10 == 9:
                gone = set(sorted(there)[:2])
                database.remove(sorted(gone))
                there = there - gone
                acknowledged.append((len(recorder), there))
        events = list(recorder)
    return Recording(start, events, acknowledged)


def lost_after(recording: Recording, cut: int, folder: Path, random: np.random.Generator) -> str:
    """Open what a power cut after so many events left; say what is wrong, nothing otherwise."""
    folder.mkdir()
    for name, data in after_power_cut(recording.start, recording.events[:cut], random).items():
        (folder / name).write_bytes(data)
    known = [set(), *(ids for at, ids in recording.acknowledged if at <= cut)][-1]
    following = [*(ids for at, ids in recording.acknowledged if at > cut), known][0]
    try:
        with SqliteDatabase.open(folder) as found:
            ids = set(found.ids().tolist())
            if set(found.ids(Filter(box=(-1, -1, 100, 100))).tolist()) != ids:
                return "not everything is found by its place"
            # The operation that was under way may be there as a whole, or not at all.
            if ids not in (known, following):
                return f"{len(known - ids)} of {len(known)} lost"
            for row in found.get(sorted(ids)):
                if row.caption != f"row {row.time_ns} {row.payload['offset']}":
                    return f"{row.caption} is at {row.time_ns}"
            if min(found.add([Memory(time_ns=0)])) <= max(ids, default=0):
                return "an id was used again"
            report = found.check()
            return "" if report.ok else str(report)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("checkpoint_pages", [8, 60, 4096])
def test_power_cuts_lose_nothing_that_was_acknowledged(
    tmp_path: Path, recorder: list[Event], checkpoint_pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CHECKPOINT_PAGES", checkpoint_pages)
    for name, value in (("TAIL", 40), ("BLOCK", 8), ("RUN", 128), ("SMALL_RUNS", 3)):
        monkeypatch.setattr(places, name, value)
    recording = record(tmp_path / "store", recorder)
    assert sum(event.what == "sync" for event in recording.events) >= 66
    if checkpoint_pages < 4096:
        assert any(event.name == "memory.db" for event in recording.events)
    monkeypatch.undo()
    random = np.random.default_rng(checkpoint_pages)
    cuts = [0, *random.integers(0, len(recording.events) + 1, 25).tolist(), len(recording.events)]
    for trial, cut in enumerate(cuts):
        assert lost_after(recording, cut, tmp_path / str(trial), random) == ""


def test_the_simulated_power_cut_finds_what_was_not_synced(
    tmp_path: Path, recorder: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = record(tmp_path / "store", recorder, synchronous="NORMAL")
    monkeypatch.undo()
    random = np.random.default_rng(0)
    cuts = random.integers(0, len(recording.events) + 1, 10).tolist()
    found = [lost_after(recording, cut, tmp_path / str(trial), random) for trial, cut in enumerate(cuts)]
    assert any("lost" in one for one in found)


def create_elsewhere(folder: Path) -> Files:
    """An empty store made by a process of its own, without the recorder; return its files."""
    code = (
        "import sys; from memory.persistence.sqlite.database import SqliteDatabase\n"
        "SqliteDatabase.open(sys.argv[1], dim=16).close()"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, cwd=Path(__file__).parents[4])
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "writer.lock"}


def row_of(number: int, offset: int) -> Memory:
    return Memory(
        time_ns=number,
        caption=f"row {number} {offset}",
        payload={"offset": offset},
        position=(number, offset, 0),
        embedding=np.random.default_rng(number).standard_normal(16),
    )
