"""Taylor terms against the exact change of the loss."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sparse_core.nm.masks import pattern_mask
from sparse_core.nm.pattern import Block, NMPattern, Pattern
from sparse_core.nm.pruning.selection import magnitude_masks
from sparse_core.nm.pruning.sensitivity import layer_sensitivity
from sparse_core.nm.training.estimators import attach_masks

Batch = tuple[Tensor, Tensor]


def squared_error(model: nn.Module, batch: Batch) -> Tensor:
    x, target = batch
    error: Tensor = (model(x) - target).square().mean()
    return error


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    x, labels = batch
    return nn.functional.cross_entropy(model(x), labels)


def mean_loss(model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], batches: list[Batch]) -> float:
    model.eval()
    with torch.no_grad():
        return sum(float(loss(model, batch)) for batch in batches) / len(batches)


def change_by_pruning(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Tensor],
    batches: list[Batch],
    name: str,
    pattern: Pattern,
) -> float:
    pruned = copy.deepcopy(model)
    weight = pruned.get_submodule(name).weight
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        weight.masked_fill_(~pattern_mask(weight, pattern), 0)
    return mean_loss(pruned, loss, batches) - mean_loss(model, loss, batches)


def deep_linear(seed: int, width: int = 8) -> tuple[nn.Module, list[Batch]]:
    """A product of matrices: the squared error is exactly quadratic in each of them."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(width, 12), nn.Linear(12, 8, bias=False), nn.Linear(8, 3)).double()
    batches = [(torch.randn(5, width).double(), torch.randn(5, 3).double()) for _ in range(3)]
    return model, batches


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    pattern=st.sampled_from([NMPattern(1, 4), NMPattern(2, 4), NMPattern(3, 4), Block(8, 0.5)]),
)
def test_second_order_is_exact_on_a_quadratic_loss(seed: int, pattern: Pattern) -> None:
    model, batches = deep_linear(seed)
    report = layer_sensitivity(model, squared_error, batches, patterns=pattern, order=2, hessian="exact")
    assert [layer.name for layer in report.layers] == ["0", "1", "2"]
    for layer in report.layers:
        exact = change_by_pruning(model, squared_error, batches, layer.name, pattern)
        assert layer.predicted == pytest.approx(exact, rel=1e-9, abs=1e-12)
        assert layer.second >= 0


def test_first_order_is_the_derivative_towards_the_pruned_weight() -> None:
    model, batches = deep_linear(3)
    report = layer_sensitivity(model, squared_error, batches, patterns=NMPattern(1, 4))
    for layer in report.layers:
        weight = model.get_submodule(layer.name).weight
        assert isinstance(weight, Tensor)
        dense = weight.detach().clone()
        change = -dense.masked_fill(pattern_mask(dense, NMPattern(1, 4)), 0)
        step = 1e-6
        losses = []
        for sign in (1, -1):
            with torch.no_grad():
                weight.copy_(dense + sign * step * change)
            losses.append(mean_loss(model, squared_error, batches))
        with torch.no_grad():
            weight.copy_(dense)
        assert layer.first == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-6)
        assert layer.first_absolute >= abs(layer.first)
        assert layer.second == 0.0
        assert layer.sensitivity == layer.first_absolute


def test_absolute_first_order_and_fisher_by_hand() -> None:
    model, batches = deep_linear(4)
    report = layer_sensitivity(model, squared_error, batches, order=2)
    for layer in report.layers:
        weight = model.get_submodule(layer.name).weight
        assert isinstance(weight, Tensor)
        change = -weight.detach().masked_fill(pattern_mask(weight, NMPattern(2, 4)), 0)
        gradients = [torch.autograd.grad(squared_error(model, batch), weight)[0] for batch in batches]
        mean = sum(gradients) / 3
        assert layer.first_absolute == pytest.approx(float((mean * change).abs().sum()))
        fisher = sum(float((gradient * change).sum()) ** 2 for gradient in gradients) / 3
        assert layer.second == pytest.approx(fisher / 2)


