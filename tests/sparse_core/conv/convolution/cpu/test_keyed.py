"""Levels and tiles found by keys against those found through a map of all cells."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.conv.convolution.cpu.blocks import RowBlock
from sparse_core.conv.convolution.cpu.keyed import CellKeys, keyed_level, keyed_strided_level, merge_keys
from sparse_core.conv.convolution.cpu.levels import direct_level, strided_level
from sparse_core.conv.convolution.cpu.tiles import TILE_MARGINS, TILE_SHAPES, keyed_tile_plan, tile_plan
from sparse_core.conv.coordinates.common import linear_keys

#: As many cells as keys can number, too many for a map.
ENDLESS = (1 << 18, 1 << 18)
SHAPE, FRAMES = (53, 62), 2


def some_cells(share: float, seed: int) -> Tensor:
    """Return cells away from borders."""
    active = torch.rand((FRAMES, *SHAPE), generator=torch.Generator().manual_seed(seed)) < share
    active[:, :8], active[:, -8:], active[:, :, :8], active[:, :, -8:] = False, False, False, False
    return active.nonzero()


def equal_blocks(one: list[RowBlock], other: list[RowBlock]) -> bool:
    return len(one) == len(other) and all(
        (a.start, a.stop) == (b.start, b.stop) and torch.equal(a.rows, b.rows)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.9])
def test_levels_are_those_of_a_map(share: float) -> None:
    cells = some_cells(share, seed=1)
    corner = torch.tensor([0, 1 << 17, 1 << 16])
    mapped = direct_level(cells, SHAPE, FRAMES)
    keyed = keyed_level(cells + corner, ENDLESS, FRAMES)
    sizes = (3, 3), (2, 2), (1, 1)
    for _ in range(3):
        assert torch.equal(keyed.cells - corner, mapped.cells)
        assert torch.equal(keyed.gathered, mapped.gathered)
        assert torch.equal(keyed.order, mapped.order)
        assert equal_blocks(keyed.blocks(32), mapped.blocks(32))
        mapped, made = strided_level(mapped, *sizes)
        keyed, own = keyed_strided_level(keyed, *sizes)
        assert equal_blocks(own.blocks(32), made.blocks(32))
        assert torch.equal(own.gathered, made.gathered)
        assert torch.equal(own.computed, made.computed)
        corner = corner // torch.tensor([1, 2, 2])


@pytest.mark.parametrize("dtype", list(TILE_SHAPES))
@pytest.mark.parametrize("share", [0.0, 0.02, 0.7])
def test_tiles_are_those_of_a_map(share: float, dtype: torch.dtype) -> None:
    before, after = some_cells(share, 2), some_cells(share, 3)
    (above, below), (left, right) = TILE_MARGINS
    rows = torch.full((FRAMES, SHAPE[0] + above + below, SHAPE[1] + left + right), -1, dtype=torch.int32)
    frame, row, column = before.unbind(1)
    rows[frame, row + above, column + left] = torch.arange(len(before), dtype=torch.int32)
    strides, origin = rows.stride(), above * rows.stride(1) + left
    expected = tile_plan(after, SHAPE, FRAMES, TILE_SHAPES[dtype], rows.view(-1), strides, origin, 16)
    index = CellKeys(linear_keys(before, ENDLESS).numpy())

    def windows(corners: Tensor, size: tuple[int, int]) -> np.ndarray:
        return index.windows_of(linear_keys(corners, ENDLESS).numpy(), size, ENDLESS)

    plan = keyed_tile_plan(after, ENDLESS, windows, 16, TILE_SHAPES[dtype])
    assert plan.tiles == expected.tiles
    assert torch.equal(plan.places, expected.places)
    assert len(plan.reads) == len(expected.reads)
    assert all(torch.equal(a, b) for a, b in zip(plan.reads, expected.reads, strict=True))


@settings(max_examples=50)
@given(st.sets(st.integers(0, 60)), st.lists(st.integers(-2, 62), max_size=30), st.integers(1, 5))
def test_rows_of_keys(keys: set[int], wanted: list[int], length: int) -> None:
    rising = np.array(sorted(keys), np.int64)
    index, places = CellKeys(rising), {key: row for row, key in enumerate(sorted(keys))}
    first = np.array(wanted, np.int64)
    assert index.rows_of(first).tolist() == [places.get(key, -1) for key in wanted]
    expected = [[places.get(key + step, -1) for key in wanted] for step in range(length)]
    assert index.runs_of(first, length).tolist() == expected


def test_merged() -> None:
    parts = [np.array(part, np.int64) for part in ([1, 4, 9], [], [4, 5], [9, 10])]
    assert merge_keys(*parts).tolist() == [1, 4, 5, 9, 10]
    assert len(merge_keys(parts[1])) == 0
