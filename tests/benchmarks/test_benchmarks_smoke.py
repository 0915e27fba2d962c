"""The benchmarks run and their result files hold what benchmarks/README.md says."""

from __future__ import annotations

import json
import re
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


@pytest.mark.slow
def test_detector_result_holds_both_sides(load: Any, kitti: Path, tmp_path: Path) -> None:
    config, out, png = tmp_path / "tiny.yaml", tmp_path / "out.json", tmp_path / "out.png"
    config.write_text(TINY)
    arguments = ["--data", str(kitti), "--frames", "2", "--rounds", "1", "--weights", "random", "--quick"]
    arguments += ["--config", str(config), "--no-compile", "--no-memory", "--threads", "1"]
    assert load("detector.detector").main([*arguments, "--out", str(out), "--png", str(png)]) == 0

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
    assert set(scaling) == {("range", 1), ("range", 2), ("tiled", 2), ("full scan", 1), ("highway", 1)}
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
    assert load("detector.detector").main([*arguments, "--memory-of", "dense"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["peak_mb"] >= values["loaded_mb"] > 0
    assert values["delta_mb"] == pytest.approx(values["peak_mb"] - values["loaded_mb"], abs=0.2)


def test_conv_result_holds_all_sides(load: Any, kitti: Path, tmp_path: Path) -> None:
    out = tmp_path / "conv.json"
    arguments = ["--data", str(kitti), "--frames", "1", "--rounds", "1", "--channels", "8", "--threads", "1"]
    assert load("sparse.conv").main([*arguments, "--sites", "20", "90", "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    _check_frame(values, "conv")
    assert {row["layer"] for row in values["cases"]} == {"submanifold", "strided"}
    for row in values["cases"]:
        assert {"gather", "gather + map", "dense", "dense + canvas"} <= row["wall"].keys()
        assert all(summary.keys() == SUMMARY for summary in row["wall"].values())
    assert [row["sites"] for row in values["sites"]] == [20, 90]
    for row in values["sites"]:
        assert row["sites"] <= row["pairs"] <= 9 * row["sites"]
        assert {"gather", "gather + map"} <= row["device_us"].keys() == row["tflops"].keys()


def test_nms_result_holds_both_sides_and_they_agree(
    load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "nms.json"
    arguments = ["--counts", "16", "300", "--rounds", "1", "--threads", "1", "--json", "--out", str(out)]
    assert load("detector.nms").main(arguments) == 0
    values = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == values
    _check_frame(values, "nms")
    assert [(row["boxes"], row["crowded"]) for row in values["cases"]] == [
        (16, False),
        (300, False),
        (16, True),
        (300, True),
    ]
    assert all(row["equal"] for row in values["cases"])


def test_claims_result_holds_a_training_step(load: Any, tmp_path: Path) -> None:
    out = tmp_path / "claims.json"
    assert load("sparse.claims").main(["--quick", "--rounds", "1", "--threads", "1", "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    _check_frame(values, "claims")
    assert [(row["width"], row["rows"]) for row in values["steps"]] == [(64, 128)]
    assert values["steps"][0]["sides"].keys() == {"dense", "2:4"}


def test_spmv_result_holds_all_sides_and_they_agree(load: Any, tmp_path: Path) -> None:
    out = tmp_path / "spmv.json"
    arguments = ["--quick", "--rounds", "2", "--threads", "1", "--out", str(out)]
    assert load("sparse.spmv").main(arguments) == 0
    values = json.loads(out.read_text())
    _check_frame(values, "spmv")
    assert len(values["cases"]) == 13
    for row in values["cases"]:
        assert {"torch CSR", "CSR", "chosen", "CompactCSR"} <= row["sides"].keys()
        for side in row["sides"].values():
            assert side["agrees"]
            assert side["time"].keys() == SUMMARY
            # 1 GB/s is a million bytes a millisecond.
            rate = side["bytes"] / 1e6 / side["time"]["median_ms"]
            assert side["gb_s"] == pytest.approx(rate, rel=0.01, abs=0.1)
            rounded = 0.02 + 0.1 / row["copy_gb_s"]
            assert side["of_copy"] == pytest.approx(side["gb_s"] / row["copy_gb_s"], rel=0.05, abs=rounded)
        assert row["sides"]["torch CSR"]["speedup"]["median"] == 1.0
        assert {"choose_format", "first product", "SlicedELL", "CompactCSR"} <= row["conversions"].keys()
        assert row["chosen"]["name"] in ("CSR", "dense")
    ratios = [row["sides"]["CSR"]["speedup"]["median"] for row in values["cases"]]
    summary = values["summary"]["CSR over torch CSR"]
    assert summary["geometric_mean"] == pytest.approx(np.exp(np.log(ratios).mean()), abs=1e-3)
    assert summary["worst"] == min(ratios)


def test_block_spmm_result_holds_all_sides_and_the_break_even(load: Any, tmp_path: Path) -> None:
    out = tmp_path / "block_spmm.json"
    arguments = ["--quick", "--size", "128", "--blocks", "32", "--rounds", "1", "--threads", "1"]
    assert load("sparse.block_spmm").main([*arguments, "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    _check_frame(values, "block_spmm")
    assert [(row["block"], row["sparsity"]) for row in values["cases"]] == [(32, 0.5), (32, 0.9)]
    assert [row["blocks"] for row in values["cases"]] == [8, 2]
    for row in values["cases"]:
        assert {"BSR", "dense"} <= row["sides"].keys()
        assert all(side["agrees"] for side in row["sides"].values())
    assert values["break_even"].keys() == {"32"}


def test_break_even_is_where_the_speed_up_crosses_one(load: Any) -> None:
    break_even = load("sparse.block_spmm").break_even

    def rows(*points: tuple[float, float]) -> list[dict[str, Any]]:
        return [{"sparsity": share, "over": {"dense": {"median": gain}}} for share, gain in points]

    assert break_even(rows((0.3, 0.5), (0.5, 2.0), (0.9, 8.0))) == {"sparsity": 0.4, "found": "between"}
    assert break_even(rows((0.3, 1.2), (0.5, 2.0))) == {"sparsity": 0.3, "found": "below"}
    assert break_even(rows((0.3, 0.2), (0.5, 0.9))) == {"sparsity": None, "found": "never"}
    # A later loss counts: from there on it wins.
    assert break_even(rows((0.3, 2.0), (0.5, 0.5), (0.7, 2.0)))["sparsity"] == pytest.approx(0.6)


def test_assembly_sides_agree(load: Any, tmp_path: Path) -> None:
    out = tmp_path / "assembly.json"
    arguments = ["--quick", "--rounds", "1", "--threads", "1", "--out", str(out)]
    assert load("sparse.assembly").main(arguments) == 0
    values = json.loads(out.read_text())
    _check_frame(values, "assembly")
    kinds = {(row["duplicates"], row["order"]) for row in values["cases"]}
    assert kinds == {(share, order) for share in (0.0, 0.1, 0.5) for order in ("shuffled", "sorted")}
    for row in values["cases"]:
        assert row["agrees"]
        assert row["time"].keys() == {"ours", "ours int64", "torch", "scipy"}
        assert row["stored"] == pytest.approx((1 - row["duplicates"]) * row["entries"], rel=0.02)


def test_assembly_of_another_structure_does_not_agree(load: Any) -> None:
    assembly = load("sparse.assembly")
    entries = assembly.make_entries(1000, 100, 0.5, "shuffled", torch.device("cpu"), seed=0)
    exact = assembly._torch_csr(entries, entries.values.double())
    sides = assembly._sides(entries)
    assert all(assembly._error(side(), exact) <= 1e-5 for side in sides.values())
    moved = entries._replace(indices=entries.indices.flip(0))
    assert all(assembly._error(side(), exact) == float("inf") for side in assembly._sides(moved).values())
    doubled = entries._replace(values=2 * entries.values)
    assert all(assembly._error(side(), exact) > 0.1 for side in assembly._sides(doubled).values())


def test_solvers_reach_the_residual_and_are_drawn(load: Any, tmp_path: Path) -> None:
    out = tmp_path / "solvers.json"
    arguments = ["--grid", "8", "--rounds", "1", "--threads", "1", "--out", str(out)]
    assert load("sparse.solvers").main(arguments) == 0
    values = json.loads(out.read_text())
    _check_frame(values, "solvers")
    rows = {row["name"]: row for row in values["cases"]}
    assert {"none", "jacobi", "gauss_seidel", "ic0 multicolour", "scipy"} <= rows.keys()
    assert all(row["agrees"] and row["residual"] <= 2e-5 for row in rows.values())
    assert rows["ic0 multicolour"]["iterations"] < rows["none"]["iterations"]
    assert len(rows["none"]["result"]["residuals"]) == rows["none"]["iterations"] + 1
    drawn = (tmp_path / "solvers.png").read_bytes()
    assert len(drawn) > 10_000
    again = tmp_path / "again.png"
    assert load("sparse.solvers").main(["--draw-from", str(out), "--png", str(again)]) == 0
    assert again.read_bytes() == drawn


def test_the_textbook_solver_solves(load: Any) -> None:
    from sparse_core.formats import generators

    matrix = generators.poisson_2d(8, dtype=torch.float64)
    b = torch.arange(64.0, dtype=torch.float64)
    found = load("sparse.solvers").textbook_cg(matrix.to_torch(), b, 1e-10)
    torch.testing.assert_close(found.x, torch.linalg.solve(matrix.to_dense(), b))
    assert found.iterations % 10 == 0


def test_formats_result_holds_the_regrets_and_they_are_drawn(load: Any, tmp_path: Path) -> None:
    out, png = tmp_path / "formats.json", tmp_path / "regret.png"
    arguments = ["--quick", "--rounds", "1", "--threads", "1", "--out", str(out), "--png", str(png)]
    assert load("sparse.formats").main(arguments) == 0
    values = json.loads(out.read_text())
    _check_frame(values, "formats")
    assert {row["group"] for row in values["cases"]} == {"sparsity", "row lengths", "blocks", "size"}
    assert {row["operation"] for row in values["cases"]} == {"spmv", "spmm"}
    for row in values["cases"]:
        assert row["agrees"]
        medians = {name: entry["median_ms"] for name, entry in row["time"].items()}
        # Two formats can take the same time to the last digit written; the best is one of the fastest.
        assert medians[row["best"]] == min(medians.values())
        for rule in ("ours", "classic"):
            assert row[rule]["format"] in medians
            assert row[rule]["regret"] >= 1.0
    for operation, rules in values["summary"].items():
        regrets = [row["ours"]["regret"] for row in values["cases"] if row["operation"] == operation]
        assert rules["ours"]["worst"] == max(regrets)
        assert rules["ours"]["geometric_mean"] == pytest.approx(np.exp(np.log(regrets).mean()), abs=1e-3)
    drawn = png.read_bytes()
    assert len(drawn) > 10_000
    assert load("sparse.formats").main(["--draw-from", str(out)]) == 0
    assert out.with_suffix(".png").read_bytes() == drawn


def test_the_sweep_makes_what_its_names_say(load: Any) -> None:
    formats = load("sparse.formats")
    matrix = formats.random_lengths(200, 3, 7, 0, torch.device("cpu"))
    matrix.validate()
    lengths = matrix.row_lengths()
    assert (int(lengths.min()), int(lengths.max())) == (3, 7)
    cases = {case.name: case for case in formats.sweep(torch.device("cpu"), quick=True, seed=0)}
    assert cases["256², 90 % zero"].build(torch.device("cpu")).sparsity == pytest.approx(0.9, abs=0.01)
    blocks = cases["256², 16-blocks, 90 % zero"].build(torch.device("cpu"))
    assert blocks.sparsity == pytest.approx(0.9, abs=0.01)


def test_summary_is_that_of_numpy(load: Any) -> None:
    samples = np.random.default_rng(1).exponential(size=57)
    summary = load("lib.timing").Summary.of(samples)
    low, middle, high = np.percentile(samples, [25, 50, 75])
    assert (summary.median_ms, summary.iqr_ms) == (pytest.approx(middle), pytest.approx(high - low))
    assert summary.p99_ms == pytest.approx(np.percentile(samples, 99))
    with pytest.raises(ValueError, match="at least one sample"):
        load("lib.timing").Summary.of([])


def test_sides_are_interleaved_in_changing_order(load: Any) -> None:
    calls: list[str] = []
    sides = {name: lambda name=name: calls.append(name) for name in "abc"}
    times = load("lib.timing").interleave(sides, torch.device("cpu"), rounds=20, warmup=2)
    rounds = ["".join(calls[start : start + 3]) for start in range(0, len(calls), 3)]
    assert all(sorted(entry) == ["a", "b", "c"] for entry in rounds)
    assert len(rounds) == 22
    assert len(set(rounds[2:])) > 2
    assert {name: len(values) for name, values in times.items()} == {"a": 20, "b": 20, "c": 20}


def test_budget_ends_early_but_not_before_three_rounds(load: Any) -> None:
    times = load("lib.timing").interleave({"a": lambda: None}, torch.device("cpu"), rounds=50, budget_s=0.0)
    assert len(times["a"]) == 3


def test_a_variant_that_cannot_run_is_a_note(load: Any) -> None:
    variants = load("detector.variants")

    def fail() -> Any:
        raise RuntimeError("no such kernel\nmore")

    assert variants.prepare(fail, np.zeros((0, 4), np.float32), limit_s=5.0) == "RuntimeError: no such kernel"


def test_what_takes_too_long_is_interrupted(load: Any) -> None:
    variants = load("detector.variants")

    def wait() -> Any:
        while True:
            pass

    reason = variants.prepare(wait, np.zeros((0, 4), np.float32), limit_s=0.05)
    assert "OutOfTimeError" in reason
