from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.conv import build_table, strided_table
from sparse_core.conv.grid import (
    FixedGrid,
    GridLevel,
    cell_coordinates,
    grid_from_bits,
    grid_from_cells,
    linear_cells,
    padded_width,
    pyramid,
    word_count,
)
from sparse_core.conv.grid.reference import row_of
from sparse_core.errors import ImplementationError

RandomCells = Callable[..., Tensor]
SHAPES = [(40, 50), (31, 64), (1, 33), (9, 11, 40), (70,)]


def bits_of(coordinates: Tensor, shape: tuple[int, ...], batch_size: int) -> Tensor:
    """Bits set one at a time."""
    bits = [0] * word_count(shape, batch_size)
    for cell in linear_cells(coordinates, shape).tolist():
        bits[cell // 32] |= 1 << (cell % 32)
    return torch.tensor([word - 2**32 if word >= 2**31 else word for word in bits], dtype=torch.int32)


def test_a_line_of_cells_begins_with_a_word() -> None:
    assert [padded_width(width) for width in (1, 31, 32, 33, 432)] == [32, 32, 32, 64, 448]
    assert word_count((496, 432), 2) == 2 * 496 * 14
    assert linear_cells(torch.tensor([[1, 2, 3]]), (5, 40)).tolist() == [(1 * 5 + 2) * 64 + 3]


@given(st.data())
@settings(max_examples=30)
def test_coordinates_come_back_from_cell_numbers(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3)))
    size = [st.integers(0, bound - 1) for bound in (3, *shape)]
    coordinates = torch.tensor(data.draw(st.lists(st.tuples(*size), min_size=1, max_size=9)))
    assert torch.equal(cell_coordinates(linear_cells(coordinates, shape), shape), coordinates.int())
    assert cell_coordinates(torch.tensor([-1]), shape).tolist() == [[-1] * (len(shape) + 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_those_of_the_coordinate_table(shape: tuple[int, ...], random_cells: RandomCells) -> None:
    coordinates = random_cells(shape, batch_size=3, empty_frame=1)
    table = build_table(coordinates, shape, impl="reference")
    cells = linear_cells(torch.cat([coordinates, coordinates[:5]]), shape)
    none = torch.full((3,), -1, dtype=torch.int32)
    grid = grid_from_cells(torch.cat([none, cells]), shape, 3, len(table) + 7)
    assert int(grid.count) == int(grid.active) == len(table)
    assert torch.equal(grid.coordinates()[: len(table)], table.coordinates)
    assert grid.cells[len(table) :].tolist() == [-1] * 7
    same = grid_from_bits(bits_of(coordinates, shape, 3), shape, 3, len(table) + 7)
    assert torch.equal(grid.words, same.words)
    everywhere = torch.arange(32 * len(grid.words), dtype=torch.int32)
    inside = everywhere % 3 > 0
    rows = row_of(grid.words, everywhere, inside, grid.capacity)
    expected = torch.full_like(everywhere, -1)
    expected[grid.cells[: len(table)].long()] = torch.arange(len(table), dtype=torch.int32)
    assert torch.equal(rows, torch.where(inside, expected, -1))


def test_cells_beyond_the_capacity_have_no_row(random_cells: RandomCells) -> None:
    coordinates = random_cells((20, 30), batch_size=1)
    cells = linear_cells(coordinates, (20, 30))
    grid = grid_from_cells(cells, (20, 30), 1, 50)
    assert (int(grid.count), int(grid.active)) == (50, len(cells))
    assert torch.equal(grid.cells, cells.sort().values[:50])
    rows = row_of(grid.words, cells, torch.ones_like(cells, dtype=torch.bool), grid.capacity)
    rank = cells.argsort().argsort()
    assert torch.equal(rows.long(), torch.where(rank < 50, rank, -1))


def test_an_empty_grid_has_no_rows() -> None:
    levels = pyramid(
        torch.zeros(word_count((8, 40), 2), dtype=torch.int32), (8, 40), 2, [4, 4], [GridLevel()]
    )
    for grid in levels:
        assert int(grid.count) == int(grid.active) == 0
        assert grid.cells.tolist() == [-1] * 4
        assert not grid.words.any()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dilating", [(True, True, True), (False, False, False), (True, False, True)])
def test_levels_are_those_of_strided_tables(
    shape: tuple[int, ...], dilating: tuple[bool, ...], random_cells: RandomCells
) -> None:
    coordinates = random_cells(shape, density=0.03)
    levels = [GridLevel((3,) * len(shape), (2,) * len(shape), (1,) * len(shape), grows) for grows in dilating]
    check_pyramid(coordinates, shape, levels)


@pytest.mark.parametrize(
    "level",
    [
        GridLevel((2, 2), (2, 2), (0, 0)),
        GridLevel((5, 3), (3, 1), (2, 1)),
        GridLevel((3, 3), (3, 2), (0, 0), dilating=False),
    ],
)
def test_levels_of_any_kernel_are_those_of_strided_tables(
    level: GridLevel, random_cells: RandomCells
) -> None:
    check_pyramid(random_cells((41, 50), density=0.05), (41, 50), [GridLevel(), level, GridLevel()])


def check_pyramid(coordinates: Tensor, shape: tuple[int, ...], levels: list[GridLevel]) -> None:
    table = build_table(coordinates, shape, impl="reference")
    grids = pyramid(bits_of(coordinates, shape, 2), shape, 2, [2000] * (len(levels) + 1), levels)
    for level, grid in zip([None, *levels], grids, strict=True):
        if level is not None:
            _, table = strided_table(table, *level[:3], dilating=level.dilating, impl="reference")
        assert grid.spatial_shape == table.spatial_shape
        assert int(grid.active) == len(table) <= grid.capacity
        assert torch.equal(grid.coordinates()[: len(table)], table.coordinates)


def test_arguments_are_checked() -> None:
    bits = torch.zeros(word_count((8, 40), 1), dtype=torch.int32)
    with pytest.raises(ValueError, match="have 16 words, got"):
        grid_from_bits(bits[1:], (8, 40), 1, 4)
    with pytest.raises(TypeError, match="bits must be int32"):
        grid_from_bits(bits.long(), (8, 40), 1, 4)
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        grid_from_bits(bits, (8, 40), 1, 0)
    with pytest.raises(ValueError, match="1 levels need 2 capacities"):
        pyramid(bits, (8, 40), 1, [4], [GridLevel()])
    with pytest.raises(ValueError, match="kernel, stride and padding need 2 entries"):
        pyramid(bits, (8, 40), 1, [4, 4], [GridLevel((3,), (2,), (1,))])
    with pytest.raises(ValueError, match="larger than the grid"):
        pyramid(bits, (8, 40), 1, [4, 4], [GridLevel((9, 9), (1, 1), (0, 0))])
    with pytest.raises(ValueError, match=r"more than 2\^31 - 1"):
        word_count((2**16, 2**16), 1)
    with pytest.raises(ValueError, match="1 to 3 sizes"):
        word_count((2, 2, 2, 2), 1)
    with pytest.raises(ValueError, match="batch_size"):
        word_count((2, 2), 0)
    with pytest.raises(TypeError, match=r"cells must be \(N,\) int32"):
        grid_from_cells(torch.zeros(3), (8, 40), 1, 4)
    with pytest.raises(ImplementationError, match="no vendor"):
        grid_from_bits(bits, (8, 40), 1, 4, impl="vendor")


def test_content_of_a_grid() -> None:
    grid = grid_from_cells(torch.tensor([65, 3], dtype=torch.int32), (2, 40), 1, 3)
    assert isinstance(grid, FixedGrid)
    assert grid.words.tolist() == [[8, 0], [0, 1], [2, 1], [0, 2]]
    assert grid.cells.tolist() == [3, 65, -1]
    assert grid.words.dtype == grid.cells.dtype == grid.count.dtype == grid.active.dtype == torch.int32
    assert grid.count.shape == grid.active.shape == (1,)
