from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from sparse_core.conv import CoordinateTable, NeighbourTable, build_table, strided_table, submanifold_table
from sparse_core.conv.geometry import output_shape, taps

Cells = Callable[..., Tensor]


def rows_under_taps(
    table: CoordinateTable,
    batch_size: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    """Input row under every tap of every cell of the output grid, -1 for none, by a dense convolution.

    The grid holds row + 1 at active cells; one-hot kernels, one a tap, read it.
    """
    dimensions = len(kernel_size)
    grid = torch.zeros(batch_size, 1, *table.spatial_shape, dtype=torch.float64)
    rows = torch.arange(1, len(table) + 1, dtype=torch.float64)
    grid.squeeze(1).index_put_(table.coordinates.long().unbind(1), rows)
    count = math.prod(kernel_size)
    one_hot = torch.eye(count, dtype=torch.float64).view(count, 1, *kernel_size)
    convolve = functional.conv2d if dimensions == 2 else functional.conv3d
    found = convolve(grid, one_hot, stride=tuple(stride), padding=tuple(padding))
    return found.movedim(1, -1).round().long() - 1


def check_table(neighbours: NeighbourTable, expected: Tensor, inputs: int) -> None:
    """``expected``: (M, K) input rows, -1 for none."""
    assert torch.equal(neighbours.rows, expected.T)
    assert neighbours.inverse.shape == (expected.shape[1], inputs)
    assert neighbours.rows.dtype == neighbours.inverse.dtype == torch.int64
    # Sorted triples (tap, output, input), read from either side.
    reads = (neighbours.rows >= 0).nonzero()
    forward = torch.cat([reads, neighbours.rows[reads.unbind(1)][:, None]], dim=1)
    written = (neighbours.inverse >= 0).nonzero()
    readers = neighbours.inverse[written.unbind(1)]
    backward = torch.stack([written[:, 0], readers, written[:, 1]], dim=1)
    assert torch.equal(torch.unique(forward, dim=0), torch.unique(backward, dim=0))
    assert neighbours.pairs == len(forward) == len(backward)


SIZES = st.lists(st.integers(1, 7), min_size=2, max_size=3)


@settings(max_examples=60)
@given(shape=SIZES, density=st.floats(0, 1), seed=st.integers(0, 999), data=st.data())
def test_submanifold_table_matches_dense_taps(
    random_cells: Cells, shape: list[int], density: float, seed: int, data: st.DataObject
) -> None:
    kernel_size = [data.draw(st.sampled_from([1, 3, 5]), label="kernel") for _ in shape]
    table = build_table(random_cells(shape, density=density, seed=seed), shape)
    expected = rows_under_taps(table, 2, kernel_size, [1] * len(shape), [size // 2 for size in kernel_size])
    neighbours = submanifold_table(table, kernel_size)
    check_table(neighbours, expected[table.coordinates.long().unbind(1)], len(table))


@settings(max_examples=80)
@given(shape=SIZES, density=st.floats(0, 1), seed=st.integers(0, 999), data=st.data(), dilating=st.booleans())
def test_strided_table_matches_dense_taps(
    random_cells: Cells, shape: list[int], density: float, seed: int, data: st.DataObject, dilating: bool
) -> None:
    def per_axis(low: int, high: int, label: str) -> list[int]:
        return [data.draw(st.integers(low, high), label=label) for _ in shape]

    kernel_size, stride, padding = (
        per_axis(1, 4, "kernel"),
        per_axis(1, 3, "stride"),
        per_axis(0, 2, "padding"),
    )
    out_shape = output_shape(shape, kernel_size, stride, padding)
    assume(min(out_shape) >= 1)
    table = build_table(random_cells(shape, density=density, seed=seed), shape)
    neighbours, outputs = strided_table(table, kernel_size, stride, padding, dilating=dilating)

    dense = rows_under_taps(table, 2, kernel_size, stride, padding)
    assert outputs.spatial_shape == tuple(dense.shape[1:-1])
    if dilating:
        active = (dense >= 0).any(dim=-1).nonzero()
    else:
        step, last = torch.tensor([1, *stride]), torch.tensor([2, *out_shape]) - 1
        active = torch.unique(torch.minimum(table.coordinates.long() // step, last), dim=0)
    assert torch.equal(outputs.coordinates.long(), active.view(-1, 1 + len(shape)))
    check_table(neighbours, dense[active.unbind(1)], len(table))


def test_largest_kernel_stays_within_the_margin() -> None:
    table = build_table(torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(4)), (3, 4))
    expected = rows_under_taps(table, 2, (9, 9), (1, 1), (4, 4)).flatten(0, 2)
    check_table(submanifold_table(table, (9, 9)), expected, 24)
    neighbours, outputs = strided_table(table, (9, 9), (1, 1), (4, 4))
    check_table(neighbours, expected, 24)
    assert len(outputs) == 24


@pytest.mark.parametrize("dilating", [True, False])
@pytest.mark.usefixtures("poisoned_memory")
def test_empty_table_gives_empty_maps(dilating: bool) -> None:
    table = build_table(torch.zeros(0, 4, dtype=torch.int32), (5, 6, 7))
    submanifold = submanifold_table(table, (3, 1, 3))
    assert submanifold.rows.shape == submanifold.inverse.shape == (9, 0)
    neighbours, outputs = strided_table(table, (3, 3, 3), (2, 2, 2), (1, 1, 1), dilating=dilating)
    assert neighbours.rows.shape == neighbours.inverse.shape == (27, 0)
    assert (len(outputs), outputs.spatial_shape, neighbours.pairs) == (0, (3, 3, 4), 0)


def test_not_dilating_keeps_no_more_cells_than_inputs(random_cells: Cells) -> None:
    table = build_table(random_cells((20, 21), density=0.05), (20, 21))
    _, dilated = strided_table(table, (3, 3), (2, 2), (1, 1))
    _, kept = strided_table(table, (3, 3), (2, 2), (1, 1), dilating=False)
    assert len(kept) <= len(table) < len(dilated)


def test_taps_are_row_major() -> None:
    assert taps((2, 3)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert taps((2, 1, 2)) == list(itertools.product((0, 1), (0,), (0, 1)))


@pytest.mark.parametrize(
    ("kernel_size", "message"),
    [((2, 3), "odd sizes"), ((3,), "needs 2 entries"), ((11, 3), "from 1 to 9"), ((0, 3), "from 1 to 9")],
)
def test_wrong_submanifold_kernel(kernel_size: tuple[int, ...], message: str) -> None:
    table = build_table(torch.zeros(1, 3, dtype=torch.int32), (4, 4))
    with pytest.raises(ValueError, match=message):
        submanifold_table(table, kernel_size)


@pytest.mark.parametrize(
    ("kernel_size", "stride", "padding", "message"),
    [
        ((5, 3), (1, 1), (0, 0), "larger than the grid"),
        ((3, 3), (2,), (1, 1), "stride and padding need 2 entries"),
        ((3, 3), (2, 2), (1, 1, 1), "stride and padding need 2 entries"),
        ((3, 3), (0, 2), (1, 1), "stride must be at least 1"),
        ((3, 3), (2, 2), (-1, 1), "padding at least 0"),
        ((3, 10), (2, 2), (1, 9), "from 1 to 9"),
    ],
)
def test_wrong_strided_sizes(
    kernel_size: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], message: str
) -> None:
    table = build_table(torch.zeros(1, 3, dtype=torch.int32), (4, 4))
    with pytest.raises(ValueError, match=message):
        strided_table(table, kernel_size, stride, padding)


@pytest.mark.gpu
@pytest.mark.parametrize("dilating", [True, False])
def test_maps_on_cuda_equal_those_on_cpu(random_cells: Cells, cuda: torch.device, dilating: bool) -> None:
    cells = random_cells((64, 63), density=0.1)
    on_cpu, on_cuda = build_table(cells, (64, 63)), build_table(cells.to(cuda), (64, 63))
    pairs = [
        (submanifold_table(on_cpu, (3, 5)), submanifold_table(on_cuda, (3, 5))),
        tuple(
            strided_table(part, (3, 3), (2, 2), (1, 1), dilating=dilating)[0] for part in (on_cpu, on_cuda)
        ),
    ]
    for expected, found in pairs:
        assert torch.equal(found.rows.cpu(), expected.rows)
        assert torch.equal(found.inverse.cpu(), expected.inverse)
