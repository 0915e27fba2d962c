"""The benchmark of a store on a server: a short run of all its sides, and what counts as right."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_a_short_run_has_all_sides(load: Any, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    pytest.importorskip("pg0")
    tmp_path.chmod(0o755)
    out = tmp_path / "fleet.json"
    arguments = ["--quick", "--large", "1500/2", "--dim", "16", "--threads", "1", "--buffers", "64MB"]
    assert load("service.fleet").main([*arguments, "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    assert str(ROOT) not in out.read_text()
    sides = [(case["side"], case["rows"]) for case in values["cases"]]
    assert sides == [
        ("folder", 2000), ("server", 2000), ("server, a reader of one map", 2000),
        ("server, 12 months", 2000), ("pgvector alone", 2000),
        ("pgvector alone, iterative scans", 2000), ("server, 2 months", 1500),
    ]  # fmt: skip
    for case in values["cases"]:
        for name, each in case["questions"].items():
            assert each["p99_ms"] >= each["p50_ms"] > 0
            if not case["side"].startswith("pgvector"):
                assert each["recall"] > 0.95, (case["side"], name)
    assert all(case["added_per_s"] > 0 for case in values["cases"] if case["side"] in ("folder", "server"))


@pytest.mark.slow
def test_rows_of_several_processes_are_those_of_add(load: Any, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("psycopg")
    pytest.importorskip("pg0")
    import psycopg

    from memory.persistence.postgres import server as local

    fleet, sides, bulk = load("service.fleet"), load("service.fleet_sides"), load("service.fleet_bulk")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bulk, "PORTION", 400)
    folder = Path(tempfile.mkdtemp(prefix="sparsight-fleet-"))
    folder.chmod(0o755)
    size, dim, months, found = 3000, 16, 3, []
    try:
        address = local.start(folder, settings={"fsync": "off"})
        for name in ("bulk", "add"):
            place = fleet.schema(address, name)
            with sides.store_at(place, dim) as side:
                if name == "bulk":
                    told: list[int] = []
                    bulk.load(side, place, size, 0, months=months, progress=told.append)
                    assert told == sorted(told)
                    assert told[-1] == size
                else:
                    rows = sides.rows_of(0, size, dim, 0)
                    for month in range(months):
                        side.begin_month(month)
                        for first in range(1000 * month, 1000 * (month + 1), 400):
                            side.add(rows, range(first, min(first + 400, 1000 * (month + 1))))
                assert side.store.check().ok
                parts = [(part.first_id, part.end_id) for part in side.store.database.parts()]
                assert parts == [(1, 1001), (1001, 2001), (2001, None)]
                # What is added afterwards gets the next ids.
                assert side.store.add(sides.rows_of(size, size + 1, dim, 0).memories(range(size, size + 1)))
            with psycopg.connect(place) as connection:
                found.append({
                    table: connection.execute(f"SELECT {columns} FROM {table} ORDER BY {key}").fetchall()
                    for table, columns, key in (
                        ("memory", "*", "id"), ("embedding", "*", "id, slot"), ("visited", "*", "id"),
                        ("vocabulary", "*", "term"), ("slot", "slot, name, dim", "slot"),
                        ("log", "generation, operation, first_id, next_id, undoes, detail", "generation"),
                        ("log_row", "id, what", "row"),
                    )
                })  # fmt: skip
    finally:
        local.stop(folder)
        shutil.rmtree(folder)
    assert len(found[0]["memory"]) == size + 1
    assert len(found[0]["log"]) == 10
    assert found[0] == found[1]


def test_rows_are_the_same_in_any_stretches(load: Any) -> None:
    sides = load("service.fleet_sides")
    whole = sides.rows_of(0, 2 * sides.BLOCK + 7, 8, 0)
    part = sides.rows_of(sides.BLOCK - 3, 2 * sides.BLOCK + 5, 8, 0)
    at = slice(part.first, part.first + len(part.labels))
    assert len(part.labels) == sides.BLOCK + 8
    assert np.unique(whole.x).size == len(whole.x)
    for name in ("vectors", "x", "time_ns"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[at]), name
    assert part.labels == whole.labels[at]
    (one,) = part.memories(range(sides.BLOCK, sides.BLOCK + 1))
    assert one.label == whole.labels[sides.BLOCK]
    assert one.caption == f"seen word{sides.BLOCK % 997} on the way"


def test_truth_is_of_what_passes(load: Any) -> None:
    questions, sides = load("service.fleet_questions"), load("service.fleet_sides")
    size = 11 * sides.BLOCK  # More than are compared at once.
    rows = sides.rows_of(0, size, 8, 0)
    wanted = sides.Asked(label="label3", x=(0.0, 900.0))
    among = wanted.passes(rows)
    assert 0 < len(among) < size
    assert all(rows.labels[row] == "label3" and rows.x[row] <= 900 for row in among)
    asked = rows.vectors[among[[0, -1]]]
    best = questions.truth(size, 8, 0, asked, {"some": wanted})["some"]
    scores = asked @ questions.as_stored(rows.vectors[among]).T
    assert np.array_equal(best, among[np.argsort(-scores, axis=1, kind="stable")[:, :10]])
    assert best[:, 0].tolist() == [among[0], among[-1]]
