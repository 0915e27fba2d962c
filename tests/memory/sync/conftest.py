"""Robots with folders of their own, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memory import MemoryStore

DIM = 8


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Callable[[str], MemoryStore]]:
    """Opens stores by name, which are closed afterwards."""
    opened: list[MemoryStore] = []

    def open_store(name: str) -> MemoryStore:
        opened.append(MemoryStore.open(tmp_path / name, dim=DIM))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def shared(location: Path | str) -> Iterator[MemoryStore]:
    """The store of all, in a folder or on a server."""
    with MemoryStore.open(location, dim=DIM) as store:
        yield store
