"""The layer that is pruned in every step, on a CPU against formulas in float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.training import SparseTrainingLinear


def layer_and_input(
    *leading: int, decay: float = 0.0, dtype: torch.dtype = torch.float64
) -> tuple[SparseTrainingLinear, Tensor]:
    torch.manual_seed(0)
    layer = SparseTrainingLinear(12, 8, decay=decay, dtype=dtype)
    return layer, torch.randn(*leading, 12, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("leading", [(), (5,), (2, 3, 4), (0,), (3, 0)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_forward_and_gradients(leading: tuple[int, ...], decay: float) -> None:
    layer, x = layer_and_input(*leading, decay=decay)
    mask = layer.mask()
    assert mask.shape == layer.weight.shape
    assert mask.dtype == torch.bool
    pruned = (layer.weight * mask).detach()
    y = layer(x)
    assert torch.equal(y, nn.functional.linear(x, pruned, layer.bias))
    upstream = torch.randn_like(y)
    y.backward(upstream)
    rows, gradients = x.detach().reshape(-1, 12), upstream.reshape(-1, 8)
    torch.testing.assert_close(x.grad, upstream @ pruned)
    # Straight through: also pruned weights get the gradient of the product, and the pull to zero.
    expected = gradients.T @ rows + decay * layer.weight.detach() * ~mask
    torch.testing.assert_close(layer.weight.grad, expected)
    torch.testing.assert_close(layer.bias.grad, gradients.sum(0))


def test_the_mask_follows_the_weight() -> None:
    layer, x = layer_and_input(3)
    before = layer.mask()
    with torch.no_grad():
        layer.weight.copy_(torch.where(before, layer.weight / 100, layer.weight.sign()))
    assert torch.equal(layer.mask(), ~before)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight * ~before, layer.bias))


@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_gradients_that_are_not_wanted(wanted: str) -> None:
    layer, x = layer_and_input(3, decay=0.1)
    layer(x).sum().backward()
    full = {"x": x.grad, "weight": layer.weight.grad, "bias": layer.bias.grad}
    layer.zero_grad()
    x = x.detach().requires_grad_(wanted == "x")
    layer.weight.requires_grad_(wanted == "weight")
    layer.bias.requires_grad_(wanted == "bias")
    layer(x).sum().backward()
    found = {"x": x.grad, "weight": layer.weight.grad, "bias": layer.bias.grad}
    assert [name for name, gradient in found.items() if gradient is not None] == [wanted]
    assert torch.equal(found[wanted], full[wanted])


def test_without_bias() -> None:
    torch.manual_seed(0)
    layer = SparseTrainingLinear(8, 4, bias=False)
    x = torch.randn(3, 8)
    y = layer(x)
    y.sum().backward()
    assert layer.bias is None
    assert torch.equal(y, x @ (layer.weight * layer.mask()).T)
    assert layer.weight.grad is not None


def test_a_weight_changed_before_backward_is_noticed() -> None:
    layer, x = layer_and_input(3, decay=0.1)
    y = layer(x)
    with torch.no_grad():
        layer.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_autocast() -> None:
    layer, x = layer_and_input(6, decay=0.1, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        mask = layer.mask()
    assert y.dtype == torch.bfloat16
    rounded = layer.weight.detach().bfloat16()
    pruned = rounded * mask
    expected = nn.functional.linear(x.detach().bfloat16(), pruned, layer.bias.detach().bfloat16())
    assert torch.equal(y, expected)
    upstream = torch.randn_like(y)
    y.backward(upstream)
    # Parameters stay float32 and so do their gradients.
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == x.grad.dtype == torch.float32
    product = upstream.float().T @ x.detach().bfloat16().float() + 0.1 * (rounded * ~mask).float()
    torch.testing.assert_close(layer.weight.grad, product, rtol=0.02, atol=0.02)
    torch.testing.assert_close(x.grad, upstream.float() @ pruned.float(), rtol=0.02, atol=0.02)


def test_the_mask_of_autocast_is_that_of_the_rounded_weight() -> None:
    layer = SparseTrainingLinear(4, 4, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.weight[:, 2:] += 1e-4 * torch.tensor([[1], [1], [0], [0]])  # lost in 16 bits
    plain = layer.mask()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, y = layer.mask(), layer(torch.eye(4))
    assert torch.equal(y.T != 0, rounded)
    assert not torch.equal(plain, rounded)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, after a break
def test_compiled_models_break_their_graph_here() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), SparseTrainingLinear(8, 4, decay=0.1), nn.ReLU())
    x = torch.randn(3, 8)
    y = torch.compile(model, backend="aot_eager")(x)
    expected = model(x)
    assert torch.equal(y, expected)
    parameters = list(model.parameters())
    for found, wanted in zip(
        torch.autograd.grad(y.sum(), parameters), torch.autograd.grad(expected.sum(), parameters), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_from_dense_shares_the_parameters() -> None:
    linear = nn.Linear(8, 4).eval()
    layer = SparseTrainingLinear.from_dense(linear, decay=0.5)
    assert layer.weight is linear.weight
    assert layer.bias is linear.bias
    assert layer.decay == 0.5
    assert not layer.training
    assert "decay=0.5" in repr(layer)
    assert layer.state_dict().keys() == linear.state_dict().keys()
    assert SparseTrainingLinear.from_dense(nn.Linear(8, 4, bias=False)).bias is None
    copied = copy.deepcopy(layer)
    x = torch.randn(2, 8)
    assert torch.equal(copied(x), layer(x))


def test_a_frozen_layer_stays_frozen() -> None:
    linear = nn.Linear(8, 4).requires_grad_(False)
    assert not SparseTrainingLinear.from_dense(linear)(torch.randn(2, 8)).requires_grad


def test_converted_to_a_packed_layer_it_computes_the_same() -> None:
    layer, x = layer_and_input(5)
    packed = SparseLinear.from_dense(layer, mask=layer.mask())
    torch.testing.assert_close(packed(x), layer(x))
    assert torch.equal(packed.weight, layer.weight * layer.mask())


@pytest.mark.parametrize("sizes", [(10, 8), (8, 10), (2, 4)])
def test_sizes_that_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"divisible by 4, got in={sizes[0]} and out={sizes[1]}"):
        SparseTrainingLinear(*sizes)
    with pytest.raises(ValueError, match="divisible by 4"):
        SparseTrainingLinear.from_dense(nn.Linear(*sizes))


def test_negative_decay_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must not be negative, got -0\.1"):
        SparseTrainingLinear(8, 8, decay=-0.1)


def test_other_widths_are_refused() -> None:
    layer, _ = layer_and_input()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        layer(torch.randn(3, 8, dtype=torch.float64))
