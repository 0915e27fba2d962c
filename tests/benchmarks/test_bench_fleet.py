"""The benchmark of a store on a server: a short run of all its sides, and what counts as right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_short_run_has_all_sides(load: Any, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    pytest.importorskip("pg0")
    tmp_path.chmod(0o755)
    out = tmp_path / "fleet.json"
    arguments = ["--quick", "--large", "1500", "--dim", "16", "--threads", "1", "--buffers", "64MB"]
    assert load("bench_fleet").main([*arguments, "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    assert str(ROOT) not in out.read_text()
    sides = [(case["side"], case["rows"]) for case in values["cases"]]
    assert sides == [
        ("folder", 2000), ("server", 2000), ("server, a reader of one map", 2000),
        ("server, 12 months", 2000), ("pgvector alone", 2000),
        ("pgvector alone, iterative scans", 2000), ("server", 1500),
    ]  # fmt: skip
    for case in values["cases"]:
        for name, each in case["questions"].items():
            assert each["p99_ms"] >= each["p50_ms"] > 0
            if not case["side"].startswith("pgvector"):
                assert each["recall"] > 0.95, (case["side"], name)
    assert all(case["added_per_s"] > 0 for case in values["cases"] if case["side"] in ("folder", "server"))


def test_truth_is_of_what_passes(load: Any) -> None:
    fleet, sides = load("bench_fleet"), load("fleet_sides")
    rows = sides.rows_of(300, 8, 0)
    wanted = sides.Asked(label="label3", x=(0.0, 900.0))
    among = wanted.passes(rows)
    assert 0 < len(among) < 300
    assert all(rows.labels[row] == "label3" and rows.x[row] <= 900 for row in among)
    asked = rows.vectors[among[:2]]
    best = fleet.nearest(rows, among, asked)
    assert best[:, 0].tolist() == among[:2].tolist()
    assert np.isin(best, among).all()
