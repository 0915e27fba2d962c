"""Predicted blocks: what is computed equals the dense layer on them, and nothing else runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sparse_core.dynamic.activations.predictor import PredictedFeedForward, fit_predictor
from sparse_core.dynamic.grouped_products import collect, grouped_linear, plan_dispatch, send


def _layer(share: str, keep: int = 3) -> PredictedFeedForward:
    torch.manual_seed(0)
    return PredictedFeedForward(12, 40, 5, block_size=8, keep=keep, share=share, rank=8).double()  # type: ignore[arg-type]


def _masked(layer: PredictedFeedForward, x: Tensor) -> Tensor:
    chosen = layer.choose(x).expand(len(x), -1)
    mask = torch.zeros(len(x), layer.blocks, dtype=x.dtype).scatter_(1, chosen, 1.0)
    hidden = torch.relu(layer.expand(x)) * mask.repeat_interleave(layer.block_size, 1)
    return nn.functional.linear(hidden, layer.contract.weight, layer.contract.bias)


@pytest.mark.parametrize("share", ["batch", "row"])
def test_equals_the_masked_dense_layer_forward_and_backward(share: str) -> None:
    layer = _layer(share)
    x = torch.randn(7, 12, dtype=torch.float64)
    assert torch.allclose(layer(x), _masked(layer, x))
    weight = torch.randn(7, 5, dtype=torch.float64)
    found, expected = (
        torch.autograd.grad((y * weight).sum(), [layer.expand.weight, layer.contract.weight])
        for y in (layer(x), _masked(layer, x))
    )
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b)


@pytest.mark.parametrize("share", ["batch", "row"])
def test_weights_of_skipped_blocks_are_never_read(share: str) -> None:
    layer = _layer(share)
    x = torch.randn(1, 12, dtype=torch.float64)
    expected = layer(x)
    skipped = sorted(set(range(layer.blocks)) - set(layer.choose(x)[0].tolist()))
    with torch.no_grad():
        for block in skipped:
            layer.expand.weight[block * 8 : block * 8 + 8] = float("nan")
    assert len(skipped) == 2
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("share", ["batch", "row"])
def test_all_blocks_are_the_dense_layer(share: str) -> None:
    layer = _layer(share, keep=5)
    x = torch.randn(2, 3, 12, dtype=torch.float64)
    assert torch.allclose(layer(x), layer.dense(x))


def test_a_trained_predictor_finds_the_strong_blocks() -> None:
    torch.manual_seed(1)
    expand, contract = nn.Linear(16, 64), nn.Linear(64, 4)
    layer = PredictedFeedForward.from_dense(expand, contract, block_size=4, keep=4, share="row", rank=32)
    inputs = torch.randn(512, 16)
    before = float(layer.recall(inputs[256:]))
    weight = layer.expand.weight.clone()
    loss = fit_predictor(layer, inputs[:256].split(64), epochs=40)
    after = float(layer.recall(inputs[256:]))
    assert torch.equal(layer.expand.weight, weight)
    assert loss < 0.5
    assert after > before + 0.1
    assert after > 0.5


def test_grouped_products_equal_a_loop_also_with_empty_groups() -> None:
    chosen = torch.tensor([[3, 0], [0, 3], [3, 5]])
    plan = plan_dispatch(chosen, 6)
    assert plan.counts.tolist() == [2, 0, 0, 3, 0, 1]
    x, weight, bias = torch.randn(3, 4), torch.randn(6, 2, 4), torch.randn(6, 2)
    gate = torch.rand(3, 2)
    found = collect(grouped_linear(send(x, plan), weight, plan, bias), plan, gate)
    for row in range(3):
        expected = sum(
            gate[row, at] * (weight[chosen[row, at]] @ x[row] + bias[chosen[row, at]]) for at in range(2)
        )
        assert torch.allclose(found[row], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0}, "keep must be 1 to 5 blocks, got 0"),
        ({"keep": 6}, "got 6"),
        ({"keep": 1, "block_size": 7}, "does not divide"),
        ({"keep": 1, "share": "column"}, "share must be one of"),
        ({"keep": 1, "rank": 0}, "rank 0"),
    ],
)
def test_bad_arguments(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PredictedFeedForward(12, 40, 5, **{"block_size": 8, **options})


def test_empty_and_narrow_inputs_are_refused() -> None:
    layer = _layer("row")
    with pytest.raises(ValueError, match="empty batch"):
        layer(torch.zeros(0, 12, dtype=torch.float64))
    with pytest.raises(ValueError, match="must have 12 features"):
        layer(torch.zeros(2, 11, dtype=torch.float64))
    with pytest.raises(ValueError, match="at least one batch"):
        fit_predictor(layer, [])
