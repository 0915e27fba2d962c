"""Importing detections without track numbers: one memory per object all the same."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory import MemoryStore
from memory.cli import main
from memory.exchange import import_source, open_source
from memory.exchange.formats import open_stream
from memory.exchange.track_lines import LinkedLines
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory

TENTH = 10**8
START = 10**18
SIZE = [4.2, 1.8, 1.5]


def frames(count: int, every: int = TENTH) -> list[dict[str, Any]]:
    """A robot drives 1 m a frame past parked cars 10 m apart, behind a car that drives as fast."""
    found = []
    for at in range(count):
        xs = [10.0 * number - at for number in range(count // 10)]
        boxes = [[x, 3.0, 0.0, *SIZE, 0.0] for x in xs if -10 < x < 10] + [[5.0, -3.0, 0.0, *SIZE, 0.0]]
        pose = np.eye(4)
        pose[0, 3] = at
        found.append(
            {
                "frame": f"{at:06d}", "timestamp_ns": START + at * every, "boxes": boxes,
                "scores": [0.9] * len(boxes), "labels": ["Car"] * len(boxes),
                "pose": {"map_from_lidar": pose[:3].tolist()},
            }
        )  # fmt: skip
    return found


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def stored(folder: Path, *paths: Path) -> list[Memory]:
    with SqliteDatabase.open(folder, create=True, dim=2) as database:
        for path in paths:
            import_source(database, open_source(path))
    return held(folder)


def held(folder: Path) -> list[Memory]:
    with MemoryStore.open(folder) as store:
        return store.find(Filter(), newest_first=False)


def test_a_memory_per_object(tmp_path: Path) -> None:
    path = write(tmp_path / "detections.jsonl", frames(60))
    assert isinstance(open_source(path), LinkedLines)
    found = stored(tmp_path / "store", path)
    assert sorted(memory.kind for memory in found) == ["event"] + ["object"] * 6
    (moved,) = (memory for memory in found if memory.kind == "event")
    assert moved.caption == "car moved 59 m in 6 s, from (5, -3) to (64, -3)"
    assert {round(memory.place[0]) for memory in found if memory.kind == "object"} == {0, 10, 20, 30, 40, 50}
    assert sum(memory.count for memory in found) == sum(len(record["boxes"]) for record in frames(60))


def test_frames_far_apart_in_time_stay_boxes(tmp_path: Path) -> None:
    found = stored(tmp_path / "store", write(tmp_path / "detections.jsonl", frames(20, every=10 * TENTH)))
    assert len(found) == sum(len(record["boxes"]) for record in frames(20))
    assert {memory.kind for memory in found} == {"object"}


def test_boxes_without_poses_stay_boxes(tmp_path: Path) -> None:
    records = frames(20)
    for record in records:
        del record["pose"]
    found = stored(tmp_path / "store", write(tmp_path / "detections.jsonl", records))
    assert len(found) == sum(len(record["boxes"]) for record in frames(20))


@pytest.mark.parametrize("cut", [1, 30, 59])
def test_a_file_that_grows_gives_the_same_objects(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "detections.jsonl", frames(60)[:cut])
    stored(tmp_path / "store", path)
    write(path, frames(60))
    stored(tmp_path / "store", path)
    again = stored(tmp_path / "store", path)
    whole = stored(tmp_path / "whole", path)
    # The ends of the shorter file are memories of their own until they are merged.
    with MemoryStore.open(tmp_path / "store") as store:
        store.consolidate()
    parked = [memory for memory in held(tmp_path / "store") if memory.kind == "object"]
    places = {round(memory.place[0]) for memory in whole if memory.kind == "object"}
    assert {round(memory.place[0]) for memory in parked if memory.count > 1} == places
    assert sum(memory.count for memory in again) <= sum(memory.count for memory in whole)


def test_two_recordings_in_one_file(tmp_path: Path) -> None:
    later = [record | {"timestamp_ns": record["timestamp_ns"] - 500 * TENTH} for record in frames(20)]
    path = write(tmp_path / "detections.jsonl", frames(20) + later)
    found = stored(tmp_path / "store", path)
    assert sorted(memory.kind for memory in found) == ["event"] * 2 + ["object"] * 4


def test_a_stream(tmp_path: Path) -> None:
    raw = write(tmp_path / "detections.jsonl", frames(60)).read_bytes()
    with SqliteDatabase.open(tmp_path / "store", create=True, dim=2) as database:
        import_source(database, open_stream(io.BytesIO(raw), "standard input"))
    assert sorted(memory.kind for memory in held(tmp_path / "store")) == ["event"] + ["object"] * 6


def test_boxes_seen_once_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = frames(20)
    records[7]["boxes"].append([0.0, 30.0, 0.0, *SIZE, 0.0])
    records[7]["scores"].append(0.9)
    records[7]["labels"].append("Car")
    path = write(tmp_path / "detections.jsonl", records)
    with caplog.at_level("INFO"):
        assert main(["import", str(tmp_path / "store"), str(path)]) == 0
    assert "skipped 1 box of objects seen too seldom; --no-tracks imports all" in caplog.text
    assert len(held(tmp_path / "store")) == 3
