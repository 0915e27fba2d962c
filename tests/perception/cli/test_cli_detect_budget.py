"""``perceive detect --budget-ms``: levels in records, tables and remarks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.budget import default_levels
from perception.train.frames import TrainingFrame

Street = Callable[[int], TrainingFrame]
Perceive = Callable[..., Any]

NAMES = [level.name for level in default_levels(fast=False)]


@pytest.fixture
def arguments(scans: Path, tiny_weights: Path, tmp_path: Path) -> tuple[object, ...]:
    return ("detect", scans, "--out", tmp_path / "out", "--weights", tiny_weights, "--no-pictures")


def records_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "detections.jsonl").read_text().splitlines()]


def test_a_budget_that_everything_meets(
    perceive: Perceive, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    done = perceive(*arguments, "--budget-ms", 60_000, "--score", 0.0)
    assert done.status == 0
    records = records_of(tmp_path / "out")
    assert [record["level"] for record in records] == ["all"] * 3
    assert [record["budget_ms"] for record in records] == [60_000] * 3
    assert all(0 < record["elapsed_ms"] < 60_000 for record in records)
    assert done.output.count("of 60000, level 'all'") == 3
    assert "levels within 60000 ms" in done.output
    assert all(name in done.output for name in NAMES)
    assert done.remarks.count("levels measured on street0:") == 1
    assert "no level meets" not in done.remarks
    assert perceive(*arguments, "--score", 0.0, "--overwrite").status == 0
    plain = records_of(tmp_path / "out")
    assert [record["boxes"] for record in plain] == [record["boxes"] for record in records]
    assert all("level" not in record and "budget_ms" not in record for record in plain)


def test_a_budget_that_nothing_meets_is_told_once(
    perceive: Perceive, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    done = perceive(*arguments, "--budget-ms", 0.001)
    assert done.status == 0
    assert done.remarks.count("no level meets 0.001 ms: the fastest,") == 1
    (fastest,) = {record["level"] for record in records_of(tmp_path / "out")}
    assert fastest in NAMES
    assert f"the fastest, '{fastest}', runs" in done.remarks


def test_json_lines_stay_alone(perceive: Perceive, arguments: tuple[object, ...], tmp_path: Path) -> None:
    done = perceive(*arguments, "--budget-ms", 60_000, "--json", "--profile")
    assert [json.loads(line) for line in done.output.splitlines()] == records_of(tmp_path / "out")
    assert "levels within" in done.remarks
    assert {"pillars", "backbone", "NMS"} <= set(records_of(tmp_path / "out")[0]["stages_ms"])


def test_scans_of_nothing_and_of_bad_points(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path
) -> None:
    (tmp_path / "0.bin").write_bytes(b"")
    points = street(0).points.copy()
    points[0, 0] = np.nan
    points.astype("<f4").tofile(tmp_path / "1.bin")
    (tmp_path / "2.bin").write_bytes(b"abc")
    done = perceive(
        "detect",
        tmp_path,
        "--out",
        tmp_path / "out",
        "--weights",
        tiny_weights,
        "--no-pictures",
        "--budget-ms",
        9e5,
    )
    assert done.status == 1
    assert [record["level"] for record in records_of(tmp_path / "out")] == ["all", "all"]
    assert "levels measured on 1:" in done.remarks
    assert "warning: 1 points with NaN" in done.output
    assert "2 of 3 frames" in done.output


def test_no_table_of_levels_without_a_frame(perceive: Perceive, tiny_weights: Path, tmp_path: Path) -> None:
    (tmp_path / "2.bin").write_bytes(b"abc")
    done = perceive(
        "detect", tmp_path, "--out", tmp_path / "out", "--weights", tiny_weights, "--budget-ms", 5
    )
    assert done.status == 1
    assert "levels within" not in done.output


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf", "soon"])
def test_budgets_that_are_none(
    perceive: Perceive, arguments: tuple[object, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        perceive(*arguments, f"--budget-ms={text}")
    assert stopped.value.code == 2
    assert f"must be a positive number of milliseconds, got '{text}'" in capsys.readouterr().err
