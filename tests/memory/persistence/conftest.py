"""Stores whose writers did not end well, and one of the first release."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from memory.persistence.sqlite.database import SqliteDatabase
from memory.types import Memory


def kill(folder: Path, count: int) -> int:
    """Let a writer add memories, each with a commit of its own; the last id that it acknowledged.

    The files are copied while it is open: what a process that is killed leaves behind.
    """
    living = folder.with_name(f"{folder.name}-living")
    if folder.exists():
        shutil.copytree(folder, living)
        shutil.rmtree(folder)
    with SqliteDatabase.open(living, dim=16) as database:
        for number in range(count):
            vector = np.random.default_rng(number).standard_normal(16)
            row = Memory(
                time_ns=number, position=(number, 0, 0), caption=f"number {number}", embedding=vector
            )
            last = database.add([row])[0]
        shutil.copytree(living, folder)
    shutil.rmtree(living)
    return last


@pytest.fixture(scope="session")
def killed_store() -> Callable[[Path, int], int]:
    """Makes a store in a folder, or goes on with it, and leaves it as a killed writer does."""
    return kill


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    """As the first release wrote it: three cups that were merged, a wall, and a mug that was removed."""
    folder = tmp_path / "old"
    folder.mkdir()
    data = (Path(__file__).parent / "stores" / "version_1.db.gz").read_bytes()
    (folder / "memory.db").write_bytes(gzip.decompress(data))
    return folder


def make_rows(count: int, seed: int = 0) -> list[Memory]:
    """Make memories that differ in every column of a filter."""
    random = np.random.default_rng(seed)
    words = ["red", "chair", "window", "Café", "door"]
    return [
        Memory(
            time_ns=int(random.integers(0, 1000)),
            position=tuple(random.uniform(-10, 10, 3)),
            yaw=float(random.uniform(-3, 3)),
            map_id=["home", "work"][int(random.integers(2))],
            kind=["object", "place", "event", "note"][int(random.integers(4))],  # type: ignore[arg-type]
            label=["cup", "car", "cat"][int(random.integers(3))],
            caption=" ".join(random.choice(words, 3)),
            confidence=float(random.uniform(0, 1)),
            embedding=random.standard_normal(8).astype(np.float32),
            marked=bool(random.integers(2)),
            state=["present", "gone"][int(random.integers(2))],  # type: ignore[arg-type]
            velocity=[None, (3.0, float(number), 0.0), (0.2, -0.1, 9.0)][number % 3],
        )
        for number in range(count)
    ]


@pytest.fixture(scope="session")
def rows_of() -> Callable[..., list[Memory]]:
    """Make memories, from a count and a seed."""
    return make_rows


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    """A new store for vectors of 8 numbers."""
    with SqliteDatabase.open(tmp_path / "store", dim=8) as opened:
        yield opened
