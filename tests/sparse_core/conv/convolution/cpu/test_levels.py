"""Levels found through a direct map, and layers computed block by block, against the general ones."""

from __future__ import annotations

import functools
import itertools
import math
import operator

import numpy as np
import pytest
import torch
from drawn_cells import some_cells
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.conv import pack_weight, strided_table, submanifold_table
from sparse_core.conv.convolution.cpu import blocks as blocks_module
from sparse_core.conv.convolution.cpu.blocks import (
    RowPool,
    block_convolution,
    even_blocks,
    rows_by_taps,
    tap_ranges,
)
from sparse_core.conv.convolution.cpu.levels import DirectLevel, direct_level, fits, strided_level
from sparse_core.conv.convolution.reference import sparse_convolution
from sparse_core.conv.coordinates import CoordinateTable, build_table


def in_table_rows(level: DirectLevel, table: CoordinateTable, neighbours: Tensor) -> Tensor:
    """A level's neighbours as the table counts rows."""
    rows = torch.cat([table.lookup(level.cells), torch.tensor([-1])])
    return rows[neighbours.long()]


@settings(max_examples=40)
@given(
    shape=st.one_of(st.tuples(st.integers(1, 9), st.integers(1, 9)), st.tuples(*[st.integers(1, 5)] * 3)),
    frames=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
def test_a_level_has_the_neighbours_of_the_table(
    shape: tuple[int, ...], frames: int, share: float, seed: int
) -> None:
    cells = some_cells(shape, frames, share, seed)
    kernel = (3, 3) if len(shape) == 2 else (3, 1, 3)
    level = direct_level(cells, shape, frames, kernel)
    table = build_table(cells, shape)
    expected = submanifold_table(table, kernel).rows
    assert torch.equal(level.cells, cells[level.order])
    assert torch.equal(in_table_rows(level, table, level.gathered.T), expected[:, level.order])
    present = expected[:, level.order][list(level.ordered.taps)] >= 0
    bits = (present.long() << torch.arange(len(expected))[:, None]).sum(0)
    assert bits.tolist() == level.ordered.sets.tolist() == sorted(bits.tolist())


@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    frames=st.integers(1, 2),
    share=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 1)),
    seed=st.integers(0, 99),
)
def test_a_strided_layer_equals_the_general_one(
    shape: tuple[int, int],
    frames: int,
    share: float,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    seed: int,
) -> None:
    cells = some_cells(shape, frames, share, seed)
    table = build_table(cells, shape)
    neighbours, outputs = strided_table(table, kernel, stride, padding)
    before = direct_level(cells, shape, frames)
    level, computed_rows = strided_level(before, kernel, stride, padding)
    assert torch.equal(level.cells[level.order.argsort()], outputs.coordinates.long())
    assert level.spatial_shape == outputs.spatial_shape

    random = torch.Generator().manual_seed(seed)
    features = torch.randn(len(cells), 5, generator=random)
    weight, bias = torch.randn(4, *kernel, 5, generator=random), torch.randn(4, generator=random)
    rows = RowPool().take_with_zero_row(len(cells), 5)
    rows[:-1] = features[before.order]
    out = torch.full((len(outputs), 4), math.nan)
    blocks = computed_rows.blocks(5)
    made = block_convolution(rows, pack_weight(weight), blocks, out=out, bias=bias, pool=RowPool())
    with torch.no_grad():
        expected = sparse_convolution(features, weight, neighbours, bias)
    found, wanted = made[computed_rows.computed], expected[outputs.lookup(level.cells)]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("elements", [1, 1 << 12, 1 << 18])
