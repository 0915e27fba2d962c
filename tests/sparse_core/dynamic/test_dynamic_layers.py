"""RigLLinear and RigLConv2d against dense layers with the same weight: results, gradients, state."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sparse_core.dynamic.rigl.block_product import block_linear, plan_blocks
from sparse_core.dynamic.rigl.conversion import dense_training, sparse_training
from sparse_core.dynamic.rigl.grid import plan_grid, random_cells
from sparse_core.dynamic.rigl.layers import RigLConv2d, RigLLinear

STRUCTURES = [("unstructured", 16), ("fan-in", 16), ("block", 4), ("block", (8, 1)), ("block", (1, 4))]


def _compare(layer: RigLLinear | RigLConv2d, dense: nn.Module, x: torch.Tensor) -> None:
    x, again = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = layer(x), dense(again)
    assert y.shape == expected.shape
    assert torch.allclose(y, expected)
    weight = torch.randn_like(expected)
    (y * weight).sum().backward()
    (expected * weight).sum().backward()
    assert x.grad is not None
    assert again.grad is not None
    assert torch.allclose(x.grad, again.grad)
    gradient = layer.as_matrix(dense.weight.grad)
    assert layer.values.grad is not None
    assert torch.allclose(layer.values.grad, layer.grid.gather(gradient, layer.cells))
    if layer.bias is not None:
        assert layer.bias.grad is not None
        assert torch.allclose(layer.bias.grad, dense.bias.grad)


@pytest.mark.parametrize("execution", ["sparse", "dense"])
@pytest.mark.parametrize(("structure", "block_size"), STRUCTURES)
def test_linear_equals_its_dense_twin(structure: str, block_size: int, execution: str) -> None:
    layer = RigLLinear(
        24,
        16,
        sparsity=0.7,
        structure=structure,
        block_size=block_size,
        execution=execution,
        dtype=torch.float64,  # type: ignore[arg-type]
    )
    dense = layer.to_dense()
    assert dense.weight.ne(0).sum() == layer.values.numel()
    for shape in ((5, 24), (24,), (2, 3, 24)):
        layer.zero_grad()
        dense.zero_grad()
        _compare(layer, dense, torch.randn(shape, dtype=torch.float64))


@pytest.mark.parametrize("execution", ["sparse", "dense"])
@pytest.mark.parametrize(("structure", "block_size"), STRUCTURES)
@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": (2, 1), "dilation": 2, "bias": False}])
def test_convolution_equals_its_dense_twin(
    structure: str, block_size: int, execution: str, options: dict
) -> None:
    layer = RigLConv2d(
        4, 8, (3, 2), sparsity=0.6, structure=structure, block_size=block_size, execution=execution,  # type: ignore[arg-type]
        dtype=torch.float64, **options,
    )  # fmt: skip
    _compare(layer, layer.to_dense(), torch.randn(3, 4, 7, 6, dtype=torch.float64))


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.data())
@settings(max_examples=40)
def test_block_product_equals_the_dense_product(
    r: int, c: int, down: int, across: int, data: st.DataObject
) -> None:
    if r * c == 1:
        c = 2
    density = data.draw(st.floats(0.05, 1.0))
    grid = plan_grid(r * down, c * across, density=density, structure="block", block_size=(r, c))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    cells = random_cells(grid, generator)
    values = torch.randn(grid.values_shape, generator=generator, dtype=torch.float64, requires_grad=True)
    dense = torch.randn(c * across, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    plan = plan_blocks(cells, grid)
    found, expected = block_linear(dense.T, values, plan).T, grid.scatter(values, cells) @ dense
    assert torch.allclose(found, expected)
    weight = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad((found * weight).sum(), [values, dense]),
        torch.autograd.grad((expected * weight).sum(), [values, dense]),
        strict=True,
    ):
        assert torch.allclose(a, b)
    # The sum by segments, which CUDA takes, is the same.
    parts = torch.randn(grid.count, 4, generator=generator)
    segments = torch.segment_reduce(
        parts[plan.order], "sum", lengths=plan.lengths, axis=0, unsafe=True, initial=0.0
    )
    assert torch.allclose(segments, torch.zeros(across, 4).index_add_(0, plan.column, parts), atol=1e-6)


def test_skipped_blocks_are_never_read() -> None:
    layer = RigLLinear(32, 16, sparsity=0.75, structure="block", block_size=8)
    x = torch.randn(3, 32)
    rows = layer.mask.reshape(2, 8, 4, 8)[:, 0, :, 0]
    unused = [column for column in range(4) if not rows[:, column].any()]
    expected = layer(x)
    for column in unused:
        x[:, column * 8 : column * 8 + 8] = float("nan")
    assert unused
    assert torch.equal(layer(x), expected)


@pytest.mark.parametrize("structure", ["unstructured", "block"])
def test_state_moves_the_topology(structure: str) -> None:
    first = RigLLinear(32, 16, sparsity=0.5, structure=structure, block_size=4, seed=1)  # type: ignore[arg-type]
    second = RigLLinear(32, 16, sparsity=0.5, structure=structure, block_size=4, seed=2)  # type: ignore[arg-type]
    x = torch.randn(3, 32)
    assert not torch.allclose(first(x), second(x))
    stored = io.BytesIO()
    torch.save(first.state_dict(), stored)
    stored.seek(0)
    second.load_state_dict(torch.load(stored, weights_only=True))
    assert torch.equal(first(x), second(x))
    assert torch.equal(copy.deepcopy(first)(x), first(x))


def test_other_and_damaged_states_are_refused() -> None:
    layer = RigLLinear(32, 16, sparsity=0.5)
    with pytest.raises(ValueError, match="build the layer with the same sparsity"):
        layer.load_state_dict(RigLLinear(32, 16, sparsity=0.6).state_dict())
    state = layer.state_dict()
    for place, value in ((3, 2), (-1, 9999), (0, -1)):
        cells = state["cells"].clone()
        cells[place] = value if place != 3 else cells[2]
        with pytest.raises(ValueError, match="cells: the stored topology is damaged"):
            layer.load_state_dict({**state, "cells": cells})
    even = RigLLinear(8, 2, sparsity=0.5, structure="fan-in")
    uneven = torch.tensor([0, 1, 2, 3, 4, 9, 10, 11])
    with pytest.raises(ValueError, match="damaged"):
        even.load_state_dict({**even.state_dict(), "cells": uneven})


@pytest.mark.parametrize("structure", ["unstructured", "block"])
def test_autocast_and_other_types(structure: str) -> None:
    layer = RigLLinear(32, 16, sparsity=0.5, structure=structure, block_size=4)  # type: ignore[arg-type]
    x = torch.randn(4, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    assert torch.allclose(y.float(), layer(x), atol=0.05)
    half = layer.to(torch.bfloat16)
    assert half.cells.dtype == torch.int64
    assert half(x.bfloat16()).dtype == torch.bfloat16
    with pytest.raises(TypeError, match="convert one of them"):
        half(x)


def test_stored_bytes_are_those_of_the_connections() -> None:
    layer = RigLLinear(256, 256, sparsity=0.9, structure="block", block_size=16)
    # round(0.1 * 16) = 2 blocks in each of 16 rows of blocks.
    assert layer.values.nbytes == 2 * 16 * 256 * 4
    assert layer.cells.nbytes == 2 * 16 * 8


def test_dense_layers_come_back() -> None:
    model = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * 16, 12))
    sparse_training(model, 0.8, budget="uniform")
    x = torch.randn(3, 2, 4, 4)
    expected = model(x)
    assert [type(part) for part in dense_training(model)] == [nn.Conv2d, nn.Flatten, nn.Linear]  # type: ignore[call-overload]
    assert torch.allclose(model(x), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RigLLinear(4, 4, sparsity=1.0), "below 1"),
        (lambda: RigLLinear(4, 4, execution="fast"), "execution must be one of"),  # type: ignore[arg-type]
        (lambda: RigLLinear(4, 4)(torch.ones(0, 4)), "empty batch"),
        (lambda: RigLLinear(4, 4)(torch.ones(2, 5)), "must have 4 features"),
        (lambda: RigLConv2d(3, 4, 3)(torch.ones(2, 2, 5, 5)), r"\(B, 3, H, W\)"),
        (lambda: RigLConv2d(3, 4, 3)(torch.ones(2, 3, 2, 5)), "smaller than the kernel"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
