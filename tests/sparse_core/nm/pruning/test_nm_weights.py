"""Layers whose weight is not (out, in) in ``weight``: Conv1D of transformers, attention's in_proj, others."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm import (
    Block,
    GradientScore,
    MaskRefresher,
    NMPattern,
    SparseLinear,
    attach_masks,
    check_nm,
    collect_inputs,
    densify,
    load_packed,
    prune,
    save_packed,
    sparsify,
)
from sparse_core.nm.pruning.selection import Conv1D as AnyConv1D
from sparse_core.nm.pruning.selection import as_linear


class Conv1D(nn.Module):
    """GPT-2's linear layer, with what identifies the one of transformers."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.randn(nf))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Mlp(nn.Module):
    """Two layers, as of GPT-2 or of plain ones."""

    def __init__(self, plain: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = Conv1D(16, 8), Conv1D(8, 16)
        if plain:
            self.up, self.down = as_linear(self.up), as_linear(self.down)

    def forward(self, x: Tensor) -> Any:
        return self.down(self.up(x).relu())


def rows() -> Tensor:
    return torch.randn(64, 8, generator=torch.Generator().manual_seed(1))


def test_what_counts_as_conv1d() -> None:
    layer = Conv1D(6, 4)
    assert isinstance(layer, AnyConv1D)
    assert not isinstance(nn.Conv1d(4, 6, 1), AnyConv1D)
    layer.nf = 4
    assert not isinstance(layer, AnyConv1D)
    torch.testing.assert_close(as_linear(Mlp(False).up)(rows()), Mlp(False).up(rows()))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compensate": True},
        {"score": "wanda", "calibration": [rows()]},
        {"score": "sparsegpt", "calibration": [rows()]},
        {"score": "sparsegpt", "calibration": [rows()], "sequential": True},
    ],
    ids=lambda options: "-".join(map(str, options.values() if not options.get("calibration") else options)),
)
@pytest.mark.parametrize("pattern", [NMPattern(2, 4), Block(8, 0.5)], ids=str)
def test_conv1d_is_pruned_as_the_linear_layer_that_it_is(options: dict[str, Any], pattern: Any) -> None:
    if options.get("score") == "sparsegpt" and not isinstance(pattern, NMPattern):
        pattern = NMPattern(1, 4)
    found, expected = Mlp(False), Mlp(True)
    report, plain = (prune(model, pattern, **options) for model in (found, expected))
    for name in ("up", "down"):
        layer, linear = getattr(found, name), getattr(expected, name)
        assert torch.equal(layer.weight.T, linear.weight), name
        assert torch.equal(report.masks[name].T, plain.masks[name])
        assert report.masks[name].shape == layer.weight.shape
    assert [one.shape for one in report.layers] == [(8, 16), (16, 8)]
    assert not report.skipped


def test_conv1d_by_gradient_and_given_scores() -> None:
    found, expected = Mlp(False), Mlp(True)
    for model in (found, expected):
        model(rows()).square().sum().backward()
    score = GradientScore(found)
    score.update()
    by_average = prune(copy.deepcopy(found), 2, 4, score="gradient", gradient=score)
    given = {name: getattr(found, name).weight.detach().abs() for name in ("up", "down")}
    by_scores = prune(copy.deepcopy(found), 2, 4, score=given)
    by_gradient = prune(found, 2, 4, score="gradient")
    plain = prune(expected, 2, 4, score="gradient")
    for name, mask in by_gradient.masks.items():
        assert torch.equal(mask.T, plain.masks[name])
        assert torch.equal(mask, by_average.masks[name])
        check_nm(by_scores.masks[name].T, 2, 4)


def test_conv1d_trains_with_masks_and_is_packed(tmp_path: Path) -> None:
    model = Mlp(False)
    report = prune(copy.deepcopy(model), 2, 4)
    handle = attach_masks(model, report.masks)
    assert isinstance(model.up, AnyConv1D)
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    refresher = MaskRefresher(handle, NMPattern(2, 4))
    for _ in range(3):
        optimiser.zero_grad()
        model(rows()).square().mean().backward()
        optimiser.step()
        refresher.step()
    masks = {name: mask.clone() for name, mask in handle.masks.items()}
    handle.remove()
    for name, mask in masks.items():
        check_nm(mask.T, 2, 4)
        assert not getattr(model, name).weight[~mask].any()
    expected = model(rows())
    converted = sparsify(model, masks=masks, inplace=False)
    packed = converted.model
    assert [layer.shape for layer in converted.converted] == [(16, 8), (8, 16)]
    assert isinstance(packed.up, SparseLinear)
    torch.testing.assert_close(packed(rows()), expected)
    save_packed(packed, tmp_path / "packed.safetensors")
    loaded = load_packed(tmp_path / "packed.safetensors", Mlp(False))
    assert torch.equal(loaded(rows()), packed(rows()))
    dense = densify(packed)
    assert torch.equal(dense.up.weight, model.up.weight.T)


