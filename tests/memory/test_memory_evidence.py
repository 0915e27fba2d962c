"""Objects of a store as plain values."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory import Memory, MemoryStore
from memory.errors import StoreError
from memory.evidence import known_objects

SECOND = 10**9


def test_objects_of_one_map_with_their_state(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=8) as store:
        ids = store.add(
            [
                Memory(
                    time_ns=9 * SECOND,
                    label="Car",
                    position=(1, 2, 3),
                    confidence=0.75,
                    count=40,
                    map_id="yard",
                ),
                Memory(time_ns=8 * SECOND, label="Pedestrian", position=(4, 5, 6), map_id="yard"),
                Memory(time_ns=8 * SECOND, label="Car", map_id="yard"),
                Memory(time_ns=8 * SECOND, label="Car", position=(1, 2, 3), map_id="elsewhere"),
                Memory(time_ns=8 * SECOND, kind="event", label="Car", position=(1, 2, 3), map_id="yard"),
            ]
        )
        store.mark([ids[1]], "gone", at_ns=12 * SECOND, why="its place was free")
    before = sorted(path.name for path in (tmp_path / "store").iterdir())
    car, person = sorted(known_objects(str(tmp_path / "store"), "yard"), key=lambda item: item["label"])
    assert car == {
        "label": "Car",
        "position": [1.0, 2.0, 3.0],
        "confidence": 0.75,
        "sights": 40,
        "state": "present",
        "last_ns": 9 * SECOND,
    }
    assert (person["state"], person["sights"]) == ("gone", 1)
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == before
    assert known_objects(str(tmp_path / "store"), "garage") == []


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        known_objects(str(tmp_path / "nothing"), "default")
    assert not (tmp_path / "nothing").exists()
