"""Caches beside the database: of this store and of its history, or they are none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mutations import mutations

from memory.config import FILE_NAME, StoreConfig, TierOptions
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Query
from memory.store import MemoryStore
from memory.types import Memory
from sparse_core.common import files

DIM = 16
CONFIG = StoreConfig(index_from=30, tiers=TierOptions(recent=4, background=False))


def row_of(number: int, label: str, *, seed: int = 0) -> Memory:
    vector = np.random.default_rng([seed, number]).standard_normal(DIM)
    return Memory(time_ns=number, position=(3.0 * number, 0, 0), label=label, embedding=vector)


def fill(folder: Path, count: int, *, label: str = "cup", seed: int = 0) -> None:
    with MemoryStore.open(folder, dim=DIM, config=CONFIG) as store:
        store.observe([row_of(number, label, seed=seed) for number in range(count)])
        store.query(Query(like=1, k=1))
        store.settle()


def missing_themselves(store: MemoryStore) -> list[int]:
    """Memories whose nearest one, by their own vector, is another."""
    found = []
    for memory in store.get(store.database.ids()):
        (hit,) = store.query(Query(embedding=memory.embedding, k=1))
        if hit.memory.id != memory.id or abs(hit.score - 1.0) > 1e-2:
            found.append(int(memory.id or 0))
    return found


def test_a_backup_that_is_put_back_does_not_get_the_caches_of_what_came_after(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    fill(folder, 60)
    with MemoryStore.open(folder) as store:
        store.backup(tmp_path / "backup")
    with MemoryStore.open(folder) as store:
        store.observe([row_of(number, "cup") for number in range(100, 150)])
        store.query(Query(like=1, k=1))
    assert list((folder / "indexes").iterdir())
    shutil.copy(tmp_path / "backup" / "memory.db", folder / "memory.db")
    # As many operations, and ids, as there were: with other memories.
    with MemoryStore.open(folder) as store:
        assert store.add([row_of(number, "dog", seed=1) for number in range(100, 150)])[-1] == 110
    with MemoryStore.open(folder) as store:
        assert store.generation == 2
        assert missing_themselves(store) == []
        seen = store.observe([row_of(101, "cup")])[0]
        assert seen.id is not None, "no dog stands for a cup"
        assert store.check().ok


def test_a_cache_of_another_store_is_not_adopted(tmp_path: Path) -> None:
    fill(tmp_path / "one", 50)
    fill(tmp_path / "other", 50, label="dog", seed=1)
    for name in ("indexes", "reservoir.npz"):
        source, target = tmp_path / "other" / name, tmp_path / "one" / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    with MemoryStore.open(tmp_path / "one") as store:
        assert store.tiers() == {}
        assert missing_themselves(store) == []
        # With the other's reservoir it would be counted on whatever has the id of its cup.
        assert store.observe([row_of(7, "cup")])[0].id == 51


def test_a_cache_of_this_store_is_used_again(tmp_path: Path) -> None:
    fill(tmp_path, 50)
    with MemoryStore.open(tmp_path) as store:
        assert store.tiers()["default"].long_term == 50
        assert store.observe([row_of(7, "cup")])[0].like == 8


def wrong_after(folder: Path, file: Path, count: int, wrong: Callable[[MemoryStore], object]) -> list[object]:
    data, found = file.read_bytes(), []
    for _, mutant in mutations(data, count, seed=1):
        file.write_bytes(mutant)
        store = MemoryStore.open(folder)
        if said := wrong(store):
            found.append(said)
        store.database.close()
        store._retriever.indexes.stop()
    file.write_bytes(data)
    return found


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_mutated_index_files_give_no_wrong_answer(tmp_path: Path, count: int) -> None:
    fill(tmp_path, 40)
    (file,) = (tmp_path / "indexes").iterdir()
    vectors = [row_of(number, "cup").embedding for number in (0, 17, 39)]

    def wrong(store: MemoryStore) -> list[int]:
        hits = [store.query(Query(embedding=vector, k=1))[0] for vector in vectors]
        return [hit.memory.id or 0 for hit, id in zip(hits, (1, 18, 40), strict=True) if hit.memory.id != id]

    assert wrong_after(tmp_path, file, count, wrong) == []


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_mutated_reservoir_does_not_end_observing(tmp_path: Path, count: int) -> None:
    fill(tmp_path, 20)

    def wrong(store: MemoryStore) -> bool:
        return len(store.observe([row_of(500, "cup")])) != 1

    assert wrong_after(tmp_path, tmp_path / "reservoir.npz", count, wrong) == []


def test_settings_are_on_the_disk_before_they_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        done.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def renamed(source: str, target: Path) -> None:
        done.append(("rename", str(source)))
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(files.os, "replace", renamed)
    StoreConfig().save(tmp_path)
    (before, renaming, after) = done
    assert before == ("sync", renaming[1])
    assert renaming[0] == "rename"
    assert after == ("sync", str(tmp_path))


@pytest.mark.parametrize("left", [None, b"", b"\0" * 700])
def test_a_store_without_settings_opens_with_what_the_database_knows(
    tmp_path: Path, left: bytes | None
) -> None:
    fill(tmp_path, 3)
    file = tmp_path / FILE_NAME
    file.unlink() if left is None else file.write_bytes(left)
    with MemoryStore.open(tmp_path, readonly=True) as store:
        assert store.config == CONFIG
        store.backup(tmp_path / "backup")
    assert StoreConfig.load(tmp_path / "backup") == CONFIG
    with MemoryStore.open(tmp_path) as store:
        assert store.config == CONFIG
    assert json.loads(file.read_text())["index_from"] == 30


def test_settings_that_were_changed_by_hand_count(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    (tmp_path / FILE_NAME).write_text('{"index_from": 77}')
    with MemoryStore.open(tmp_path) as store:
        assert store.config == StoreConfig(index_from=77)
    (tmp_path / FILE_NAME).unlink()
    with MemoryStore.open(tmp_path) as store:
        assert store.config == StoreConfig(index_from=77)


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_mutated_settings_are_read_or_named(tmp_path: Path, count: int) -> None:
    """Never by another error, and no setting is beyond what the store can do with it."""
    text = CONFIG.to_text().encode()
    for what, mutant in mutations(text, count, seed=2):
        (tmp_path / FILE_NAME).write_bytes(mutant)
        said = ""
        try:
            config = StoreConfig.load(tmp_path, CONFIG.to_text())
        except ValueError as error:
            said = str(error)
        assert FILE_NAME in said or StoreConfig.of_text(config.to_text()) == config, what


def test_check_reads_the_settings_and_a_repair_takes_those_of_the_database(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    (tmp_path / FILE_NAME).write_text('{"index_from": 1e400}')
    with pytest.raises(ValueError, match=FILE_NAME):
        MemoryStore.open(tmp_path)
    with SqliteDatabase.open(tmp_path) as database:
        assert FILE_NAME in str(database.check())
        report = database.check(repair=True)
        assert report.ok
        assert "config.json.damaged-1" in str(report)
    with MemoryStore.open(tmp_path) as store:
        assert store.config == CONFIG
