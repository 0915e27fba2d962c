"""The benchmark of one large store: a short run that is resumed, and what counts as right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STEPS = (
    "all",
    "label 0.1 %",
    "newest, place 1 %",
    "newest, time 10 %",
    "time 10 %, restored",
    "all, restored",
)


def arguments(folder: Path) -> list[str]:
    options = ["--quick", "--rows", "2400", "--dim", "8", "--threads", "1", "--seconds", "1", "--seed", "3"]
    return [str(folder), *options, "--out", str(folder / "out.json")]


@pytest.mark.slow
def test_a_run_resumes_after_its_last_commit(load: Any, tmp_path: Path) -> None:
    large, sides = load("service.large"), load("service.fleet_sides")
    with sides.store_at(tmp_path / "folder-2400" / "store", 8) as side:
        side.add(sides.rows_of(0, 700, 8, 3), range(700))  # An interrupted run got this far.
    assert large.main(arguments(tmp_path)) == 0
    file = tmp_path / "folder-2400" / "steps.json"
    first = json.loads(file.read_text())
    assert first["load"]["rows"] == 1700
    for name in STEPS:
        assert first[name]["recall"] > 0.95, name
    assert first["archive"]["rows"] == first["restore"]["rows"] == 200
    assert first["readers"]["missed"] == 0
    assert first["readers"]["adds_per_s"] > 0
    with sides.store_at(tmp_path / "folder-2400" / "store", 8) as side:
        times = [memory.time_ns for memory in side.store.database.stream(side.store.database.ids())]
        assert sorted(times) == [row * sides.STEP_NS for row in range(2400)]
    kept = {name: found for name, found in first.items() if name != "words"}
    file.write_text(json.dumps(kept))
    assert large.main(arguments(tmp_path)) == 0
    second = json.loads(file.read_text())
    assert second["words"]["p50_ms"] > 0
    assert {name: found for name, found in second.items() if name != "words"} == kept
    (case,) = json.loads((tmp_path / "out.json").read_text())["cases"]
    assert case == {"side": "folder", "rows": 2400, **second}


@pytest.mark.slow
def test_an_upgrade_reports_what_programs_of_both_releases_did(load: Any, tmp_path: Path) -> None:
    upgrade, root = load("service.large_upgrade"), load("lib.environment").ROOT
    older = tmp_path / "older"
    older.mkdir()
    (older / "memory").symlink_to(root / "memory")
    (older / "sparse_core").symlink_to(root / "sparse_core")
    found = upgrade.upgrade(older, tmp_path, "folder", tmp_path, rows=500)
    for who in ("older writer", "older reader", "newer writer", "newer reader"):
        assert found[who]["calls"] > 0, who
        assert found[who]["errors"] == 0, found[who]
    assert found["lost"] == 0
    assert found["check"] == "ok"


def test_newest_rows_are_the_last_that_pass(load: Any, tmp_path: Path) -> None:
    large, sides = load("service.large"), load("service.fleet_sides")
    options = large._options([str(tmp_path), "--rows", "12000", "--dim", "4"])
    rows = sides.rows_of(0, 12_000, 4, options.seed)
    for name, make in large._NEWEST.items():
        wanted = make(3, 12_000)
        assert np.array_equal(large._newest_rows(wanted, options), wanted.passes(rows)[-10:]), name
    rare = sides.Asked(label="rare", time_ns=(0, 6_000 * sides.STEP_NS))
    assert large._newest_rows(rare, options).tolist() == [7 + 1000 * number for number in range(6)]
