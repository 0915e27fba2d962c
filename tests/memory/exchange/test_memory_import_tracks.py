"""Importing what ``perceive track`` wrote: a memory a track, whatever interrupts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory import MemoryStore
from memory.cli import main
from memory.errors import DataError
from memory.exchange import import_source, open_source
from memory.exchange.detections import DetectionOptions
from memory.exchange.track_lines import TrackLines
from memory.merging.tracks import TRACKS
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory

TENTH = 10**8
SIZE = [4.2, 1.8, 1.5]


def frames(count: int) -> list[dict[str, Any]]:
    """A robot drives 1 m a frame past parked cars 10 m apart, each in view for 20 frames, beside a car."""
    found = []
    for at in range(count):
        parked = [(10 + number, 10.0 * number - at) for number in range(count // 10)]
        rows = [(number, x) for number, x in parked if -10 < x < 10]
        rows.append((1, 5.0))
        pose = np.eye(4)
        pose[0, 3] = at
        found.append(
            {
                "frame": f"{at:06d}", "source": f"{at:06d}.bin", "timestamp_ns": 10**18 + at * TENTH,
                "boxes": [[x, 3.0 if number > 1 else -3.0, 0.0, *SIZE, 0.0] for number, x in rows],
                "scores": [0.9] * len(rows), "labels": ["Car"] * len(rows),
                "track_id": [number for number, _ in rows], "missed_s": [0.0] * len(rows),
                "pose": {"map_from_lidar": pose[:3].tolist()},
            }
        )  # fmt: skip
    return found


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "drive" / "detections.jsonl", frames(60))


def all_memories(store: MemoryStore) -> list[Memory]:
    return store.find(Filter(), newest_first=False)


def names(memories: list[Memory]) -> list[str]:
    return sorted(name.rpartition("/")[2] for one in memories for name in one.payload[TRACKS])


def test_a_memory_a_track(path: Path, tmp_path: Path) -> None:
    source = open_source(path)
    assert isinstance(source, TrackLines)
    with SqliteDatabase.open(tmp_path / "store", create=True, dim=2) as database:
        report = import_source(database, source)
        assert (report.lines, report.memories) == (60, 7)
    with MemoryStore.open(tmp_path / "store") as store:
        found = all_memories(store)
    assert names(found) == ["1", "10", "11", "12", "13", "14", "15"]
    (moved,) = (one for one in found if one.kind == "event")
    assert moved.caption == "car moved 59 m in 6 s, from (5, -3) to (64, -3)"
    assert moved.count == 60
    stood = {name: one for one in found for name in one.payload[TRACKS] if one.kind == "object"}
    assert {round(one.position[0]) for one in stood.values()} == {0, 10, 20, 30, 40, 50}
    assert {one.count for one in stood.values()} == {10, 19}
    assert next(iter(stood)).startswith("drive@")
    assert found[0].payload["seen_from"][0] > 0


def test_a_row_without_a_sight_is_none(tmp_path: Path) -> None:
    records = frames(30)
    for record in records[15:]:
        record["missed_s"] = [0.1 if number == 1 else 0.0 for number in record["track_id"]]
    path = write(tmp_path / "drive" / "detections.jsonl", records)
    with SqliteDatabase.open(tmp_path / "store", create=True, dim=2) as database:
        import_source(database, open_source(path))
    with MemoryStore.open(tmp_path / "store") as store:
        (moved,) = (one for one in all_memories(store) if one.kind == "event")
    assert moved.count == 15


def counts(folder: Path) -> list[tuple[str, int]]:
    with MemoryStore.open(folder) as store:
        return sorted((one.kind, one.count) for one in all_memories(store))


def test_what_a_file_has_grown_by(path: Path, tmp_path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    short = tmp_path / "grows" / "detections.jsonl"
    short.parent.mkdir()
    short.write_text("".join(lines[:30]))
    with SqliteDatabase.open(tmp_path / "store", create=True, dim=2) as database:
        import_source(database, open_source(short))
        short.write_text("".join(lines))
        import_source(database, open_source(short))
        assert import_source(database, open_source(short)).memories == 0
    with SqliteDatabase.open(tmp_path / "whole", create=True, dim=2) as database:
        import_source(database, open_source(path))
    # What went on at the end of the shorter file is two memories; what is one thing is joined.
    apart, whole = counts(tmp_path / "store"), counts(tmp_path / "whole")
    assert sum(count for _, count in apart) == sum(count for _, count in whole)
    assert len(apart) == len(whole) + 2
    with MemoryStore.open(tmp_path / "store") as store:
        store.consolidate()
        joined = all_memories(store)
    assert [one for one in counts(tmp_path / "store") if one[0] == "object"] == [
        one for one in whole if one[0] == "object"
    ]
    assert sum(one.kind == "event" for one in joined) == 2


def test_two_drives_to_one_map(path: Path, tmp_path: Path) -> None:
    records = frames(60)
    for record in records:
        record["timestamp_ns"] += 86_400 * 10**9
    other = write(tmp_path / "other" / "drive" / "detections.jsonl", records)
    with SqliteDatabase.open(tmp_path / "store", create=True, dim=2) as database:
        for one in (path, other, path, other):
            import_source(database, open_source(one))
    with MemoryStore.open(tmp_path / "store") as store:
        assert len(all_memories(store)) == 14
        store.consolidate()
        found = all_memories(store)
    # The six that stood are there twice as often seen; the one that drove along did so twice.
    assert (
        sorted((one.kind, len(one.payload[TRACKS])) for one in found)
        == [("event", 1)] * 2 + [("object", 2)] * 6
    )


def test_boxes_one_by_one(path: Path, tmp_path: Path) -> None:
    with SqliteDatabase.open(tmp_path / "store", create=True, dim=2) as database:
        report = import_source(database, open_source(path, detections=DetectionOptions(tracks=False)))
    assert report.memories == sum(len(record["boxes"]) for record in frames(60))


def test_the_command(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "store")
    assert main(["import", store, str(path), "--recording", "monday", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["files"]
    assert told["memories"] == 7
    assert main(["import", store, str(path), "--recording", "monday", "--observe", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][0]["known_lines"] == 60
    with MemoryStore.open(store) as opened:
        assert {name.partition("/")[0] for one in all_memories(opened) for name in one.payload[TRACKS]} == {
            "monday"
        }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"track_id": [1, 1, 2]}, "track_id must be a list of 2 numbers"),
        ({"track_id": [1, 1]}, "repeat"),
        ({"track_id": [1, "x"]}, r"track_id\[1\]"),
        ({"missed_s": [0.0]}, "missed_s must be a list of 2 numbers"),
        ({"timestamp_ns": 5}, "time_ns must not go backwards"),
    ],
)
def test_bad_tracks_name_the_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    records = frames(10)
    records[4] |= change
    path = write(tmp_path / "drive" / "detections.jsonl", records)
    with SqliteDatabase.open(tmp_path / "store", create=True, dim=2) as database:
        with pytest.raises(DataError, match=rf"detections.jsonl:5: .*{message}"):
            import_source(database, open_source(path))
        report = import_source(database, open_source(path), skip_bad=True)
    assert len(report.problems) == 1
