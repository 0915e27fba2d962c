"""Grids of cells on the ground, with a range and without."""

from __future__ import annotations

import pytest
import torch

from perception.geometry import BirdsEyeGrid, OpenGrid

CLOSED = BirdsEyeGrid((-8.0, -16.0, -3.0, 8.0, 16.0, 1.0), 0.25)
OPEN = OpenGrid((-8.0, -16.0), (-3.0, 1.0), 0.25)


def test_cells_of_an_open_grid_are_those_of_a_range_with_the_same_corner() -> None:
    xy = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([16.0, 32.0])
    x, y = (xy - torch.tensor([8.0, 16.0])).unbind(1)
    closed, opened = CLOSED.cell_of(x, y), OPEN.cell_of(x, y)
    assert all(torch.equal(a + OPEN.first_cell, b) for a, b in zip(closed, opened, strict=True))
    places = [torch.stack(cells[::-1], dim=1) for cells in (closed, opened)]
    assert torch.equal(CLOSED.positions_of_cells(places[0]), OPEN.positions_of_cells(places[1]))


def test_cells_are_counted_in_all_directions() -> None:
    row, column = OPEN.cell_of(torch.tensor([-8.1, 4000.0]), torch.tensor([-16.3, 15_000.0]))
    assert (row - OPEN.first_cell).tolist() == [-2, 60_064]
    assert (column - OPEN.first_cell).tolist() == [-1, 16_032]


def test_coarser_cells_hold_whole_ones() -> None:
    x, y = torch.linspace(-900, 900, 501), torch.linspace(700, -800, 501)
    for fine, coarse in zip(OPEN.cell_of(x, y), OPEN.coarser(4.0).cell_of(x, y), strict=True):
        assert torch.equal(fine // 4, coarse)
    assert OPEN.coarser(4.0).reach_m == OPEN.reach_m


@pytest.mark.parametrize(
    ("x", "z", "inside"),
    [
        (0.0, 0.0, True),
        (20_000.0, 0.0, True),
        (1e6, 0.0, False),
        (-3e38, 0.0, False),
        (float("nan"), 0.0, False),
        (float("inf"), 0.0, False),
        (0.0, 1.0, False),
        (0.0, -3.1, False),
    ],
)
def test_what_an_open_grid_contains(x: float, z: float, inside: bool) -> None:
    grid = OpenGrid((0.0, 0.0), (-3.0, 1.0), 0.16)
    assert bool(grid.contains(*torch.tensor([[x], [0.0], [z]]))) is inside
    assert bool(grid.contains(*torch.tensor([[0.0], [x], [z]]))) is inside