def trained_classifier() -> tuple[nn.Module, list[Batch], list[Batch]]:
    """A small network, its data as batches, and as single samples."""
    torch.manual_seed(0)
    x = torch.randn(96, 16)
    labels = (x @ torch.randn(16, 4)).argmax(1)
    model = nn.Sequential(
        nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Dropout(0.2), nn.Linear(24, 4)
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        cross_entropy(model, (x, labels)).backward()
        optimizer.step()
    batches = list(zip(x.split(32), labels.split(32), strict=True))
    return model, batches, list(zip(x.split(1), labels.split(1), strict=True))


def test_the_model_is_left_as_it_was() -> None:
    model, batches, _ = trained_classifier()
    model.train()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    model.zero_grad()
    before = copy.deepcopy(model.state_dict())
    first = layer_sensitivity(model, cross_entropy, batches, order=2, hessian="exact")
    assert [module.training for module in model] == [True, False, True, True, True, True]
    assert not model[0].weight.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    # Dropout is off, so a second measurement gives the same to the bit.
    again = layer_sensitivity(model, cross_entropy, batches, order=2, hessian="exact")
    assert again == first
    assert first.loss == pytest.approx(mean_loss(model, cross_entropy, batches))


def test_ranking_table_and_json() -> None:
    model, batches, _ = trained_classifier()
    report = layer_sensitivity(
        model, cross_entropy, batches, patterns=[NMPattern(2, 4), NMPattern(1, 4)], order=2
    )
    assert report.batches == 3
    ranking = report.ranking(NMPattern(2, 4))
    costs = [report.of(name, NMPattern(2, 4)).sensitivity for name in ranking]
    assert sorted(ranking) == ["0", "2", "5"]
    assert costs == sorted(costs)
    assert layer_sensitivity(model, cross_entropy, batches, order=2).ranking() == ranking
    with pytest.raises(ValueError, match="name one of the report's patterns: 2:4, 1:4"):
        report.ranking()
    with pytest.raises(ValueError, match="no 3:4, only 2:4, 1:4"):
        report.ranking(NMPattern(3, 4))
    with pytest.raises(ValueError, match="no entry for layer '9' under 2:4"):
        report.of("9", NMPattern(2, 4))
    lines = str(report).splitlines()
    assert len({line.index("sensitivity") + len("sensitivity") for line in lines[:1]} | {len(lines[2])}) == 1
    assert lines[-1].startswith("loss ")
    data = json.loads(json.dumps(report.to_json()))
    assert len(data["layers"]) == 6
    assert data["layers"][0]["pattern"] == "2:4"
    assert data["layers"][0]["sensitivity"] == report.layers[0].sensitivity


def test_layers_that_do_not_fit_are_skipped() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(16, 6), nn.Linear(6, 2), nn.Linear(2, 2)
    )
    attach_masks(model, magnitude_masks(model, NMPattern(1, 2), select="4"))
    batches = [(torch.randn(2, 3, 2, 2), torch.zeros(2, 2))]
    report = layer_sensitivity(model, squared_error, batches, patterns=[NMPattern(2, 4), NMPattern(1, 2)])
    assert [(layer.name, str(layer.pattern)) for layer in report.layers] == [
        ("2", "2:4"),
        ("2", "1:2"),
        ("3", "1:2"),
    ]
    assert report.skipped["0"] == "its input dimension 3 fits none of 2:4, 1:2"
    assert "parametrised" in report.skipped["4"]
    assert "0      its input dimension 3" in str(report)
    with pytest.raises(ValueError, match="no selected layer fits 1:7"):
        layer_sensitivity(model, squared_error, batches, patterns=NMPattern(1, 7))


class FusedAttention(nn.Module):
    """Torch's fused kernel has no second derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (3, 2, 4)).movedim(-3, 0).transpose(-3, -2)
        return nn.functional.scaled_dot_product_attention(*heads)


def test_exact_hessian_of_fused_attention_names_the_way_out() -> None:
    torch.manual_seed(0)
    model, batches = FusedAttention(), [torch.randn(2, 5, 8)]

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        squares: Tensor = model(batch).square().mean()
        return squares

    with pytest.raises(
        ValueError,
        match=r"hessian='fisher', which needs no.*sdpa_kernel\(SDPBackend\.MATH\)",
    ) as caught:
        layer_sensitivity(model, loss, batches, order=2, hessian="exact")
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert model.training
    with sdpa_kernel(SDPBackend.MATH):
        (exact,) = layer_sensitivity(model, loss, batches, order=2, hessian="exact").layers
    (fisher,) = layer_sensitivity(model, loss, batches, order=2).layers
    assert exact.first == pytest.approx(fisher.first, rel=1e-4)
    # Central differences of the gradient towards the pruned weight.
    weight = model.qkv.weight
    dense = weight.detach().clone()
    change = -dense.masked_fill(pattern_mask(dense, NMPattern(2, 4)), 0)
    slopes = []
    for step in (-1e-2, 1e-2):
        weight.data = dense + step * change
        slopes.append(float((torch.autograd.grad(loss(model, batches[0]), weight)[0] * change).sum()))
    assert exact.second == pytest.approx((slopes[1] - slopes[0]) / 2e-2 / 2, rel=0.02)


def test_another_error_of_torch_is_passed_on() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            raise RuntimeError("out of order")

    model, batches = deep_linear(0)
    with pytest.raises(RuntimeError, match="out of order"):
        layer_sensitivity(
            model,
            lambda net, batch: Broken.apply(squared_error(net, batch)),
            batches,
            order=2,
            hessian="exact",
        )


def test_bad_arguments() -> None:
    model, batches = deep_linear(0)
    with pytest.raises(ValueError, match="order must be 1 or 2"):
        layer_sensitivity(model, squared_error, batches, order=3)
    with pytest.raises(ValueError, match="hessian must be one of fisher, exact"):
        layer_sensitivity(model, squared_error, batches, hessian="diagonal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="patterns is empty"):
        layer_sensitivity(model, squared_error, batches, patterns=[])
    with pytest.raises(TypeError, match="NMPattern or Block, got '2:4'"):
        layer_sensitivity(model, squared_error, batches, patterns=["2:4"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="batches is empty"):
        layer_sensitivity(model, squared_error, [])
    with pytest.raises(ValueError, match=r"one number, got shape \(5, 3\)"):
        layer_sensitivity(model, lambda net, batch: net(batch[0]), batches)
    with pytest.raises(ValueError, match="loss without gradient"):
        layer_sensitivity(model, lambda net, batch: torch.zeros(()), batches)
    with pytest.raises(ValueError, match="does not depend on layers 1, 2"):
        layer_sensitivity(model, lambda net, batch: net[0](batch[0]).sum(), batches)
    with pytest.raises(ValueError, match="mean loss is nan"):
        layer_sensitivity(model, squared_error, [(batches[0][0] * float("nan"), batches[0][1])])
    assert model.training
