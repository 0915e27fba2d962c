"""``perceive detect --budget-ms`` and budgets of energy: levels in records, tables and remarks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.budget import BudgetedDetector, default_levels
from perception.train.data.frames import TrainingFrame
from sparse_core.dynamic import energy

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
    assert all(record["elapsed_ms"] > 0 for record in records)
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
    assert "points" in done.output
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


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A counter of a CPU's energy that rises by 3 J a frame of the first level, 1 J a frame of others."""
    folder = tmp_path / "powercap" / "intel-rapl:0"
    folder.mkdir(parents=True)
    for name, value in (("name", "package-0"), ("max_energy_range_uj", "9" * 9), ("energy_uj", "9" * 8)):
        (folder / name).write_text(value)
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "powercap")
    detect, file = BudgetedDetector._detect, folder / "energy_uj"

    def using(self: BudgetedDetector, level: Any, cloud: Any) -> Any:
        joules = 3 if level.name == NAMES[0] else 1
        file.write_text(str((int(file.read_text()) + joules * 1_000_000) % (10**9 - 1)))
        return detect(self, level, cloud)

    monkeypatch.setattr(BudgetedDetector, "_detect", using)
    return file


@pytest.mark.parametrize(
    ("asked", "joules", "level"),
    [
        (["--budget-joules", 4], 4, 0),
        (["--budget-watts", 20], 2, 1),
        (["--budget-watts", 20, "--rate-hz", 5], 4, 0),
    ],
)
def test_budgets_of_energy(
    perceive: Perceive,
    arguments: tuple[object, ...],
    tmp_path: Path,
    counter: Path,
    asked: list[object],
    joules: float,
    level: int,
) -> None:
    done = perceive(*arguments, *asked)
    assert done.status == 0
    records = records_of(tmp_path / "out")
    assert {record["level"] for record in records} == {NAMES[level]}
    assert {record["budget_joules"] for record in records} == {joules}
    assert [record["joules"] for record in records] == [(3, 1)[level]] * 3
    assert "budget_ms" not in records[0]
    said = " ".join(done.output.split())
    assert said.count(f", {(3, 1)[level]} J of {joules:g}, level '{NAMES[level]}'") == 3
    assert f"levels within {joules:g} J" in done.output
    assert f"levels measured on street0: {NAMES[0]} 3 J, {NAMES[1]} 1 J" in done.remarks
    assert "energy of package-0" in done.remarks


def test_energy_that_cannot_be_read_and_rates_of_nothing(
    perceive: Perceive, arguments: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "none")
    done = perceive(*arguments, "--budget-joules", 1)
    assert done.status == 2
    assert "has no intel-rapl:*/energy_uj of a package" in done.remarks
    done = perceive(*arguments, "--budget-ms", 1, "--rate-hz", 5)
    assert done.status == 2
    assert "--budget-watts" in done.remarks
