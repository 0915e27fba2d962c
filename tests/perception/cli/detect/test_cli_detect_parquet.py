"""``perceive detect --parquet``: the records as a table in parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cloud_bags import write_bag

from perception.cli.detect import partitions
from perception.cli.detect.partitions import write_partitions
from perception.errors import DataError
from perception.train.data.frames import TrainingFrame

Perceive = Callable[..., Any]


def test_the_table_is_parted_by_recording_and_date(
    perceive: Perceive,
    scans: Path,
    street: Callable[[int], TrainingFrame],
    tiny_weights: Path,
    tmp_path: Path,
) -> None:
    arrow = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra 'parquet')")
    bag = write_bag(tmp_path / "drive", [street(seed).points for seed in range(2)])
    out = tmp_path / "out"
    arguments = ("--weights", tiny_weights, "--score", 0.0, "--no-pictures", "--parquet")
    for again in ((), ("--overwrite",)):
        done = perceive("detect", scans, bag, "--out", out, *arguments, *again)
        assert done.status == 0
        assert f"5 frames in {out / 'detections.parquet'}" in done.remarks
    table = out / "detections.parquet"
    assert {str(path.relative_to(table)) for path in table.rglob("*.parquet")} == {
        "recording=scans/date=unknown/000000001.parquet",
        "recording=drive/date=1970-01-01/000000004.parquet",
    }
    rows = arrow.read_table(table).sort_by("line").to_pylist()
    records = [json.loads(line) for line in (out / "detections.jsonl").read_text().splitlines()]
    assert [row["recording"] for row in rows] == ["scans"] * 3 + ["drive"] * 2
    for row, record in zip(rows, records, strict=True):
        assert all(row[name] == record[name] for name in ("frame", "boxes", "scores", "labels"))
        assert json.loads(row["record"])["structure"] == record["structure"]


def test_many_parts_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra 'parquet')")
    monkeypatch.setattr(partitions, "_OPEN", 2)
    empty: dict[str, Any] = {"timestamp_ns": None, "boxes": [], "scores": [], "labels": [], "warnings": []}
    lines = [json.dumps({"frame": str(k), "source": f"a{k % 3}/{k}.bin", **empty}) for k in range(9)]
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines))
    assert write_partitions(tmp_path / "lines", tmp_path / "table") == 9
    assert sorted(arrow.read_table(tmp_path / "table").column("line").to_pylist()) == list(range(1, 10))
    (tmp_path / "lines").write_text('{"frame": "a"}\n')
    with pytest.raises(DataError, match="lines: line 1 is no"):
        write_partitions(tmp_path / "lines", tmp_path / "table")
    # The table that was there stays.
    assert len(list((tmp_path / "table").rglob("*.parquet"))) == 9
    (tmp_path / "lines").write_text("")
    assert write_partitions(tmp_path / "lines", tmp_path / "table") == 0


def test_what_parquet_needs(
    perceive: Perceive, scans: Path, tiny_weights: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = perceive("detect", scans, "--json", "--parquet", "--weights", tiny_weights)
    assert done.status == 2
    assert "--parquet needs --out" in done.remarks
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = perceive("detect", scans, "--out", tmp_path / "out", "--parquet", "--weights", tiny_weights)
    assert done.status == 2
    assert "--parquet needs pyarrow: pip install 'sparsight[parquet]'" in done.remarks
