"""The benchmarks of merging run, compare results before they tell times, and are published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]


def test_speed_result_holds_all_sides_and_they_agree(load: Any, tmp_path: Path) -> None:
    out = tmp_path / "merging.json"
    arguments = ["--sizes", "30000", "60000", "--rounds", "2", "1", "--models", "3", "--threads", "1"]
    assert load("merging.merging").main([*arguments, "--stable-up-to", "40000", "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    assert (values["schema"], values["benchmark"]) == (1, "merging")
    assert str(ROOT) not in out.read_text()
    first, second = values["cases"]
    assert first["samples_ms"].keys() == {"thresholds", "argsort", "stable argsort"}
    assert second["samples_ms"].keys() == {"thresholds", "argsort"}
    assert [len(case["samples_ms"]["thresholds"]) for case in (first, second)] == [2, 1]
    assert all(side["agrees"] for case in (first, second) for side in case["compared"].values())
    assert first["compared"]["stable argsort"]["ties"] == 0
    assert first["over"]["argsort"]["median"] > 0
    assert [row["values"] for row in first["task_vector"]] == ["int4", "int8", "float16"]
    for row in first["task_vector"]:
        assert row["of_16_bits"] == pytest.approx(2 * row["bytes"] / (4 * first["parameters"]), abs=1e-4)


def test_plain_ties_is_that_of_the_paper(load: Any) -> None:
    plain = load("merging.plain").plain_ties
    base = torch.zeros(4)
    deltas = [torch.tensor([0.5, 0.0, 0.9, 0.1]), torch.tensor([-0.3, 0.8, 0.7, 0.0])]
    # Kept: 0.5 and 0.9 of the first, 0.8 and 0.7 of the second.
    assert plain(base, deltas, 0.5).tolist() == pytest.approx([0.5, 0.8, 0.8, 0.0])


def test_only_ties_explain_a_difference(load: Any) -> None:
    compare = load("merging.plain").compare
    vectors = [{"w": torch.tensor([1.0, 1.0, 0.5, 0.1])}]
    ours, other = {"w": torch.tensor([1.0, 0.0, 0.0, 0.0])}, {"w": torch.tensor([0.0, 1.0, 0.0, 0.0])}
    found = compare(ours, other, vectors, 0.25, ties=True)
    assert (found["ties"], found["agrees"], found["same"]) == (2, True, 0.5)
    assert not compare(ours, other, vectors, 0.25, ties=False)["agrees"]
    wrong = {"w": torch.tensor([1.0, 0.0, 0.5, 0.0])}
    assert not compare(ours, wrong, vectors, 0.25, ties=True)["agrees"]


def test_memory_of_files_is_that_of_a_process_of_its_own(load: Any, tmp_path: Path) -> None:
    out = tmp_path / "files.json"
    arguments = ["--sizes", "400000", "--models", "2", "--threads", "1", "--folder", str(tmp_path)]
    assert load("merging.merging_files").main([*arguments, "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    assert str(tmp_path) not in out.read_text()
    (case,) = values["cases"]
    assert case["all_models_bytes"] == 3 * case["model_bytes"]
    assert case["largest_tensor_bytes"] == 4 * 80_000
    assert case["own_bytes"] > 0
    assert case["peak_bytes"] > 0
    assert list(tmp_path.iterdir()) == [out]
