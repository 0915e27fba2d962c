"""A store that others read, that is erased and that is copied."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from cups import DIM, axis, cup, ids_of

from memory.config import StoreConfig
from memory.errors import (
    StoreReadOnlyError,
)
from memory.query import Filter, Query
from memory.store import MemoryStore


def test_a_backup_has_the_settings_and_no_caches(tmp_path: Path) -> None:
    config = StoreConfig(capacity=7, index_from=2)
    told: list[tuple[int, int]] = []
    with MemoryStore.open(tmp_path / "store", dim=DIM, config=config) as store:
        store.observe([cup(), cup(1, 9.0)])
        store.query(Query(embedding=axis(0)))
    with MemoryStore.open(tmp_path / "store", readonly=True) as reader:
        assert {file.name for file in reader.folder.iterdir()} > {"config.json", "indexes", "reservoir.npz"}
        file = reader.backup(tmp_path / "copy", lambda *entry: told.append(entry))
    assert file == tmp_path / "copy" / "memory.db"
    assert told[-1][0] == told[-1][1] > 0
    assert sorted(path.name for path in file.parent.iterdir()) == ["config.json", "memory.db"]
    written, copied = (folder / "config.json" for folder in (tmp_path / "store", tmp_path / "copy"))
    assert copied.read_bytes() == written.read_bytes()
    with MemoryStore.open(tmp_path / "copy") as copy:
        assert copy.config == config
        assert ids_of(copy, Query(embedding=axis(0))) == [1, 2]
        with pytest.raises(FileExistsError, match="without a store"):
            copy.backup(tmp_path / "store")


def test_a_reader_beside_the_writer_sees_what_is_new_and_changes_nothing(
    store: MemoryStore, location: Path | str
) -> None:
    store.add([cup()])
    with MemoryStore.open(location, readonly=True) as reader:
        assert ids_of(reader, Query(embedding=axis(0))) == [1]
        store.add([cup(1)])
        assert ids_of(reader, Query(embedding=axis(0))) == [1, 2]
        assert ids_of(reader, Query()) == [2, 1]
        store.forget([1])
        assert ids_of(reader, Query(embedding=axis(0))) == ids_of(reader, Query()) == [2]
        store.undo(2 + 1)
        assert ids_of(reader, Query(embedding=axis(0))) == [1, 2]
        for change in (
            lambda: reader.add([cup()]),
            lambda: reader.observe([cup()]),
            lambda: reader.forget([1]),
            lambda: reader.forget([1], secure=True),
            lambda: reader.undo(1),
            lambda: reader.consolidate(),
        ):
            with pytest.raises(StoreReadOnlyError):
                change()
        assert len(reader) == 2
    assert not (store.folder / "indexes").exists()


def test_another_process_reads_beside_the_writer(store: MemoryStore, location: Path | str) -> None:
    store.add([cup(caption="from the writer")])
    script = textwrap.dedent(
        """
        import sys
        from memory.store import MemoryStore
        from memory.query import Query
        with MemoryStore.open(sys.argv[1], readonly=True) as reader:
            print(len(reader), reader.query(Query(text="writer"))[0].memory.id, flush=True)
            sys.stdin.readline()
            print(len(reader), reader.query(Query(text="later"))[0].memory.id, flush=True)
        """
    )
    command = [sys.executable, "-c", script, str(location)]
    root = str(Path(sys.modules["memory"].__file__ or "").parent.parent)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "1 1\n"
        store.add([cup(caption="later")])
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "2 2\n"


def test_queries_go_on_while_others_add_and_forget(store: MemoryStore) -> None:
    store.add([cup(at, float(at)) for at in range(50)])
    stop = threading.Event()
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                for query in (Query(embedding=axis(0), k=60), Query(text="cup", k=60), Query(k=60)):
                    hits = store.query(query)
                    assert all(hit.memory.label == "cup" for hit in hits)
                store.find(Filter(labels=["cup"]), vectors=False)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        ids = store.add([cup(), cup()])
        store.forget(ids[:1])
        store.undo(store.forget(ids[1:]))
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store) == 90
