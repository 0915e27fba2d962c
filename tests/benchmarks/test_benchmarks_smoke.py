"""The benchmarks run and their result files hold what benchmarks/README.md says."""

from __future__ import annotations

import importlib
import json
import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
TINY = """
detector:
  pillars: {channels: 8, range_m: [0.0, -10.24, -3.0, 20.48, 10.24, 1.0]}
  backbone: {channels: [8, 8, 8], blocks: [1, 1, 1]}
  neck: {channels: 8, blocks: 1, out_channels: 8}
  head: {channels: 8, top_k: 8}
"""
SUMMARY = {"count", "median_ms", "lower_quartile_ms", "upper_quartile_ms", "iqr_ms", "p99_ms", "minimum_ms"}


@pytest.fixture(autouse=True)
def _same_threads() -> Any:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))

    def load_module(name: str) -> types.ModuleType:
        return importlib.import_module(f"benchmarks.{name}")

    return load_module


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    """Three scans of a flat street with a wall, in a KITTI folder."""
    generator = np.random.default_rng(0)
    for folder, names in (("velodyne_reduced", ("000000", "000001", "000002")), ("velodyne", ("000000",))):
        target = tmp_path / "kitti" / "training" / folder
        target.mkdir(parents=True)
        for name in names:
            ground = generator.uniform([0, -10, -1.8, 0], [20, 10, -1.6, 1], (1500, 4))
            wall = generator.uniform([5, 4, -1.7, 0], [15, 4.2, 0.5, 1], (500, 4))
            np.concatenate([ground, wall]).astype(np.float32).tofile(target / f"{name}.bin")
    return tmp_path / "kitti"


def _check_frame(values: dict[str, Any], benchmark: str) -> None:
    assert values["schema"] == 1
    assert values["benchmark"] == benchmark
    environment = values["environment"]
    assert {"time", "code", "hardware", "versions", "threads", "load_average"} <= environment.keys()
    assert {"commit", "dirty", "source_sha256"} == environment["code"].keys()
    assert re.fullmatch("[0-9a-f]{64}", environment["code"]["source_sha256"])
    assert environment["hardware"]["cpu"]["cores"] >= 1
    assert {"python", "torch", "numpy"} <= environment["versions"].keys()
    assert values["settings"]["device"] == "cpu"
    assert isinstance(values["notes"], list)
    # Results are published: nothing of the machine's folders may be in them.
    assert str(ROOT) not in json.dumps(values)


def test_detector_result_holds_both_sides(load: Any, kitti: Path, tmp_path: Path) -> None:
    config, out, png = tmp_path / "tiny.yaml", tmp_path / "out.json", tmp_path / "out.png"
    config.write_text(TINY)
    arguments = ["--data", str(kitti), "--frames", "2", "--rounds", "1", "--weights", "random", "--quick"]
    arguments += ["--config", str(config), "--no-compile", "--no-memory", "--threads", "1"]
    assert load("bench_detector").main([*arguments, "--out", str(out), "--png", str(png)]) == 0

    values = json.loads(out.read_text())
    _check_frame(values, "detector")
    assert str(tmp_path) not in out.read_text()
    assert values["settings"]["weights"] == "random"
    assert values["frames"]["kind"] == "KITTI velodyne_reduced"
    assert {"sparse", "dense", "sparse bf16", "dense bf16"} <= values["variants"].keys()
    for row in values["variants"].values():
        assert row["time"].keys() == SUMMARY
        assert row["time"]["count"] == len(row["samples_ms"]) == 2
        assert {"pillars", "encoder", "backbone", "neck", "head"} <= row["stages_ms"].keys()
    assert values["variants"]["sparse"]["agreement"] in (1.0, None)
    assert values["ratios"]["dense / sparse"]["median"] > 0
    assert {"dense", "sparse"} <= values["ratios"]["fastest dense / fastest sparse"].keys()
    scaling = {(row["kind"], row["factor"]): row for row in values["scaling"]}
    assert set(scaling) == {("range", 1), ("range", 2), ("tiled", 2), ("full scan", 1)}
    assert scaling["range", 2]["area_m2"] == pytest.approx(4 * scaling["range", 1]["area_m2"], rel=1e-3)
    # The same points fill the same pillars; tiles fill four times as many.
    assert scaling["range", 2]["pillars"] == scaling["range", 1]["pillars"]
    assert scaling["tiled", 2]["pillars"][0] == pytest.approx(4 * scaling["range", 1]["pillars"][0], rel=0.02)
    assert png.stat().st_size > 10_000


