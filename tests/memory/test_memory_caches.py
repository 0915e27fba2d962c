"""Caches beside the database: of this store and of its history, or they are none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memory.config import FILE_NAME, StoreConfig
from memory.store import MemoryStore
from memory.tiers import TierOptions
from memory.types import Memory, Query
from sparse_core import files

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


def mutants(data: bytes, count: int, seed: int) -> list[bytes]:
    """Flipped bits, other bytes, stretches of zeros, swapped stretches, cut and longer files."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        changed = bytearray(data)
        at, other = (int(value) for value in random.integers(0, len(data) - 64, 2))
        what = random.integers(6)
        if what == 0:
            changed[at] ^= 1 << int(random.integers(8))
        elif what == 1:
            changed[at : at + 8] = random.bytes(8)
        elif what == 2:
            changed[at : at + 64] = bytes(64)
        elif what == 3:
            changed[at : at + 32], changed[other : other + 32] = data[other : other + 32], data[at : at + 32]
        elif what == 4:
            del changed[at:]
        else:
            changed += random.bytes(10)
        if bytes(changed) != data:
            found.append(bytes(changed))
    return found


def wrong_after(folder: Path, file: Path, count: int, wrong: Callable[[MemoryStore], object]) -> list[object]:
    data, found = file.read_bytes(), []
    for mutant in mutants(data, count, seed=len(data)):
        file.write_bytes(mutant)
        store = MemoryStore.open(folder)
        if said := wrong(store):
            found.append(said)
        store.database.close()
        store._retriever.stop()
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
