"""``recall mark``, and what ``recall consolidate`` says about old operations."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.config import StoreConfig
from memory.store import MemoryStore
from memory.types import Memory

Recall = Callable[..., Any]


def test_marking_and_taking_it_back(recall: Recall, tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "yard", dim=4) as store:
        store.add([Memory(time_ns=0, label="Car"), Memory(time_ns=0, label="Cup")])
    done = recall("mark", "yard", 1, "--at", "1970-01-01T00:01:00", "--why", "nothing there")
    assert "marked 1 memory as gone; undo with: recall undo yard 2" in done.output
    explained = recall("explain", "yard", 1).output
    assert "gone since 1970-01-01 00:01:00 UTC, present before: nothing there" in explained
    early = recall("mark", "yard", 2, "--at", "1960-01-01")
    assert "was seen on 1970-01-01 00:00:00 UTC, after 1960-01-01 00:00:00 UTC" in early.remarks
    found = recall("mark", "yard", "1-2", "--state", "unknown", "--json").json
    assert found == {"marked": [1, 2], "state": "unknown", "operation": 3}
    recall("undo", "yard", 3)
    with MemoryStore.open(tmp_path / "yard") as store:
        assert [memory.state for memory in store.get([1, 2])] == ["gone", "present"]


def test_consolidate_says_what_can_no_longer_be_undone(
    recall: Recall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MemoryStore.open(tmp_path / "yard", dim=4, config=StoreConfig(undo_keep_operations=1)) as store:
        store.add([Memory(time_ns=0, label="Car")])
        store.forget([1])
        store.add([Memory(time_ns=0, label="Car")])
    assert "can no longer be undone" not in recall("consolidate", "yard").output
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 31 * 86_400 * 10**9)
    assert "2 operations up to number 2 can no longer be undone" in recall("consolidate", "yard").output
    assert recall("consolidate", "yard", "--json").json["trimmed"]["operations"] == 0
