"""The benchmark of the service: a short run of all its parts, and what it would say of a loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_run_loses_nothing(load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "serve.json"
    arguments = ["--quick", "--seconds", "6", "--clients", "3", "--robot-seconds", "8", "--dim", "16"]
    assert load("service.serve").main([*arguments, "--threads", "1", "--out", str(out)]) == 0
    assert "What was kept" in capsys.readouterr().out
    text = out.read_text()
    assert str(ROOT) not in text
    assert str(tmp_path) not in text
    values = json.loads(text)
    for name in ("load", "restart"):
        run = values[name]
        assert (run["errors"], run["unanswered"], run["lost"], run["sound"]) == (0, 0, 0, True)
        assert run["acknowledged"] > 0
    assert values["load"]["beyond"] == 0
    assert values["restart"]["sent_again"] > 0
    assert values["restart"]["start_s"] > 0
    assert values["load"]["operations"]["query"]["p99_ms"] >= values["load"]["operations"]["query"]["p50_ms"]
    hour = values["replay"]
    assert hour["observations"] == 8 * 80
    assert 0 < hour["memories"] < 640
    assert hour["slope_mb_per_hour"] is not None


def test_a_loss_is_seen(load: Any) -> None:
    bench = load("service.serve")
    answers = [{"acknowledged": [[0, [1, 2]]]}, {"acknowledged": [[4, [5]]]}]
    stored = {1: "client 0 batch 0 part 0", 2: "client 0 batch 0 part 1", 5: "client 1 batch 4 part 0"}
    assert bench._compare(stored, answers) == {"acknowledged": 3, "lost": 0, "beyond": 0}
    assert bench._compare({**stored, 9: "again"}, answers)["beyond"] == 1
    del stored[2]
    stored[5] = "client 1 batch 3 part 0"
    assert bench._compare(stored, answers)["lost"] == 2


def test_the_slope_is_that_of_the_second_half(load: Any) -> None:
    slope = load("service.replay").slope_mb_per_hour
    early = [{"robot_s": at, "resident_bytes": 10**8 * at} for at in range(4)]
    late = [{"robot_s": 3600 * at, "resident_bytes": int(5e8 + 2e6 * at)} for at in range(1, 5)]
    assert slope(early + late) == pytest.approx(2.0)
    assert slope(early[:1]) is None


def test_a_drive_is_the_same_each_time_and_sees_what_is_near(load: Any) -> None:
    module = load("service.replay")
    first, second = (module.Drive(4, 3).second(7) for _ in range(2))
    assert first == second
    assert len(first) == module.HZ * module.SEEN
    places = np.array([record["position"][:2] for record in first])
    assert np.linalg.norm(places - places.mean(axis=0), axis=1).max() < 100


def test_quick_runs_publish_no_result(load: Any) -> None:
    bench, results = load("service.serve"), load("lib.results")
    quick = bench._options(["--quick"])
    assert not quick.publish
    assert quick.out == bench._options([]).out == results.WORKING / "serve-cpu.json"
