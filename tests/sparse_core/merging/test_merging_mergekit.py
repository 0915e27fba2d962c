"""Recipes through mergekit itself, where it is installed (docs/merging.md says how)."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

from sparse_core.merging import merge, merge_files, parse_recipe
from sparse_core.merging.arithmetic.masks import random_words

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("mergekit")]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
LAYER = {
    "input_layernorm": (32,),
    "post_attention_layernorm": (32,),
    "self_attn.q_proj": (32, 32),
    "self_attn.k_proj": (16, 32),
    "self_attn.v_proj": (16, 32),
    "self_attn.o_proj": (32, 32),
    "mlp.gate_proj": (48, 32),
    "mlp.up_proj": (48, 32),
    "mlp.down_proj": (32, 48),
}

#: Method, models, base or none, parameters of the recipe, parameters of each model.
CASES = {
    "task arithmetic": ("task_arithmetic", "abc", True, "{weight: 0.4, lambda: 0.7, normalize: true}", "{}"),
    "ties by gradient": ("ties", "abc", True, "{weight: [0.2, 1, 0.5], int8_mask: true}", "{density: 0.4}"),
    "ties by filters": (
        "ties",
        "abc",
        True,
        "{density: 0.5, weight: [{filter: mlp, value: [0, 1]}, {filter: lm_head, value: [0.2, 0.9]},"
        " {value: 0.3}]}",
        "{}",
    ),
    "ties rescaled": ("ties", "abc", True, "{weight: 0.5, density: 0.3, rescale: true}", "{}"),
    "task arithmetic by lambda": (
        "task_arithmetic",
        "ab",
        True,
        "{weight: 0.5, lambda: [{filter: mlp, value: [0, 2]}, {filter: norm, value: 0.3}]}",
        "{}",
    ),
    "breadcrumbs": ("breadcrumbs", "abc", True, "{weight: 0.5, density: 0.6, gamma: 0.05}", "{}"),
    "breadcrumbs rescaled": ("breadcrumbs", "abc", True, "{weight: 0.5, density: 0.6, rescale: true}", "{}"),
    "breadcrumbs with ties, rescaled": (
        "breadcrumbs_ties",
        "abc",
        True,
        "{weight: [0.5, 0.9], density: 0.6, gamma: 0.02, rescale: true, lambda: 1.3}",
        "{}",
    ),
    "dare of all": ("dare_linear", "abc", True, "{weight: 0.5, density: 1.0}", "{}"),
    "della of all": ("della", "abc", True, "{weight: 0.5, density: 1.0}", "{}"),
    "linear": ("linear", "abc", False, "{weight: [1, 0.2]}", "{}"),
    "linear with the base": ("linear", "abc", True, "{weight: 0.6}", "{}"),
    "slerp by gradients": (
        "slerp",
        "a",
        True,
        "{t: [{filter: self_attn, value: [0, 0.5, 0.3, 0.7, 1]}, {filter: mlp, value: [1, 0.5, 0]},"
        " {value: 0.5}]}",
        "{}",
    ),
    "nuslerp": ("nuslerp", "ab", True, "{weight: [0.3, 0.9]}", "{}"),
    "nuslerp without base": ("nuslerp", "ab", False, "{weight: 0.3}", "{}"),
    "nuslerp of rows": ("nuslerp", "ab", True, "{nuslerp_flatten: false}", "{weight: 0.4}"),
    "nuslerp of columns": (
        "nuslerp",
        "ab",
        True,
        "{nuslerp_flatten: false, nuslerp_row_wise: true}",
        "{weight: 0.4}",
    ),
    "model stock": ("model_stock", "abc", True, "{}", "{}"),
    "model stock of rows": ("model_stock", "abc", True, "{filter_wise: true}", "{}"),
    "karcher": ("karcher", "abc", False, "{}", "{}"),
    "karcher with the base": ("karcher", "abc", True, "{max_iter: 3}", "{}"),
    "sce": ("sce", "abc", True, "{select_topk: 0.3}", "{}"),
    "sce of all": ("sce", "abc", True, "{}", "{}"),
    "passthrough": ("passthrough", "a", False, "{}", "{}"),
    "passthrough with scales": (
        "passthrough",
        "a",
        False,
        "{scale: [{filter: o_proj, value: 0.0}, {filter: mlp, value: [0.5, 2]}, {value: 1.0}]}",
        "{}",
    ),
}


@pytest.fixture
def mergekit() -> Iterator[Any]:
    """The package, silenced; skips where it is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("mergekit.merge", reason="mergekit is not installed", exc_type=ImportError)
        logging.disable(logging.CRITICAL)
        yield
        logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama of random numbers, and three others near it."""
    folder = tmp_path_factory.mktemp("models")
    shapes = {"model.embed_tokens.weight": (40, 32), "model.norm.weight": (32,), "lm_head.weight": (40, 32)}
    for layer in range(4):
        shapes |= {f"model.layers.{layer}.{part}.weight": shape for part, shape in LAYER.items()}
    base: dict[str, Tensor] = {}
    for number, (name, scale) in enumerate({"base": 1.0, "a": 0.3, "b": 0.2, "c": 0.25}.items()):
        generator = torch.Generator().manual_seed(number)
        state = {
            key: torch.randn(shape, generator=generator) * scale + base.get(key, 0.0)
            for key, shape in shapes.items()
        }
        base = base or state
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(CONFIG))
        save_file(state, folder / name / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("case", CASES)
def test_recipes_give_what_mergekit_gives(case: str, models: Path, tmp_path: Path) -> None:
    from mergekit.config import MergeConfiguration
    from mergekit.merge import run_merge
    from mergekit.options import MergeOptions

    method, names, with_base, parameters, own = CASES[case]
    recipe: dict[str, Any] = {
        "merge_method": method,
        "models": [{"model": str(models / name), "parameters": yaml.safe_load(own)} for name in names],
        "parameters": yaml.safe_load(parameters),
        "dtype": "float32",
    }
    if with_base:
        recipe["base_model"] = str(models / "base")
    options = MergeOptions(quiet=True, copy_tokenizer=False, write_model_card=False)
    run_merge(MergeConfiguration.model_validate(recipe), str(tmp_path / "theirs"), options)
    report = merge_files(parse_recipe(recipe), tmp_path / "ours")
    assert [note for note in report.notes if "int8_mask" not in note] == []
    theirs, ours = (
        {
            key: value
            for file in (tmp_path / name).glob("*.safetensors")
            for key, value in load_file(file).items()
        }
        for name in ("theirs", "ours")
    )
    assert theirs.keys() == ours.keys()
    for key, expected in theirs.items():
        # Numbers reach 4; mergekit adds up lengths and angles in float32.
        torch.testing.assert_close(
            ours[key], expected, rtol=0, atol=2e-6, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.parametrize("method", ["dare_linear", "dare_ties", "della", "della_linear"])
@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("shape", [(30, 40), (500,), (6, 8, 3, 3)])
def test_random_shares_by_the_same_draws(
    method: str, rescale: bool, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """mergekit's generator is replaced by ours; what is made of the draws must be the same."""
    from mergekit.merge_methods import merge_tensors

    generator = torch.Generator().manual_seed(0)
    base = torch.randn(shape, generator=generator)
    tuned = [base + 0.3 * torch.randn(shape, generator=generator) for _ in range(3)]
    calls: list[int] = []

    def bernoulli(probability: Tensor) -> Tensor:
        words = random_words(5, len(calls), "w", probability.numel()).astype(np.float64) / 2**32
        calls.append(1)
        return (torch.from_numpy(words).reshape(probability.shape) < probability).to(probability.dtype)

    monkeypatch.setattr(torch, "bernoulli", bernoulli)
    given: dict[str, Any] = {"weight": [0.5, 0.9, -0.2], "density": 0.4, "rescale": rescale}
    if method.startswith("della"):
        given["epsilon"] = 0.2
    expected = merge_tensors([base, *tuned], method, parameters=given, base_index=0)
    assert len(calls) == 3
    found = merge(
        {"w": base},
        [{"w": model - base} for model in tuned],
        method,
        [0.5, 0.9, -0.2],
        0.4,
        5,
        epsilon=given.get("epsilon", 0.15),
        rescale="l1" if rescale else False,
    )
    torch.testing.assert_close(found["w"], expected, rtol=0, atol=3e-6)
