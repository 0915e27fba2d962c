"""The benchmark of calls: short runs of its rows, and the table that is published of them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(load: Any, tmp_path: Path, *rows: str, rounds: int = 2) -> list[dict[str, Any]]:
    out = tmp_path / "calls.json"
    arguments = ["--quick", "--rounds", str(rounds), "--threads", "1", "--out", str(out), "--rows", *rows]
    assert load("calls.calls").main(arguments) == 0
    text = out.read_text()
    assert str(ROOT) not in text
    found: list[dict[str, Any]] = json.loads(text)["calls"]
    return found


def test_a_vector_query_is_measured_alone_and_beside_another_program(
    load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, beside = run(load, tmp_path, "vectors")
    assert "vector query" in capsys.readouterr().out
    assert (alone["row"], alone["aim"], beside["aim"]) == ("vectors", 2.0, 2.0)
    assert alone["count"] == beside["count"] == 10
    assert 0 < alone["value"] <= alone["p99"]


def test_what_is_published_says_value_aim_and_whether_it_was_met(load: Any) -> None:
    published = load("publish.calls")
    rows = load("calls.rows")
    missed = rows.timed("a", [1.0, 3.0, 2.0], 1.5, **rows.beside("b", [2.0, 6.0, 4.0], [1.0, 3.0, 2.0]))
    met = rows.rated("c", 1234.5, 1000.0)
    assert [column.cell(missed) for column in published._columns()] == [
        "a", "2.00 ms", "2.98", "2.00 times as long: b", "1.50 ms", "no",
    ]  # fmt: skip
    assert [column.cell(met) for column in published._columns()] == ["c", "1,234/s", "", "", "1,000/s", "yes"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:packed n.m weights are unpacked")
def test_every_row_runs_on_a_cpu(load: Any, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    names = list(load("calls.calls").ROWS)
    found = run(load, tmp_path, *names)
    if find_spec("openvino") is None:
        names.remove("openvino")
    assert list(dict.fromkeys(row["row"] for row in found)) == names
    assert all(row["value"] > 0 for row in found)
