"""Gradients of the estimators against their formulas; masks that survive saving, copying and removal."""

from __future__ import annotations

import copy
import io
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sparse_core.nm.masks import nm_mask
from sparse_core.nm.pattern import NMPattern
from sparse_core.nm.pruning.selection import magnitude_masks
from sparse_core.nm.training.estimators import MaskedModel, attach_masks, masked_weight


def small_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4, 12), nn.Linear(12, 3))


def small_input() -> Tensor:
    return torch.randn(5, 4, 4, 4, generator=torch.Generator().manual_seed(1))


@settings(max_examples=40)
@given(
    out=st.integers(1, 5),
    groups=st.integers(1, 4),
    m=st.integers(1, 6),
    n=st.integers(1, 6),
    decay=st.sampled_from([0.0, 2e-4, 0.3]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_gradients_are_those_of_the_formulas(
    out: int, groups: int, m: int, n: int, decay: float, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(out * 100 + groups * 10 + m)
    weight = torch.randn(out, groups * m, generator=generator).to(dtype).requires_grad_()
    mask = nm_mask(weight, min(n, m), m)
    incoming = torch.randn(out, groups * m, generator=generator).to(dtype)
    dense = weight.detach()
    zero = torch.zeros((), dtype=dtype)
    expected: dict[Literal["ste", "sr-ste", "fixed"], Tensor] = {
        "ste": incoming,
        "sr-ste": incoming + decay * torch.where(mask, zero, dense),
        "fixed": torch.where(mask, incoming, zero),
    }
    for estimator, wanted in expected.items():
        sparse = masked_weight(weight, mask, estimator, decay)
        assert torch.equal(sparse, torch.where(mask, dense, zero))
        (found,) = torch.autograd.grad(sparse, weight, incoming)
        assert torch.equal(found, wanted), estimator


def test_infinite_dropped_weights_do_not_reach_the_output() -> None:
    weight = torch.tensor([[float("inf"), 1.0, 2.0, 3.0]], requires_grad=True)
    mask = torch.tensor([[False, True, True, False]])
    for estimator in ("ste", "fixed"):
        assert masked_weight(weight, mask, estimator).tolist() == [[0.0, 1.0, 2.0, 0.0]]  # type: ignore[arg-type]


def test_a_masked_model_computes_with_sparse_weights_and_trains_dense_ones() -> None:
    model = small_model()
    plain = copy.deepcopy(model)
    masks = magnitude_masks(model, NMPattern(2, 4))
    assert list(masks) == ["0", "3", "4"]
    parameters = [id(parameter) for parameter in model.parameters()]
    handle = attach_masks(model, masks)
    assert sorted(id(parameter) for parameter in model.parameters()) == sorted(parameters)
    assert handle.sparsity == pytest.approx(0.5)
    with torch.no_grad():
        for name, mask in masks.items():
            plain.get_submodule(name).weight.masked_fill_(~mask, 0)  # type: ignore[operator,union-attr]
    assert torch.equal(model(small_input()), plain(small_input()))
    model(small_input()).square().sum().backward()
    for name, weight in handle.weights.items():
        assert weight.grad is not None
        assert (weight.grad[~masks[name]] != 0).any()


def test_removal_bakes_the_masks_in_and_keeps_the_parameters() -> None:
    model = small_model()
    weights = {name: module.weight for name, module in model.named_children() if hasattr(module, "weight")}
    keys = list(model.state_dict())
    masks = magnitude_masks(model)
    expected = {name: weights[name].detach().masked_fill(~mask, 0) for name, mask in masks.items()}  # type: ignore[operator,union-attr]
    handle = attach_masks(model, masks, estimator="sr-ste")
    sparse_output = model(small_input())
    assert handle.remove() is model
    assert sorted(model.state_dict()) == sorted(keys)
    assert type(model[3]) is nn.Linear
    for name, wanted in expected.items():
        found = model.get_submodule(name).weight
        assert found is weights[name]
        assert isinstance(found, nn.Parameter)
        assert found.requires_grad
        assert torch.equal(found, wanted)
    assert torch.equal(model(small_input()), sparse_output)
    with pytest.raises(ValueError, match="removed already"):
        handle.remove()


def test_removal_from_a_deep_copy_leaves_the_original_alone() -> None:
    model = small_model()
    handle = attach_masks(model, magnitude_masks(model))
    twin = copy.deepcopy(handle)
    assert twin.model is not model
    other = MaskedModel(copy.deepcopy(model))
    output = model(small_input())
    twin.remove()
    assert torch.equal(twin.model(small_input()), output)
    assert torch.equal(model(small_input()), output)
    handle.remove()
    assert torch.equal(model(small_input()), output)
    assert torch.equal(other.model(small_input()), output)
    other.set_masks({"4": torch.ones(3, 12, dtype=torch.bool)})
    assert not torch.equal(other.model(small_input()), output)


def test_freezing_stops_the_gradient_of_dropped_weights() -> None:
    model = small_model()
    handle = attach_masks(model, magnitude_masks(model), estimator="sr-ste")
    assert not handle.frozen
    handle.freeze()
    assert handle.frozen
    model(small_input()).square().sum().backward()
    for name, weight in handle.weights.items():
        assert weight.grad is not None
        assert not weight.grad[~handle.masks[name]].any()
        assert weight.grad[handle.masks[name]].any()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(small_input()).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("freeze", [False, True])
def test_training_resumes_from_a_state_dict_bit_for_bit(freeze: bool) -> None:
    def fresh(seed: int) -> tuple[MaskedModel, torch.optim.Optimizer]:
        model = small_model(seed)
        handle = attach_masks(model, magnitude_masks(model), estimator="sr-ste", decay=0.02)
        return handle, torch.optim.Adam(model.parameters(), 1e-2)

    handle, optimizer = fresh(0)
    train(handle.model, optimizer, 3)
    handle.set_masks({"3": ~handle.masks["3"]})
    if freeze:
        handle.freeze()
    stored: Any = io.BytesIO()
    torch.save({"model": handle.model.state_dict(), "optimizer": optimizer.state_dict()}, stored)
    train(handle.model, optimizer, 3)

    again, other_optimizer = fresh(7)
    stored.seek(0)
    state = torch.load(stored, weights_only=True)
    again.model.load_state_dict(state["model"])
    other_optimizer.load_state_dict(state["optimizer"])
    assert again.frozen == freeze
    train(again.model, other_optimizer, 3)
    for key, value in handle.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[key]), key


def test_masks_follow_the_model_to_another_type() -> None:
    model = small_model().to(torch.float64)
    handle = attach_masks(model, magnitude_masks(model))
    model.to(torch.bfloat16)
    assert all(mask.dtype == torch.bool for mask in handle.masks.values())
    assert model(small_input().bfloat16()).dtype == torch.bfloat16


def test_tied_layers_share_one_mask() -> None:
    model = nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight = model[2].weight
    handle = attach_masks(model, {"2": nm_mask(model[2].weight, 2, 4)})
    assert list(handle.masks) == ["1"]
    assert torch.equal(model[1].weight, model[2].weight)
    handle.remove()
    assert model[1].weight is model[2].weight
    assert (model[1].weight != 0).sum() == 32


def test_bad_arguments() -> None:
    model = small_model()
    mask = torch.ones(3, 12, dtype=torch.bool)
    with pytest.raises(ValueError, match="no layer '9'"):
        attach_masks(model, {"9": mask})
    with pytest.raises(ValueError, match=r"layer '3' has shape \(3, 12\), its weight \(12, 32\)"):
        attach_masks(model, {"3": mask})
    with pytest.raises(ValueError, match=r"layer '1' \(ReLU\) has no parameter"):
        attach_masks(model, {"1": mask})
    with pytest.raises(TypeError, match=r"must be bool, got torch\.float32"):
        attach_masks(model, {"4": mask.float()})
    with pytest.raises(ValueError, match="estimator must be one of ste, sr-ste, fixed"):
        attach_masks(model, {"4": mask}, estimator="straight")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="decay must be 0 or more"):
        attach_masks(model, {"4": mask}, decay=-1.0)
    with pytest.raises(ValueError, match="masks is empty"):
        attach_masks(model, {})
    with pytest.raises(ValueError, match="no layer of the model has a mask"):
        MaskedModel(model)
    handle = attach_masks(model, {"4": mask})
    with pytest.raises(ValueError, match="parametrised already"):
        attach_masks(model, {"4": mask})
    with pytest.raises(ValueError, match="'3' has no mask; layers with one: 4"):
        handle.set_masks({"3": mask})
    model[4] = nn.Linear(12, 3)
    model[4].tied = model[4].weight
    with pytest.raises(ValueError, match="tied to 'tied' of '4'"):
        attach_masks(model, {"4": mask})


def test_two_masks_for_one_tied_weight_are_refused() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].weight = model[0].weight
    masks = {"0": torch.ones(8, 8, dtype=torch.bool), "1": torch.ones(8, 8, dtype=torch.bool)}
    with pytest.raises(ValueError, match="'0' and '1' share one weight"):
        attach_masks(model, masks)
    assert type(model[0]) is nn.Linear
