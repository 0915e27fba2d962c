"""The benchmark of a Llama with 2:4 layers, on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_all_sides_are_measured_and_agree(load: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    out = tmp_path / "out.json"
    options = ["--quick", "--no-compile", "--layers", "1", "--threads", "1", "--out", str(out)]
    assert load("language.generation").main(options) == 0
    values = json.loads(out.read_text())
    assert [(case["case"], case["sequences"], case["tokens"]) for case in values["cases"]] == [
        ("prefill", 1, 16),
        ("decode", 2, 8),
    ]
    for case in values["cases"]:
        assert list(case["sides"]) == ["dense", "2:4", "2:4 int8"]
        for side in case["sides"].values():
            assert side["agrees"]
            assert side["tokens_per_second"] > 0


@pytest.mark.slow
def test_a_call_repeats_itself(load: Any) -> None:
    """A decoding step starts from the same cache each time, so it gives the same logits."""
    transformers = pytest.importorskip("transformers")
    benchmark = load("language.generation")
    config = transformers.LlamaConfig(**benchmark._QUICK, num_hidden_layers=1, vocab_size=64)
    model = transformers.LlamaForCausalLM(config).eval()
    step = benchmark.Step(model, 2, 1, 5, seed=0)
    first = step()
    assert first.shape == (2, 64)
    assert (step() == first).all()
    # A cache gives what the whole sequence gives.
    whole = benchmark.Step(model, 2, 6, 0, seed=0)()
    assert (whole - first).abs().max() < 1e-4