def test_tied_conv1d_and_changed_classes_are_reported() -> None:
    class Doubled(Conv1D):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    model = nn.Sequential(Conv1D(8, 8), Doubled(8, 8), Conv1D(8, 8))
    model[2].weight = model[0].weight
    assert prune(copy.deepcopy(model), 2, 4).skipped == {"2": "tied: its weight is that of '0'"}
    with pytest.raises(ValueError, match=r"1: Doubled computes something else than .*; 2: tied"):
        sparsify(model)


def test_attention_in_proj_is_pruned_and_trains_with_its_mask() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    report = prune(model, 2, 4)
    assert [layer.name for layer in report.layers] == [
        "self_attn",
        "self_attn.out_proj",
        "linear1",
        "linear2",
    ]
    assert not report.skipped
    mask = report.masks["self_attn"]
    assert mask.shape == (24, 8)
    check_nm(model.self_attn.in_proj_weight, 2, 4)
    x = torch.randn(2, 5, 8)
    plain = model(x)
    handle = attach_masks(model, report.masks)
    torch.testing.assert_close(model(x), plain)
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model(x).square().mean().backward()
        optimiser.step()
    assert (model.self_attn.parametrizations.in_proj_weight.original[~mask] != 0).any()
    with torch.no_grad():
        trained = model.eval()(x)
        handle.remove()
        torch.testing.assert_close(model(x), trained)
    assert not model.self_attn.in_proj_weight[~mask].any()
    assert type(model.self_attn) is not nn.MultiheadAttention or "in_proj_weight" in dict(
        model.self_attn.named_parameters()
    )


def test_attention_by_gradient_and_with_statistics_of_others() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 8)
    statistics = collect_inputs(model, [x], layers=["linear1", "linear2"])
    model(x).square().mean().backward()
    weight = model.self_attn.in_proj_weight
    best = (weight * weight.grad).detach().abs().reshape(24, 2, 4).argmax(2, keepdim=True)
    mask = prune(copy.deepcopy(model), 1, 4, score="wanda", select="linear", statistics=statistics).masks
    assert set(mask) == {"linear1", "linear2"}
    select = "linear|self_attn$"
    report = prune(copy.deepcopy(model), 1, 4, score="wanda", select=select, statistics=statistics)
    assert "by magnitude or gradient" in report.skipped["self_attn"]
    chosen = prune(model, 1, 4, score="gradient").masks["self_attn"].reshape(24, 2, 4)
    assert bool(chosen.gather(2, best).all())


class Experts(nn.Module):
    """Matrices of all experts in one parameter, as in fused mixtures."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(4, 8, 32))
        self.down_proj = nn.Parameter(torch.randn(4, 16, 8))


def test_other_matrices_are_listed_with_their_names_and_shapes() -> None:
    model = nn.ModuleDict(
        {
            "experts": Experts(),
            "lstm": nn.LSTM(8, 4, num_layers=2),
            "cell": nn.GRUCell(8, 4),
            "mixed": nn.MultiheadAttention(8, 2, kdim=4, vdim=4),
            "line": nn.Conv1d(4, 4, 3),
            "linear": nn.Linear(8, 8),
        }
    )
    report = prune(model, 2, 4)
    assert report.masks.keys() == {"mixed.out_proj", "linear"}
    kinds = "Linear, Conv2d, Conv1D, MultiheadAttention"
    assert report.skipped == {
        "experts": f"Experts is not among {kinds}; its matrices stay dense:"
        " gate_up_proj (4, 8, 32), down_proj (4, 16, 8)",
        "lstm": f"LSTM is not among {kinds}; its matrices stay dense: weight_ih_l0 (16, 8),"
        " weight_hh_l0 (16, 4), weight_ih_l1 (16, 4), weight_hh_l1 (16, 4)",
        "cell": f"GRUCell is not among {kinds}; its matrices stay dense: weight_ih (12, 8),"
        " weight_hh (12, 4)",
        "mixed": "its kdim or vdim differs: queries, keys and values have a matrix each (q_proj_weight, …)",
        "line": f"Conv1d is not among {kinds}",
    }
    for name in report.skipped:
        assert name in str(report)


def test_gpt2_of_transformers() -> None:
    """The class itself, where it is installed."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    ids = torch.arange(12).reshape(2, 6)
    report = prune(model, 2, 4, score="sparsegpt", calibration=[{"input_ids": ids}])
    assert len(report.layers) == 8
    assert set(report.skipped) == {"transformer.wte", "transformer.wpe", "lm_head"}
    with torch.no_grad():
        expected = model(ids).logits
        sparsify(model, masks=report.masks)
        torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-5)
