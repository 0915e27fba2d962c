"""Detections as a table in Parquet: the same import as that of their lines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from memory.errors import DataError
from memory.exchange import export_memories, import_source, open_source
from memory.exchange.importing import ImportReport
from memory.persistence.sqlite.database import SqliteDatabase
from perception.cli.detect.partitions import write_partitions
from perception.vectors import packed

arrow = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra 'parquet')")
HOUR_NS = 3600 * 10**9


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Twelve frames of two bags and a folder, some without a time, with poses and vectors."""
    random = np.random.default_rng(0)
    path = tmp_path / "out/detections.jsonl"
    path.parent.mkdir()
    with path.open("w") as stream:
        for k in range(12):
            boxes = random.uniform(-20, 20, (k % 3, 7)).round(4)
            boxes[:, 3:6] = np.abs(boxes[:, 3:6]) + 0.5
            source = ("a.mcap:/points#", "b:/points#", "scans/")[k % 3] + str(k)
            pose = {"map_from_lidar": [[1, 0, 0, 9.0 * k], [0, 1, 0, 0], [0, 0, 1, 0]]}
            record = {
                "frame": f"{k}",
                "source": source,
                "timestamp_ns": None if k % 4 == 3 else k * 7 * HOUR_NS,
                "boxes": boxes.tolist(),
                "scores": random.uniform(0, 1, len(boxes)).round(6).tolist(),
                "labels": ["Car"] * len(boxes),
                "warnings": ["doubtful"] * (k % 2),
                "embeddings": packed(random.normal(size=(len(boxes), 8)).astype(np.float32)),
                "elapsed_ms": 1.5,
                "pose": pose,
                "detected_ns": 10**18 + k,
                "structure": packed(random.uniform(0, 9, (5, 8)).astype(np.float32)),
            }
            stream.write(json.dumps(record) + "\n")
    return path


def bring(store: Path, path: Path) -> tuple[ImportReport, str]:
    """What an import did, and all memories after it."""
    with SqliteDatabase.open(store, dim=8) as database:
        report = import_source(database, open_source(path), portion=3)
        export_memories(database, store.parent / "all.jsonl", format="jsonl")
    return report, (store.parent / "all.jsonl").read_text()


def test_the_store_is_that_of_the_lines(lines: Path, tmp_path: Path) -> None:
    table = lines.parent / "detections.parquet"
    assert write_partitions(lines, table) == 12
    assert len(list(table.rglob("*.parquet"))) > 6
    assert [entry.raw for entry in open_source(table).entries()] == lines.read_bytes().splitlines()
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    of_lines, expected = bring(tmp_path / "first/store", lines)
    of_table, found = bring(tmp_path / "second/store", table)
    assert of_table.memories == of_lines.memories > 12
    assert found == expected
    # Lines and rows are known again as the same.
    assert bring(tmp_path / "first/store", table)[0].known_lines == 12
    assert bring(tmp_path / "second/store", lines)[0].memories == 0


def test_a_part_of_the_table(lines: Path, tmp_path: Path) -> None:
    table = lines.parent / "detections.parquet"
    write_partitions(lines, table)
    of_a = [json.loads(entry.raw)["frame"] for entry in open_source(table / "recording=a").entries()]
    assert of_a == ["0", "3", "6", "9"]
    (file,) = (table / "recording=b/date=1970-01-01").glob("*.parquet")
    assert [entry.number for entry in open_source(file).entries()] == [2]


def test_tables_that_cannot_be_read(lines: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: no \.parquet file in this folder"):
        open_source(tmp_path / "empty")
    table = lines.parent / "detections.parquet"
    write_partitions(lines, table)
    sound, bad, *_ = sorted(table.rglob("*.parquet"))
    bad.write_bytes(bad.read_bytes()[:-9])
    with pytest.raises(DataError, match="cannot read it as Parquet"):
        list(open_source(table).entries())
    other = tmp_path / "empty/other.parquet"
    arrow.write_table(arrow.read_table(sound).select(["line"]), other)
    assert open_source(other).sort.startswith("detections")
    with pytest.raises(DataError, match="damaged"):
        list(open_source(other).entries())
    rows = arrow.read_table(other).replace_schema_metadata({})
    arrow.write_table(rows, other)
    with pytest.raises(DataError, match="not a detections table"):
        list(open_source(tmp_path / "empty").entries())
