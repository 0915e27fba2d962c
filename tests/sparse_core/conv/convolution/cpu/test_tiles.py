"""Tiles of a 3x3 layer against torch's dense convolution."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from sparse_core.conv.convolution.cpu import tiles as tiles_module
from sparse_core.conv.convolution.cpu.blocks import RowPool
from sparse_core.conv.convolution.cpu.tiles import (
    TILE_MARGINS,
    TILE_SHAPES,
    tile_convolution,
    tile_plan,
    tile_weight,
)


def random_map(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer_by_tiles(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    cells: Tensor,
    *,
    residual: Tensor | None = None,
    relu: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """(B, C, H, W) inputs and a (C_out, C, 3, 3) weight to (M, C_out) at the cells."""
    batch, channels, *shape = inputs.shape
    rows = torch.cat([inputs.permute(0, 2, 3, 1).reshape(-1, channels), torch.zeros(1, channels)]).to(dtype)
    (above, below), (left, right) = TILE_MARGINS
    places = torch.full((batch, shape[0] + above + below, shape[1] + left + right), len(rows) - 1).int()
    inner = places[:, above : above + shape[0], left : left + shape[1]]
    inner.copy_(torch.arange(len(rows) - 1).view(inner.shape))
    origin = above * places.stride(1) + left
    tile = TILE_SHAPES[dtype]
    plan = tile_plan(cells, shape, batch, tile, places.view(-1), places.stride(), origin, channels)
    pool = RowPool(dtype)
    pool.give(pool.take(1000, 100).fill_(math.nan))
    out = torch.full((len(cells) + 1, len(weight)), math.nan, dtype=dtype)
    packed = tile_weight(weight.permute(2, 3, 1, 0).flatten(0, 1), dtype)
    bias, residual = bias.to(dtype), None if residual is None else residual.to(dtype)
    made = tile_convolution(rows, packed, plan, out=out, bias=bias, residual=residual, relu=relu, pool=pool)
    assert made is out
    assert bool(made[-1].isnan().all())
    assert not pool._taken
    return made[:-1]


@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 11), st.integers(1, 13)),
    batch=st.integers(1, 3),
    share=st.sampled_from([0.05, 0.5, 1.0]),
    channels=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    relu=st.booleans(),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(list(TILE_SHAPES)),
)
def test_a_layer_is_that_of_torch(
    shape: tuple[int, int],
    batch: int,
    share: float,
    channels: tuple[int, int],
    relu: bool,
    seed: int,
    dtype: torch.dtype,
) -> None:
    inputs = random_map((batch, channels[0], *shape), seed)
    weight, bias = (
        random_map((channels[1], channels[0], 3, 3), seed + 1),
        random_map((channels[1],), seed + 2),
    )
    cells = (
        random_map((batch, *shape), seed + 3) < torch.erfinv(torch.tensor(2 * share - 1)) * 1.5
    ).nonzero()
    cells = cells[torch.randperm(len(cells), generator=torch.Generator().manual_seed(seed))]
    residual = random_map((len(cells), channels[1]), seed + 4)
    frame, row, column = cells.unbind(1)
    expected = F.conv2d(inputs, weight, bias, padding=1)[frame, :, row, column] + residual
    made = layer_by_tiles(inputs, weight, bias, cells, residual=residual, relu=relu, dtype=dtype)
    # Inputs, weights, factors and products are rounded to 8 bits, and nine of the products added.
    rtol, atol = {torch.float32: (1e-5, 5e-5), torch.bfloat16: (0.02, 0.25)}[dtype]
    expected = torch.relu(expected) if relu else expected
    torch.testing.assert_close(made.float(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("elements", [1, 1 << 12, 1 << 30])
def test_parts_of_any_size(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, weight, bias = random_map((2, 7, 20, 21), 0), random_map((5, 7, 3, 3), 1), random_map((5,), 2)
    cells = (random_map((2, 20, 21), 3) > 0.8).nonzero()
    whole = layer_by_tiles(inputs, weight, bias, cells)
    monkeypatch.setattr(tiles_module, "TILE_ELEMENTS", elements)
    torch.testing.assert_close(layer_by_tiles(inputs, weight, bias, cells), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 4e-6), (torch.bfloat16, 0.015)])
def test_the_error_is_that_of_few_digits_lost(dtype: torch.dtype, limit: float) -> None:
    inputs, weight = torch.relu(random_map((1, 128, 30, 30), 0)), random_map((128, 128, 3, 3), 1)
    bias = torch.zeros(128)
    cells = torch.ones((1, 30, 30)).nonzero()
    exact = F.conv2d(inputs.double(), weight.double(), padding=1)[0].flatten(1).T
    made = layer_by_tiles(inputs, weight, bias, cells, dtype=dtype).double()
    assert float((made - exact).abs().max() / exact.abs().max()) < limit


def test_tiles_hold_the_cells_and_no_others() -> None:
    cells = torch.tensor([[0, 0, 0], [0, 1, 3], [0, 2, 3], [1, 5, 8]])
    (above, below), (left, right) = TILE_MARGINS
    places = torch.arange(2 * (6 + above + below) * (9 + left + right), dtype=torch.int32)
    strides = ((6 + above + below) * (9 + left + right), 9 + left + right, 1)
    rest = places, strides, above * strides[1] + left, 1
    for dtype, count in ((torch.float32, 3), (torch.bfloat16, 4)):
        tile = TILE_SHAPES[dtype]
        (reads,) = tile_plan(cells, (6, 9), 2, tile, *rest).reads
        # With few tiles the last one is computed repeatedly.
        assert len(reads.view(tile.reads, -1).unique(dim=1).T) == count
        assert tile_plan(cells[:0], (6, 9), 2, tile, *rest).tiles == 0


def test_no_cells() -> None:
    made = layer_by_tiles(
        random_map((1, 3, 4, 4), 0), random_map((2, 3, 3, 3), 1), torch.zeros(2), torch.zeros((0, 3)).long()
    )
    assert made.shape == (0, 2)
