"""What was erased for good is in no file of a store."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from cups import DIM, axis, cup

from memory.config import Policy, StoreConfig
from memory.errors import (
    UndoError,
)
from memory.query import Filter, Query
from memory.store import MemoryStore
from memory.types import Memory


def secret_cup(**values) -> Memory:
    """A memory of which every word and number can be looked for in files."""
    vector = np.random.default_rng(8).standard_normal(DIM).astype(np.float32)
    return cup(
        **{
            "x": 1.9,
            "caption": "Xylophone-Quartz",
            "label": "Zanzibar-Person",
            "map_id": "Vault-Nine",
            "payload": {"who": "Quagmire"},
            "evidence": "Yttrium.mcap",
            "provenance": "Wolfram",
            "embedding": vector,
        }
        | values
    )


def traces(folder: Path) -> set[tuple[str, bytes]]:
    """Files that hold something of :func:`secret_cup`."""
    vector = secret_cup().embedding
    assert vector is not None
    unit = vector / np.linalg.norm(vector)
    half = unit.astype("<f2")
    words = [b"xylophone", b"zanzibar", b"vault", b"quagmire", b"yttrium", b"wolfram"]
    numbers = [half, vector, unit, half.astype("<f4"), half[: DIM // 2]]
    marks = words + [array.tobytes() for array in numbers] + [base64.b64encode(half.tobytes())[:20]]
    found = set()
    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        found |= {(path.name, mark) for mark in marks if mark in (data.lower() if mark in words else data)}
    return found


def test_what_was_erased_is_in_no_file(tmp_path: Path) -> None:
    secret = secret_cup()
    config = StoreConfig(index_from=2, capacity=2, forgetting=Policy(name="lru"))
    with MemoryStore.open(tmp_path, dim=DIM, config=config) as store:
        store.add([cup(), cup(1, 5.0)])
        store.observe([secret, dataclasses.replace(secret, position=(2.1, 0.0, 0.0), time_ns=5, marked=True)])
        store.query(Query(embedding=secret.embedding))
        store.observe([secret])
        # Over capacity, so some are forgotten, with a reason that the log keeps.
        others = [secret_cup(x=50.0 * at, at_s=at, label=f"Zanzibar-{at}") for at in range(1, 5)]
        store.add(others)
        done = store.consolidate(now_ns=0)
        assert done.merged
        assert len(done.forgotten) == 3
        assert "map 'Vault-Nine' has 5 memories, its capacity is 2" in next(iter(done.forgotten.values()))
        store.undo(done.generations[-1])
    (tmp_path / ".reservoir.npz.killed").write_bytes(b"Zanzibar")
    assert {name for name, _ in traces(tmp_path)} >= {"memory.db", "reservoir.npz", ".reservoir.npz.killed"}
    assert any(name.startswith("default") for name, _ in traces(tmp_path))
    with MemoryStore.open(tmp_path) as store:  # The caches are on the disk.
        ids = [memory.id for memory in store.find(Filter(map_id="Vault-Nine"))]
        assert len(ids) == 5
        generation = store.forget([id for id in ids if id is not None], secure=True, reason="privacy")
        with pytest.raises(UndoError):
            store.undo(generation)
        assert traces(tmp_path) == set()
        store.query(Query(embedding=axis(0)))
        assert store.observe([cup(9, 40.0)])[0].id is not None
    assert traces(tmp_path) == set()
    assert (tmp_path / "reservoir.npz").exists()


def test_an_erasure_that_dies_leaves_no_caches_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with MemoryStore.open(tmp_path, dim=DIM) as store:
        ids = [one.id for one in store.observe([cup(), secret_cup()])]
        store.query(Query(embedding=axis(0)))
    store = MemoryStore.open(tmp_path)
    monkeypatch.setattr(store._database, "remove", dies)
    with pytest.raises(KeyboardInterrupt):
        store.forget(ids[1:], secure=True)  # type: ignore[arg-type]
    assert {name for name, _ in traces(tmp_path)} <= {"memory.db", "memory.db-wal"}
    monkeypatch.undo()
    store.forget(ids[1:], secure=True)  # type: ignore[arg-type]
    store.close()
    assert traces(tmp_path) == set()
