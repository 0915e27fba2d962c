"""The study of sparse training runs, its arithmetic holds, and it goes on where it was interrupted."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn


@pytest.fixture
def digits_file(tmp_path: Path) -> Path:
    import numpy as np

    random = np.random.default_rng(0)
    target = random.integers(0, 10, 1797)
    # Each class lights up a region of its own.
    data = (random.random((1797, 64)) * 4 + 12 * (np.arange(64) // 6 == target[:, None])).astype("uint8")
    path = tmp_path / "digits.npz"
    np.savez(path, data=data, target=target)
    return path


@pytest.fixture
def bench(load: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    tasks = load("layers.dynamic_tasks")
    monkeypatch.setenv(tasks.DIGITS_VARIABLE, "")
    tasks.load_digits.cache_clear()
    yield load("layers.dynamic_accuracy")
    tasks.load_digits.cache_clear()


def test_every_row_is_measured_and_summed_up(bench: Any, digits_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.json"
    words = ["--quick", "--tasks", "digits-mlp", "--threads", "1", "--digits", str(digits_file)]
    assert bench.main([*words, "--lengths", "1", "3", "--out", str(out)]) == 0
    assert str(tmp_path) not in out.read_text()
    values = json.loads(out.read_text())
    assert values["benchmark"] == "dynamic-accuracy"
    cases = {(case["label"], case["length"]): case for case in values["cases"]}
    labels = {"dense", "small dense", "static random", "SET", "RigL", "RigL, fan-in", "RigL, blocks"}
    assert set(cases) == {(label, length) for label in labels for length in (1, 3)}
    for (label, length), case in cases.items():
        accuracy = case["measures"]["accuracy"]
        assert accuracy["n"] == len(case["seeds"]) == 2
        assert accuracy["mean"] == pytest.approx(statistics.fmean(accuracy["values"]), abs=1e-5)
        assert accuracy["std"] == pytest.approx(statistics.stdev(accuracy["values"]), abs=1e-5)
        assert case["steps"] == 10 * length
        if label == "dense":
            assert case["cost"] == length
            assert case["parameters"] == 64 * 256 + 256 * 256 + 256 * 10 + 2 * 256 + 10
        else:
            assert case["parameters"] < 0.15 * cases["dense", 1]["parameters"]
            assert 0.1 * length < case["cost"] < 0.15 * length
    assert cases["small dense", 1]["parameters"] <= cases["RigL", 1]["parameters"]
    assert cases["RigL", 3]["cost"] > cases["SET", 3]["cost"] == cases["static random", 3]["cost"]
    moved = {run["method"]: run["updates"] for run in values["runs"] if run["length"] == 3}
    assert moved["rigl"] == moved["set"] == 1
    assert moved["static"] == moved["dense"] == 0
    assert out.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"


def test_finished_trainings_are_kept_and_other_settings_refused(
    bench: Any, digits_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.json"
    words = ["--quick", "--tasks", "digits-mlp", "--threads", "1", "--lengths", "1", "--resume"]
    words += ["--digits", str(digits_file), "--out", str(out), "--methods", "dense"]
    assert bench.main([*words, "--seeds", "1"]) == 0
    values = json.loads(out.read_text())
    values["runs"][0]["accuracy"] = 0.1234
    out.write_text(json.dumps(values))
    assert bench.main([*words, "--seeds", "2"]) == 0
    runs = json.loads(out.read_text())["runs"]
    assert [run["seed"] for run in runs] == [0, 1]
    assert runs[0]["accuracy"] == 0.1234
    with pytest.raises(ValueError, match="other settings"):
        bench.main([*words, "--steps", "4"])
    # No time: nothing is begun, what is there stays.
    assert bench.main([*words, "--seeds", "3", "--budget-s", "1e-9"]) == 0
    assert len(json.loads(out.read_text())["runs"]) == 2


def test_a_training_that_fails_is_named(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(run: Any) -> Any:
        raise ValueError("weights are NaN")

    monkeypatch.setattr(bench, "train", fails)
    out = tmp_path / "x.json"
    words = ["--quick", "--tasks", "digits-mlp", "--threads", "1", "--methods", "dense", "--lengths", "1"]
    assert bench.main([*words, "--seeds", "1", "--out", str(out)]) == 1
    values = json.loads(out.read_text())
    assert values["runs"] == []
    assert any("weights are NaN" in note for note in values["notes"])


def test_the_cost_of_a_training(load: Any) -> None:
    rows = load("layers.dynamic_rows")
    layers = {"a": rows.LayerCost(100.0, 0.1), "b": rows.LayerCost(50.0, 1.0)}
    cost = rows.training_cost(layers, 30.0, steps=500, dense_steps=100, updates=10, by_gradient=True)
    # Forward 10 + 50 + 30 of 180; ten times the 90 multiply-adds that the gradient of the whole weight adds.
    assert cost == pytest.approx((3 * 90 * 500 + 10 * 90) / (3 * 180 * 100))
    again = rows.training_cost(layers, 30.0, steps=500, dense_steps=100, updates=10, by_gradient=False)
    assert again == pytest.approx(5 * 90 / 180)


def test_multiply_adds_are_counted(load: Any) -> None:
    rows = load("layers.dynamic_rows")
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 5, 1), nn.Flatten(), nn.Linear(320, 7))
    found, rest = rows.count_forward(model, torch.zeros(1, 3, 8, 8), {"0", "3"})
    assert found == {"0": 64 * 4 * 27, "3": 320 * 7}
    assert rest == 64 * 4 * 5
    assert not model[0]._forward_hooks


def test_text_task_learns_from_a_text(load: Any, tmp_path: Path) -> None:
    tasks, training, rows = (
        load("layers.dynamic_tasks"),
        load("layers.dynamic_training"),
        load("layers.dynamic_rows"),
    )
    text = tmp_path / "text.txt"
    text.write_text("a quick brown fox jumps over the lazy dog\n" * 100)
    parts = tasks.load_text(str(text))
    assert parts.symbols == len(set(text.read_text())) + 1
    # What is to be predicted is the text one character on.
    assert torch.equal(parts.training.inputs.flatten()[1:], parts.training.targets.flatten()[:-1])
    row = rows.Row("rigl", "unstructured", 0.9, 1)
    short, long = (
        training.train(training.Run("text-transformer", row, 0, steps, "test", str(text)))
        for steps in (2, 60)
    )
    assert long["bits"] < 0.6 * short["bits"]
    assert long["updates"] == 2
    assert long["density"] == pytest.approx(0.1, abs=0.01)
    again = training.train(training.Run("text-transformer", row, 0, 60, "test", str(text)))
    assert {**again, "seconds": 0} == {**long, "seconds": 0}
