from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from sparse_core.conv import build_table, strided_table, submanifold_table
from sparse_core.conv.grid import (
    DenseGrid,
    FixedGrid,
    GridLevel,
    TableRequest,
    fixed_hash,
    grid_from_cells,
    hash_pyramid,
    linear_cells,
    neighbour_table,
    neighbour_tables,
    pyramid,
)

RandomCells = Callable[..., Tensor]
CASES = [
    ((30, 41), ((3, 3), (2, 2), (1, 1))),
    ((23, 70), ((5, 3), (3, 1), (0, 1))),
    ((8, 9, 40), ((3, 3, 3), (2, 2, 2), (1, 1, 1))),
    ((90,), ((3,), (2,), (1,))),
]


def grid_of(coordinates: Tensor, shape: tuple[int, ...], capacity: int) -> FixedGrid:
    return grid_from_cells(linear_cells(coordinates, shape), shape, 2, capacity)


def with_room(rows: Tensor, columns: int) -> Tensor:
    """(K, M) int64 as (K, columns) int32."""
    return pad(rows.int(), (0, columns - rows.shape[1]), value=-1)


@pytest.mark.parametrize(("shape", "sizes"), CASES)
@pytest.mark.parametrize("dilating", [True, False])
def test_tables_are_those_of_coordinates(
    shape: tuple[int, ...], sizes: tuple[tuple[int, ...], ...], dilating: bool, random_cells: RandomCells
) -> None:
    coordinates = random_cells(shape, density=0.1)
    table = build_table(coordinates, shape, impl="reference")
    level = GridLevel(*sizes, dilating)
    expected, outputs = strided_table(table, *sizes, dilating=dilating, impl="reference")
    capacities = [len(table) + 5, len(outputs) + 3]
    bits = grid_of(coordinates, shape, 1).words[:, 0].contiguous()
    grids = pyramid(bits, shape, 2, capacities, [level])
    hashes = hash_pyramid(fixed_hash(coordinates, shape, 2, capacities[0]), capacities[1:], [level])
    for coarse, fine in ((hashes[1], hashes[0]), (grids[1], grids[0]), (grids[1], hashes[0])):
        found = neighbour_table(fine, coarse, *sizes)
        assert torch.equal(found, with_room(expected.rows, capacities[1]))
        found = neighbour_table(fine, coarse, *sizes, inverse=True)
        assert torch.equal(found, with_room(expected.inverse, capacities[0]))
    assert torch.equal(hashes[1].keys[: len(outputs)], outputs.keys)
    assert hashes[1].keys[len(outputs) :].tolist() == [-1] * 3

    ones, kernel = (1,) * len(shape), (3,) * len(shape)
    expected = submanifold_table(table, kernel)
    found = neighbour_table(grids[0], grids[0], kernel, ones, ones)
    assert torch.equal(found, with_room(expected.rows, capacities[0]))
    assert torch.equal(neighbour_table(grids[0], grids[0], kernel, ones, ones, inverse=True), found.flip(0))


@pytest.mark.parametrize(("shape", "sizes"), CASES)
def test_tables_of_every_cell(
    shape: tuple[int, ...], sizes: tuple[tuple[int, ...], ...], random_cells: RandomCells
) -> None:
    """Check that a table of all outputs holds the columns of active ones, and -1 elsewhere."""
    coordinates = random_cells(shape, density=0.1)
    fine = grid_of(coordinates, shape, 1000)
    coarse = pyramid(fine.words[:, 0].contiguous(), shape, 2, [1000, 1000], [GridLevel(*sizes)])[1]
    everywhere = neighbour_table(fine, "all", *sizes)
    cells = 2 * math.prod(coarse.spatial_shape)
    assert everywhere.shape == (math.prod(sizes[0]), cells)
    active = torch.zeros(cells, dtype=torch.bool)
    rows = coarse.coordinates()[: int(coarse.count)].long()
    place = torch.zeros(len(rows), dtype=torch.int64)
    for column, size in zip(rows.unbind(1), (2, *coarse.spatial_shape), strict=True):
        place = place * size + column
    active[place] = True
    sparse = neighbour_table(fine, coarse, *sizes)
    assert torch.equal(everywhere[:, place], sparse[:, : len(rows)])
    assert (everywhere[:, ~active] == -1).all()
    back = neighbour_table(fine, "all", *sizes, inverse=True)
    known = neighbour_table(fine, coarse, *sizes, inverse=True)
    assert torch.equal(back, torch.where(known < 0, -1, place.int()[known.clamp(min=0).long()]))


