"""Pruning in one pass: the same as layer by layer, and better than magnitude."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparse_core.compression.calibrate import input_rows, prune_in_one_pass
from sparse_core.compression.model import layout_of
from sparse_core.conv import SparseConv2d, SparseInverseConv2d, SparseTensor, SubmanifoldConv2d
from sparse_core.nm.masks import check_nm
from sparse_core.nm.packing.matrix_view import MatrixView
from sparse_core.nm.pattern import TWO_FOUR, NMPattern
from sparse_core.nm.pruning import prune


def sparse_input(channels: int = 4) -> SparseTensor:
    generator = torch.Generator().manual_seed(0)
    cells = (torch.rand((2, 9, 7), generator=generator) > 0.6).nonzero()
    return SparseTensor(torch.randn((len(cells), channels), generator=generator), cells, (9, 7), 2)


@pytest.mark.parametrize(
    ("layer", "channels_last"),
    [
        (nn.Linear(6, 5), False),
        (nn.Conv2d(4, 5, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2)), False),
        (nn.Conv2d(4, 5, 3, padding=1), True),
        (nn.Conv2d(4, 5, 3, padding="same", padding_mode="reflect"), False),
        (nn.ConvTranspose2d(4, 5, 2, stride=2), False),
        (SubmanifoldConv2d(4, 5, bias=True), False),
        (SparseConv2d(4, 5, 3, stride=2, padding=1, bias=True), False),
        (SparseConv2d(4, 5, 3, stride=2, padding=1, dilating=False, bias=True), False),
    ],
)
def test_rows_times_the_matrix_is_the_layer(layer: nn.Module, channels_last: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    if isinstance(layer, nn.Linear):
        x: object = torch.randn((3, 2, 6), generator=generator)
    elif isinstance(layer, SparseConv2d | SubmanifoldConv2d):
        x = sparse_input()
    else:
        x = torch.randn((2, 4, 8, 9), generator=generator)
    weight = layer.weight
    view = MatrixView(tuple(weight.shape), layout_of(layer, "channels_last" if channels_last else "unfold"))
    with torch.no_grad():
        rows = torch.cat(list(input_rows(layer, (x,), channels_last)))
        product = rows @ view.to_matrix(weight).T
        y = layer(x)
        if isinstance(layer, nn.ConvTranspose2d):
            found = product.reshape(2, 8, 9, 5, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(2, 5, 16, 18)
            assert torch.allclose(found + layer.bias[:, None, None], y, atol=1e-5)
            return
        found = product + layer.bias
        if isinstance(y, SparseTensor):
            assert torch.allclose(found, y.features, atol=1e-5)
        elif y.ndim == 4:
            assert torch.allclose(found, y.permute(0, 2, 3, 1).reshape(-1, 5), atol=1e-5)
        else:
            assert torch.allclose(found, y.reshape(-1, 5), atol=1e-5)


def test_rows_of_an_inverse_convolution() -> None:
    fine = sparse_input()
    coarse = SparseConv2d(4, 3, 3, stride=2, padding=1)(fine)
    layer = SparseInverseConv2d(3, 5, 3, stride=2, padding=1)
    with torch.no_grad():
        rows = torch.cat(list(input_rows(layer, (coarse, fine))))
        assert torch.allclose(rows @ layer.weight.reshape(5, -1).T, layer(coarse, fine).features, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the calibration of")  # a small one is enough here
def test_one_pass_is_the_sequential_method() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 12), nn.Linear(12, 8)
    )
    x = torch.randn(64, 4, 6, 6)
    other = copy.deepcopy(model)
    report = prune_in_one_pass(model, lambda: model(x), TWO_FOUR, correct_bias=False)
    expected = prune(other, TWO_FOUR, score="sparsegpt", calibration=[x], sequential=True)
    assert [layer.name for layer in report.layers] == ["0", "3", "4"]
    for name, mask in report.masks.items():
        assert torch.equal(mask, expected.masks[name])
        check_nm(mask, 2, 4)
        ours, theirs = model.get_submodule(name).weight, other.get_submodule(name).weight
        assert torch.allclose(ours, theirs, atol=1e-4)
    assert "output error" in str(report)
    assert len(json.loads(json.dumps(report.to_json()))["layers"]) == 3
    assert not model[0]._forward_pre_hooks


@pytest.mark.filterwarnings("ignore:the calibration of")  # a small one is enough here
def test_sparse_convolutions_lose_less_than_by_magnitude() -> None:
    torch.manual_seed(0)
    layer = SubmanifoldConv2d(8, 8, bias=True)
    mixing = torch.randn(8, 8)
    x = sparse_input(8)
    x = x.with_features(torch.relu(x.features @ mixing))
    with torch.no_grad():
        exact = layer(x).features.clone()
        magnitude = copy.deepcopy(layer)
        matrix = magnitude.weight.reshape(8, -1)
        magnitude.weight.copy_(prune(matrix, 2, 4).reshape(magnitude.weight.shape))
        report = prune_in_one_pass(layer, lambda: layer(x), TWO_FOUR)
        errors = [float(F.mse_loss(one(x).features, exact)) for one in (layer, magnitude)]
    assert errors[0] < 0.7 * errors[1]
    assert int((layer.weight != 0).sum()) <= layer.weight.numel() // 2
    assert report.layers[0].rows == len(exact)
    # The mean of the output is kept by the bias.
    with torch.no_grad():
        assert torch.allclose(layer(x).features.mean(dim=0), exact.mean(dim=0), atol=1e-4)


def test_widths_that_m_does_not_divide_are_padded() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(7, 5)
    x = torch.randn(50, 7)
    prune_in_one_pass(layer, lambda: layer(x), NMPattern(2, 4))
    assert bool(((layer.weight != 0)[:, :4].sum(dim=1) <= 2).all())
    assert bool(((layer.weight != 0)[:, 4:].sum(dim=1) <= 2).all())


def test_layers_out_of_reach_are_named() -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 4), "idle": nn.Linear(4, 4)})
    with pytest.raises(ValueError, match="did not reach idle: deselect"):
        prune_in_one_pass(model, lambda: model["used"](torch.randn(9, 4)), TWO_FOUR)
    assert not model["used"]._forward_pre_hooks
    grouped = nn.Sequential(nn.Conv2d(8, 8, 1, groups=2))
    with pytest.raises(ValueError, match="several groups: deselect 0"):
        prune_in_one_pass(grouped, lambda: grouped(torch.randn(1, 8, 2, 2)), TWO_FOUR)
    linear = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="empty inputs"):
        prune_in_one_pass(linear, lambda: linear(torch.zeros(0, 4)), TWO_FOUR)