@pytest.mark.parametrize("relu", [False, True])
def test_blocks_of_any_size_give_the_submanifold_layer(
    elements: int, relu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_ELEMENTS", elements)
    shape, channels = (40, 37), 7
    cells = some_cells(shape, 2, 0.2, seed=4)
    table = build_table(cells, shape)
    level = direct_level(cells, shape, 2)
    blocks = level.blocks(channels)
    assert [block.start for block in blocks[1:]] == [block.stop for block in blocks[:-1]]
    assert (blocks[0].start, blocks[-1].stop) == (0, len(cells))
    assert (len(blocks) > 1) == (elements < 1 << 18)

    random = torch.Generator().manual_seed(1)
    features, residual = (torch.randn(len(cells), channels, generator=random) for _ in range(2))
    weight = torch.randn(channels, 3, 3, channels, generator=random)
    bias = torch.randn(channels, generator=random)
    rows = RowPool().take_with_zero_row(len(cells), channels)
    rows[:-1] = features[level.order]
    with torch.no_grad():
        expected = sparse_convolution(features, weight, submanifold_table(table, (3, 3)), bias)
    for addend in (None, residual):
        want = expected if addend is None else expected + addend
        want = torch.relu(want) if relu else want
        made = block_convolution(
            rows,
            pack_weight(weight),
            blocks,
            out=torch.full((len(cells) + 1, channels), math.nan),
            bias=bias,
            residual=None if addend is None else addend[level.order],
            relu=relu,
            pool=RowPool(),
        )
        torch.testing.assert_close(made[:-1], want[level.order], rtol=1e-5, atol=1e-5)
        assert bool(made[-1].isnan().all())


def test_taps_that_no_row_of_a_block_has_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_ELEMENTS", 1)
    present = torch.zeros((9, 192), dtype=torch.bool)
    present[4] = True
    present[0, torch.arange(0, 192, 3)] = True
    ordered = rows_by_taps(present)
    expected = torch.cat([torch.arange(192)[~present[0]], torch.arange(0, 192, 3)])
    assert torch.equal(ordered.order, expected)
    assert ordered.taps[:2] == (4, 0)
    table = torch.zeros((192, 9), dtype=torch.int32)
    taps = [block.taps.tolist() for block in even_blocks(table, 4, ordered) if block.taps is not None]
    assert taps == [[4], [4], [0, 4]]
    whole = rows_by_taps(torch.ones((9, 192), dtype=torch.bool))
    assert all(block.taps is None for block in even_blocks(table, 4, whole))


@settings(max_examples=60)
@given(sets=st.lists(st.integers(0, 15), min_size=1, max_size=40), cost=st.sampled_from([0.0, 0.5, 2.0, 7.0]))
def test_no_pruning_of_the_tree_is_cheaper(sets: list[int], cost: float) -> None:
    sets = sorted(sets)

    def best(low: int, high: int) -> float:
        """Cost of the sets from ``low`` to ``high`` - 1, by trying everything."""
        here = [entry for entry in sets if low <= entry < high]
        if not here:
            return 0.0
        whole = len(here) * functools.reduce(operator.or_, here).bit_count() + cost
        if high - low == 1:
            return whole
        middle = (low + high) // 2
        return min(whole, best(low, middle) + best(middle, high))

    bounds = tap_ranges(np.array(sets, dtype=np.uint16), 4, cost)
    assert bounds[0] == 0
    assert bounds[-1] == len(sets)
    parts = [sets[start:stop] for start, stop in itertools.pairwise(bounds)]
    assert all(parts)
    found = sum(len(part) * functools.reduce(operator.or_, part).bit_count() + cost for part in parts)
    assert found == pytest.approx(best(0, 16))


def test_an_order_needs_few_taps() -> None:
    with pytest.raises(ValueError, match="at most 16 taps"):
        rows_by_taps(torch.ones((27, 2), dtype=torch.bool))


def test_nothing_active() -> None:
    level = direct_level(torch.zeros((0, 3), dtype=torch.int64), (8, 8), 1)
    after, made = strided_level(level, (3, 3), (2, 2), (1, 1))
    assert (len(level), level.blocks(4), len(after)) == (0, [], 0)
    assert (made.blocks(4), len(made.computed)) == ([], 0)


def test_a_map_must_fit() -> None:
    assert fits((1984, 1728), 8)
    assert not fits((20_000, 20_000), 1)


def test_every_tap_is_counted_once() -> None:
    full = torch.tensor(list(itertools.product([0], range(4), range(4))))
    assert direct_level(full, (4, 4), 1).ordered.sets.tolist().count(0b111111111) == 4


def test_a_pool_hands_memory_out_again_and_never_twice() -> None:
    pool = RowPool()
    with torch.inference_mode():
        first, second = pool.take(10, 4), pool.take_with_zero_row(3, 4)
    assert second.shape == (4, 4)
    assert second[-1].tolist() == [0.0] * 4
    assert first.data_ptr() != second.data_ptr()
    place = first.data_ptr()
    pool.give(first)
    smaller = pool.take(2, 3)
    assert smaller.data_ptr() == place
    assert pool.take(2, 3).data_ptr() not in {place, second.data_ptr()}
    smaller.fill_(1.0)  # made in inference mode, written outside of it
