"""Checkpoints in the format ``sparse-24-bitmask``: bytes, round trips, and files that must be refused.

The expected tensors of the first test were written by compressed-tensors 0.12.2.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sparse_core.nm import NMPattern, densify, load_packed, prune, save_packed, sparsify
from sparse_core.nm.layers.int8_linear import SparseLinearInt8
from sparse_core.nm.layers.sparse_linear import SparseLinear


class Tied(nn.Module):
    """An embedding whose weight is also that of the last layer, as in small language models."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(12, 16)
        self.up, self.down = nn.Linear(16, 24), nn.Linear(24, 16, bias=False)
        self.head = nn.Linear(16, 12, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        output: Tensor = self.head(self.down(self.up(self.embedding(tokens)).relu()))
        return output


def pruned(dtype: torch.dtype = torch.float32) -> Tied:
    model = Tied(0).to(dtype)
    prune(model, NMPattern(2, 4), select="up|down")
    return model


def stored(**changes: Tensor | None) -> dict[str, Tensor]:
    """One layer as compressed-tensors stores it, with some parts changed or left out."""
    parts: dict[str, Tensor | None] = {
        "0.shape": torch.tensor([[1], [8]]),
        "0.compressed": torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.bfloat16),
        "0.bitmask": torch.tensor([[105]], dtype=torch.uint8),
    }
    parts.update({f"0.{name}": tensor for name, tensor in changes.items()})
    return {name: tensor for name, tensor in parts.items() if tensor is not None}


def test_reads_what_compressed_tensors_writes(tmp_path: Path) -> None:
    save_file(stored(), tmp_path / "layer.safetensors")
    model = nn.Sequential(nn.Linear(8, 1, bias=False)).bfloat16()
    load_packed(tmp_path / "layer.safetensors", model)
    assert isinstance(model[0], SparseLinear)
    assert model[0].weight.tolist() == [[1, 0, 0, 2, 0, 3, 4, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_round_trip_of_a_model_with_shared_weights(dtype: torch.dtype, tmp_path: Path) -> None:
    model = pruned(dtype)
    dense = {name: value.clone() for name, value in model.state_dict().items()}
    sparsify(model, select="up|down")
    (tmp_path / "config.json").write_text('{"model_type": "tied"}')
    assert save_packed(model, tmp_path, format="sparse-24-bitmask") == tmp_path
    names = set(load_file(tmp_path / "model.safetensors"))
    parts = {f"{layer}.{part}" for layer in ("up", "down") for part in ("shape", "compressed", "bitmask")}
    assert names == parts | {"embedding.weight", "up.bias"}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "tied"
    described = config["quantization_config"]["sparsity_config"]
    assert (described["format"], described["ignore"]) == ("sparse-24-bitmask", ["head"])

    loaded = Tied(1).to(dtype)
    load_packed(tmp_path, loaded)
    assert type(dict(loaded.named_modules())["up"]) is SparseLinear
    assert loaded.head.weight is loaded.embedding.weight
    restored = densify(loaded).state_dict()
    assert all(torch.equal(restored[name], value) for name, value in dense.items())


def test_a_folder_may_hold_several_files(tmp_path: Path) -> None:
    model = pruned()
    sparsify(model, select="up|down")
    save_packed(model, tmp_path, format="sparse-24-bitmask")
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    for number in range(2):
        part = {name: value for name, value in tensors.items() if name.startswith("up.") == (number == 0)}
        save_file(part, tmp_path / f"model-{number}.safetensors")
    tokens, loaded = torch.arange(12), Tied(1)
    load_packed(tmp_path, loaded)
    assert torch.equal(loaded(tokens), model(tokens))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compressed": None}, "layer 0: compressed missing"),
        ({"bitmask": torch.tensor([[104]], dtype=torch.uint8)}, "does not keep 2 of every 4 columns"),
        ({"shape": torch.tensor([[1], [12]])}, "1 x 12 does not fit"),
        ({"shape": torch.tensor([8])}, "shape must have two numbers"),
        ({"compressed": torch.ones(1, 4, dtype=torch.float8_e4m3fn)}, "float8_e4m3fn are not supported"),
        ({"weight_scale": torch.ones(1, 1)}, "the weight is quantized"),
    ],
)
def test_unusable_checkpoints_name_the_layer(
    changes: dict[str, Tensor | None], message: str, tmp_path: Path
) -> None:
    save_file(stored(**changes), tmp_path / "model.safetensors")
    model = nn.Sequential(nn.Linear(8, 1, bias=False))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        load_packed(tmp_path / "model.safetensors", model)
    assert torch.equal(model.state_dict()["0.weight"], before["0.weight"])


def test_missing_and_other_files(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 1))
    with pytest.raises(FileNotFoundError, match="file in this folder"):
        load_packed(tmp_path, model)
    save_file({"0.weight": torch.zeros(1, 8)}, tmp_path / "dense.safetensors")
    with pytest.raises(ValueError, match=r"no tensor is named \*.bitmask"):
        load_packed(tmp_path, model)
    (tmp_path / "dense.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="not a safetensors file"):
        load_packed(tmp_path, model)


def test_what_the_format_cannot_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        save_packed(_converted(NMPattern(2, 4)), tmp_path / "missing", format="sparse-24-bitmask")
    with pytest.raises(ValueError, match="2:4 weights only; layer 0"):
        save_packed(_converted(NMPattern(1, 4)), tmp_path, format="sparse-24-bitmask")
    quantised = _converted(NMPattern(2, 4), quantise=True)
    assert isinstance(quantised[0], SparseLinearInt8)
    with pytest.raises(ValueError, match="floating-point values; layer 0 has int8"):
        save_packed(quantised, tmp_path, format="sparse-24-bitmask")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="must be a JSON object"):
        save_packed(_converted(NMPattern(2, 4)), tmp_path, format="sparse-24-bitmask")
    assert not (tmp_path / "model.safetensors").exists()
    with pytest.raises(ValueError, match="format must be"):
        save_packed(_converted(NMPattern(2, 4)), tmp_path / "x", format="bitmask")  # type: ignore[arg-type]


def _converted(pattern: NMPattern, *, quantise: bool = False) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(8, 4))
    sparsify(model, pattern, quantise=quantise)
    return model


def test_zeros_among_the_kept_values_stay_in_place(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 2, bias=False))
    expected = torch.tensor([[0, 0, 0, 5, 0, 0, 0, 0], [-1, 0, 2, 0, 0, 0, 3, 4.0]])
    model.load_state_dict({"0.weight": expected})
    sparsify(model)
    save_packed(model, tmp_path, format="sparse-24-bitmask")
    loaded = nn.Sequential(nn.Linear(8, 2, bias=False))
    load_packed(tmp_path, loaded)
    assert isinstance(loaded[0], SparseLinear)
    assert torch.equal(loaded[0].weight, expected)