def test_dense_tables_gather_what_unfold_does() -> None:
    numbers = torch.arange(1.0, 1.0 + 2 * 7 * 9).view(2, 1, 7, 9)
    table = neighbour_table(DenseGrid((7, 9), 2), "all", (3, 3), (2, 2), (1, 1))
    padded = torch.cat([numbers.flatten(), torch.zeros(1)])
    windows = torch.nn.functional.unfold(numbers, 3, padding=1, stride=2)
    assert torch.equal(padded[table.long()], windows.permute(1, 0, 2).flatten(1))


def test_several_tables_are_the_single_ones(random_cells: RandomCells) -> None:
    fine = grid_of(random_cells((20, 33), density=0.2), (20, 33), 200)
    requests = [
        TableRequest(fine, fine, (3, 3), (1, 1), (1, 1)),
        TableRequest(fine, "all", (3, 3), (2, 2), (1, 1)),
        TableRequest(fine, "all", (3, 3), (2, 2), (1, 1), True),
    ]
    first, second, third = neighbour_tables(requests)
    assert torch.equal(first, neighbour_table(*requests[0][:5]))
    assert torch.equal(second, neighbour_table(*requests[1][:5]))
    assert torch.equal(third, neighbour_table(*requests[2]))
    assert neighbour_tables([]) == []


def test_rows_beyond_the_capacity_are_not_found(random_cells: RandomCells) -> None:
    coordinates = random_cells((20, 33), density=0.2)
    whole = grid_of(coordinates, (20, 33), 400)
    for small in (grid_of(coordinates, (20, 33), 40), fixed_hash(coordinates, (20, 33), 2, 40)):
        assert (int(small.count), int(small.active)) == (40, int(whole.count))
        expected = neighbour_table(whole, whole, (3, 3), (1, 1), (1, 1))[:, :40]
        found = neighbour_table(small, small, (3, 3), (1, 1), (1, 1))
        assert torch.equal(found, torch.where(expected < 40, expected, -1))


def test_hashed_grids_take_grids_that_bitmaps_cannot() -> None:
    shape = (2**20, 2**20)
    coordinates = torch.tensor([[0, 2**20 - 1, 2**20 - 1], [0, 2**20 - 1, 2**20 - 2], [0, 0, 0], [-1, 0, 0]])
    grid = fixed_hash(coordinates, shape, 1, 5)
    assert (int(grid.count), int(grid.active)) == (3, 3)
    table = neighbour_table(grid, grid, (1, 3), (1, 1), (0, 1))
    assert table.tolist() == [[-1, -1, 1, -1, -1], [0, 1, 2, -1, -1], [-1, 2, -1, -1, -1]]
    with pytest.raises(ValueError, match="use a FixedHash"):
        grid_of(coordinates, shape, 5)


def test_requests_are_checked(random_cells: RandomCells) -> None:
    grid = grid_of(random_cells((20, 33)), (20, 33), 40)
    with pytest.raises(ValueError, match=r"makes 2 grids of \(10, 17\) from \(20, 33\), got 2 of \(20, 33\)"):
        neighbour_table(grid, grid, (3, 3), (2, 2), (1, 1))
    with pytest.raises(ValueError, match="outputs must be a grid or 'all'"):
        neighbour_table(grid, "none", (3, 3), (2, 2), (1, 1))
    with pytest.raises(ValueError, match="need 2 entries"):
        neighbour_table(grid, grid, (3, 3, 3), (1, 1, 1), (1, 1, 1))
    with pytest.raises(ValueError, match="a table has at most"):
        neighbour_table(DenseGrid((2**16, 2**16), 1), "all", (1, 1), (1, 1), (0, 0))
    with pytest.raises(ValueError, match="coordinates must be"):
        fixed_hash(torch.zeros(3, 3), (4,), 1, 4)
    with pytest.raises(ValueError, match="grids of"):
        fixed_hash(torch.zeros(3, 4, dtype=torch.int32), (2**20, 2**20, 2**20), 1, 4)
    with pytest.raises(ValueError, match="levels need as many capacities"):
        hash_pyramid(fixed_hash(torch.zeros(1, 3, dtype=torch.int32), (4, 4), 1, 4), [], [GridLevel()])