def test_detector_memory_is_measured_in_a_process_of_its_own(
    load: Any, kitti: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    arguments = ["--data", str(kitti), "--frames", "1", "--weights", "random", "--config", str(config)]
    assert load("bench_detector").main([*arguments, "--memory-of", "dense"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["peak_mb"] >= values["loaded_mb"] > 0
    assert values["delta_mb"] == pytest.approx(values["peak_mb"] - values["loaded_mb"], abs=0.2)


def test_conv_result_holds_all_sides(load: Any, kitti: Path, tmp_path: Path) -> None:
    out = tmp_path / "conv.json"
    arguments = ["--data", str(kitti), "--frames", "1", "--rounds", "1", "--channels", "8", "--threads", "1"]
    assert load("bench_conv").main([*arguments, "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    _check_frame(values, "conv")
    assert {row["layer"] for row in values["cases"]} == {"submanifold", "strided"}
    for row in values["cases"]:
        assert {"gather", "gather + map", "dense", "dense + canvas"} <= row["wall"].keys()
        assert all(summary.keys() == SUMMARY for summary in row["wall"].values())


def test_nms_result_holds_both_sides_and_they_agree(
    load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "nms.json"
    arguments = ["--counts", "16", "300", "--rounds", "1", "--threads", "1", "--json", "--out", str(out)]
    assert load("bench_nms").main(arguments) == 0
    values = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == values
    _check_frame(values, "nms")
    assert [row["boxes"] for row in values["cases"]] == [16, 300]
    assert all(row["equal"] for row in values["cases"])


def test_summary_is_that_of_numpy(load: Any) -> None:
    samples = np.random.default_rng(1).exponential(size=57)
    summary = load("timing").Summary.of(samples)
    low, middle, high = np.percentile(samples, [25, 50, 75])
    assert (summary.median_ms, summary.iqr_ms) == (pytest.approx(middle), pytest.approx(high - low))
    assert summary.p99_ms == pytest.approx(np.percentile(samples, 99))
    with pytest.raises(ValueError, match="at least one sample"):
        load("timing").Summary.of([])


def test_sides_are_interleaved_in_changing_order(load: Any) -> None:
    calls: list[str] = []
    sides = {name: lambda name=name: calls.append(name) for name in "abc"}
    times = load("timing").interleave(sides, torch.device("cpu"), rounds=20, warmup=2)
    rounds = ["".join(calls[start : start + 3]) for start in range(0, len(calls), 3)]
    assert all(sorted(entry) == ["a", "b", "c"] for entry in rounds)
    assert len(rounds) == 22
    assert len(set(rounds[2:])) > 2
    assert {name: len(values) for name, values in times.items()} == {"a": 20, "b": 20, "c": 20}


def test_budget_ends_early_but_not_before_three_rounds(load: Any) -> None:
    times = load("timing").interleave({"a": lambda: None}, torch.device("cpu"), rounds=50, budget_s=0.0)
    assert len(times["a"]) == 3


def test_a_variant_that_cannot_run_is_a_note(load: Any) -> None:
    variants = load("variants")

    def fail() -> Any:
        raise RuntimeError("no such kernel\nmore")

    assert variants.prepare(fail, np.zeros((0, 4), np.float32), limit_s=5.0) == "RuntimeError: no such kernel"


def test_what_takes_too_long_is_interrupted(load: Any) -> None:
    variants = load("variants")

    def wait() -> Any:
        while True:
            pass

    reason = variants.prepare(wait, np.zeros((0, 4), np.float32), limit_s=0.05)
    assert "OutOfTimeError" in reason
