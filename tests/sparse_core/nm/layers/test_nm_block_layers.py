"""BlockSparseLinear against the dense layer with the same blocks."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparse_core.formats import BSR
from sparse_core.nm.layers.block_linear import BlockSparseLinear
from sparse_core.nm.masks import block_mask
from sparse_core.nm.pattern import Block


def linear_of(
    columns: int = 64, out: int = 48, bias: bool = True, dtype: torch.dtype = torch.float64
) -> nn.Linear:
    torch.manual_seed(columns * 1000 + out)
    return nn.Linear(columns, out, bias=bias, dtype=dtype)


def masked(linear: nn.Linear, block: Block) -> nn.Linear:
    pruned = copy.deepcopy(linear)
    with torch.no_grad():
        pruned.weight.mul_(block_mask(linear.weight, block))
    return pruned


@settings(max_examples=30)
@given(
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from([8, 16, 32]),
    st.sampled_from([0.0, 0.3, 0.75, 0.99]),
    st.lists(st.integers(0, 3), max_size=3),
    st.booleans(),
)
def test_layer_is_the_masked_linear(
    columns: int, out: int, size: int, sparsity: float, lead: list[int], bias: bool
) -> None:
    linear, block = linear_of(columns, out, bias), Block(size, sparsity)
    layer, oracle = BlockSparseLinear.from_dense(linear, block), masked(linear, block)
    x = torch.randn(*lead, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = layer(x)
    assert y.is_contiguous()
    torch.testing.assert_close(y, oracle(x))
    assert torch.equal(layer.weight, oracle.weight)
    assert torch.equal(layer.to_dense().weight, oracle.weight)
    wanted = block_mask(linear.weight, block)
    assert len(layer.values) == int(BSR.from_dense(wanted.float(), block_size=size).col.numel())


def test_gradients_train_the_kept_blocks() -> None:
    linear, block = linear_of(), Block(16, 0.5)
    layer, oracle = BlockSparseLinear.from_dense(linear, block), masked(linear, block)
    mask = block_mask(linear.weight, block)
    x = torch.randn(5, 64, dtype=torch.float64)
    left, right = x.clone().requires_grad_(), x.clone().requires_grad_()
    factor = torch.randn(5, 48, dtype=torch.float64)
    (layer(left) * factor).sum().backward()
    (oracle(right) * factor).sum().backward()
    torch.testing.assert_close(left.grad, right.grad)
    torch.testing.assert_close(layer.bias.grad, oracle.bias.grad)
    of_weight = layer.matrix.with_values(layer.values.grad).to_dense()
    torch.testing.assert_close(of_weight, oracle.weight.grad * mask)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer(x).detach()
    optimiser.step()
    assert not torch.equal(layer(x), before)
    torch.testing.assert_close(layer(x), layer.to_dense()(x))
    assert (layer.weight[~mask] == 0).all()
    with torch.no_grad():
        torch.testing.assert_close(layer(x), layer.to_dense()(x))


def test_mask_and_a_weight_that_fits_decide_the_blocks() -> None:
    linear, block = linear_of(), Block(16, 0.5)
    mask = torch.zeros(48, 64, dtype=torch.bool)
    mask[16:32, :16] = mask[32:, 48:] = True
    layer = BlockSparseLinear.from_dense(linear, block, mask=mask)
    assert torch.equal(layer.weight, linear.weight * mask)
    assert len(layer.values) == 2
    with torch.no_grad():
        linear.weight.mul_(mask)
    assert torch.equal(BlockSparseLinear.from_dense(linear, block).weight, linear.weight)
    # A kept block of zeros is stored: it may train.
    with torch.no_grad():
        linear.weight.zero_()
    assert len(BlockSparseLinear.from_dense(linear, block, mask=mask).values) == 2
    assert BlockSparseLinear.from_dense(linear, block)(torch.ones(2, 64, dtype=torch.float64)).shape == (
        2,
        48,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_types_moving_and_copying(dtype: torch.dtype) -> None:
    layer = BlockSparseLinear.from_dense(linear_of(), Block(16, 0.5)).eval()
    x = torch.randn(3, 64, dtype=torch.float64)
    expected = layer(x)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    cast = copy.deepcopy(layer).to(dtype)
    assert cast.col.dtype == torch.int32
    for changed in (cast, pickle.loads(pickle.dumps(cast)), copy.deepcopy(cast)):
        found = changed(x.to(dtype))
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
        assert changed.matrix.values is changed.values
    assert torch.equal(layer(x), expected)
    # Without gradients the product keeps a converted copy, which a cast must not leave behind.
    with torch.no_grad():
        assert torch.equal(layer(x), expected)
        cast_in_place = layer.to(dtype)(x.to(dtype))
        assert cast_in_place.dtype == dtype
        torch.testing.assert_close(
            cast_in_place, layer.to_dense()(x.to(dtype)), rtol=tolerance, atol=tolerance
        )


def test_autocast() -> None:
    layer = BlockSparseLinear.from_dense(linear_of(dtype=torch.float32), Block(16, 0.5))
    x = torch.randn(3, 64)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        assert y.dtype == torch.bfloat16
        y.float().sum().backward()
    assert layer.values.grad.dtype == torch.float32
    torch.testing.assert_close(y.float(), layer(x), rtol=3e-2, atol=3e-2)


def test_state_dict_round_trip_and_damage() -> None:
    block = Block(16, 0.5)
    layer = BlockSparseLinear.from_dense(linear_of(), block)
    other = BlockSparseLinear.from_dense(linear_of(), block, mask=~block_mask(linear_of().weight, block))
    x = torch.randn(3, 64, dtype=torch.float64)
    other(x)
    state = layer.state_dict()
    assert set(state) == {"values", "row_ptr", "col", "bias", "_extra_state"}
    for assign in (False, True):
        other.load_state_dict(copy.deepcopy(state), assign=assign)
        assert torch.equal(other(x), layer(x))
    model = nn.Sequential(other)

    def load(**changes: torch.Tensor) -> None:
        model.load_state_dict({f"0.{key}": value for key, value in {**state, **changes}.items()})

    with pytest.raises(ValueError, match="0: the stored block structure is damaged"):
        load(col=torch.full_like(state["col"], 99))
    with pytest.raises(ValueError, match=r"0: the stored weight is .* = \(1, 8, 48, 64\), the layer \(1, 16"):
        load(_extra_state=torch.tensor([1, 8, 48, 64]))
    with pytest.raises(RuntimeError, match=r"size mismatch for 0\.col"):
        load(col=state["col"][1:])
    assert torch.equal(other(x), layer(x))


def test_what_the_layer_takes_over_and_shows() -> None:
    linear = linear_of().eval()
    linear.weight.requires_grad_(False)
    layer = BlockSparseLinear.from_dense(linear, Block(16, 0.5))
    assert (layer.values.requires_grad, layer.bias.requires_grad, layer.training) == (False, True, False)
    assert repr(layer).endswith("out_features=48, bias=True, 6 of 12 blocks of 16x16)")


def test_bad_arguments_are_named() -> None:
    linear, block = linear_of(), Block(16, 0.5)
    mask = torch.zeros(48, 64, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"mask must be bool of shape \(48, 64\)"):
        BlockSparseLinear.from_dense(linear, block, mask=mask[1:])
    mask[0, 1] = True
    with pytest.raises(ValueError, match="the block of row 0, column 0 is kept in part"):
        BlockSparseLinear.from_dense(linear, block, mask=mask)
    with pytest.raises(ValueError, match="blocks must be square, got 8x16"):
        BlockSparseLinear(BSR.from_dense(torch.ones(16, 16), block_size=(8, 16)))
    with pytest.raises(ValueError, match=r"bias must have shape \(16,\)"):
        BlockSparseLinear(BSR.from_dense(torch.ones(16, 16)), torch.zeros(3))
    layer = BlockSparseLinear.from_dense(linear, block)
    with pytest.raises(ValueError, match=r"64 features in its last dimension, got shape \(2, 48\)"):
        layer(torch.zeros(2, 48))
    with pytest.raises(TypeError, match=r"x is torch\.float32 but the weight is torch\.float64"):
        layer(torch.zeros(2, 64))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [16, 32])
def test_layer_on_cuda(cuda: torch.device, size: int) -> None:
    linear = linear_of(256, 128, dtype=torch.float32)
    block = Block(size, 0.75)
    oracle = masked(linear, block)
    layer = BlockSparseLinear.from_dense(linear, block).to(cuda, torch.bfloat16)
    x = torch.randn(2, 9, 256, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        layer(x.to(cuda, torch.bfloat16)).float().cpu(), oracle(x), rtol=3e-2, atol=3e-2
    )
