"""The benchmark of sparse training checks what it times, and its tables say what it found."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture
def options() -> argparse.Namespace:
    return argparse.Namespace(device="cpu", rounds=2, threads=1, seed=0, quick=True, out=None, publish=False)


def test_sides_agree_and_are_published(
    load: Any, options: argparse.Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, sides, text = map(load, ("layers.dynamic", "layers.dynamic_sides", "publish.text"))
    names = ("steps", "forward", "updates", "memory", "speed-bars", "cpu")
    speed = {name: load("publish.blocks").BLOCKS[f"dynamic-{name}"] for name in names}
    monkeypatch.setattr(bench, "_MORE", {"cpu": ()})
    shapes = [sides.Shape("64 x 128", (128, 64), 8), sides.Shape("conv", (64, 64), 1, 4)]
    found = {
        "steps": [bench._step_case(shape, 0.9, options) for shape in shapes],
        "forward": [bench._forward_case(shape, 0.9, options) for shape in shapes],
    }
    options.out = tmp_path / "dynamic.json"
    bench._save(found, ["a note"], options, torch.device("cpu"))
    values = json.loads(options.out.read_text())
    assert (values["schema"], values["benchmark"]) == (1, "dynamic")
    linear, conv = values["steps"]
    assert linear["sides"].keys() == conv["sides"].keys() == set(bench._TRAINED)
    for case in [*values["steps"], *values["forward"]]:
        for side in case["sides"].values():
            assert side["agrees"]
            assert side["microseconds"]["median"] > 0
    # Weight, gradient, two moments and the same of the bias, in float32; the optimiser counts its steps.
    assert linear["sides"]["dense"]["held_mb"] == pytest.approx(4 * 4 * 64 * 129 / 2**20, abs=2e-3)
    assert linear["sides"]["block 64"]["held_mb"] > linear["sides"]["block 32"]["held_mb"]
    assert 0 <= values["bars"]["largest_update_share"] < 1
    assert set(values["bars"]["steps_faster"]) == {"64 x 128, 8 rows", "conv, 1 images"}

    values["environment"]["code"]["dirty"] = False
    monkeypatch.setattr(text, "load_result", lambda name: values)
    assert "64 x 128, 8 rows | 90%" in speed["steps"]()
    assert len(speed["forward"]().splitlines()) == 4
    assert len(speed["updates"]().splitlines()) == 6
    assert len(speed["memory"]().splitlines()) == 4
    assert "updates take under 2 %" in speed["speed-bars"]()
    assert speed["cpu"]().endswith(speed["forward"]())
    monkeypatch.setattr(text, "load_result", lambda name: None)
    assert [block() for block in speed.values()] == [""] * 6


def test_a_wrong_product_is_found(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = load("layers.dynamic_sides")
    shape = sides.Shape("64 x 64", (64, 64), 8)
    training = sides.Training(shape, sides.KINDS["block 32"], 0.5, torch.device("cpu"))
    assert sides.disagreement(training) < 1e-5
    layer = sides.sparse_layers(training.model)[0]
    right = layer._multiply
    monkeypatch.setattr(layer, "_multiply", lambda rows, bias: right(rows, bias) * 1.01)
    assert sides.disagreement(training) > 1e-3
