from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.conv import CoordinateTable, build_table
from sparse_core.conv.coordinates import table_from_keys
from sparse_core.conv.coordinates.common import MARGIN, coordinates_from_keys, linear_keys
from sparse_core.errors import CapacityWarning, ImplementationError

SHAPES = [(7,), (5, 9), (3, 4, 5)]


def brute_force(coordinates: Tensor) -> tuple[list[tuple[int, ...]], list[int]]:
    """Distinct coordinates in lexicographic order and the row of each input, by a dict."""
    entries = [tuple(row) for row in coordinates.tolist()]
    distinct = sorted(set(entries))
    row_of = {entry: row for row, entry in enumerate(distinct)}
    return distinct, [row_of[entry] for entry in entries]


def draw(shape: tuple[int, ...], count: int, *, seed: int = 0, batch_size: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(0, size, (count,), generator=generator) for size in (batch_size, *shape)]
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [0, 1, 2, 300])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16])
def test_rows_match_a_dict(
    shape: tuple[int, ...], count: int, dtype: torch.dtype, device: torch.device
) -> None:
    coordinates = draw(shape, count)
    table = build_table(coordinates.to(device, dtype), shape, impl="reference")
    distinct, rows = brute_force(coordinates)
    assert table.coordinates.tolist() == [list(entry) for entry in distinct]
    assert table.rows.tolist() == rows
    assert table.coordinates.dtype == torch.int32
    assert table.rows.dtype == table.keys.dtype == torch.int64
    assert (len(table), table.overflow, table.spatial_shape) == (len(distinct), 0, shape)
    assert table.slots is None


@settings(max_examples=40)
@given(
    entries=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 3)), max_size=40),
    seed=st.integers(0, 100),
)
def test_rows_do_not_depend_on_the_order(entries: list[tuple[int, int, int]], seed: int) -> None:
    coordinates = torch.tensor(entries, dtype=torch.int64).reshape(-1, 3)
    table = build_table(coordinates, (6, 4))
    order = torch.randperm(len(entries), generator=torch.Generator().manual_seed(seed))
    shuffled = build_table(coordinates[order], (6, 4))
    assert torch.equal(shuffled.coordinates, table.coordinates)
    assert torch.equal(shuffled.rows, table.rows[order])
    assert torch.equal(table.coordinates[table.rows].long(), coordinates)


@pytest.mark.parametrize("shape", SHAPES)
def test_keys_round_trip_with_margins_and_never_alias(shape: tuple[int, ...]) -> None:
    axes = [torch.arange(2), *(torch.arange(-MARGIN, size + MARGIN) for size in shape)]
    everything = torch.cartesian_prod(*axes)
    keys = linear_keys(everything, shape)
    assert torch.equal(coordinates_from_keys(keys, shape).long(), everything)
    assert bool((keys.diff() == 1).all())
    assert int(keys[0]) == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_lookup_finds_what_is_there_and_nothing_in_the_margin(
    shape: tuple[int, ...], device: torch.device
) -> None:
    coordinates = draw(shape, 40)
    table = build_table(coordinates.to(device), shape)
    axes = [torch.arange(3), *(torch.arange(-MARGIN, size + MARGIN) for size in shape)]
    queries = torch.cartesian_prod(*axes)
    distinct, _ = brute_force(coordinates)
    row_of = {entry: row for row, entry in enumerate(distinct)}
    expected = [row_of.get(tuple(query), -1) for query in queries.tolist()]
    assert table.lookup(queries.to(device)).tolist() == expected


def test_lookup_in_an_empty_table() -> None:
    table = build_table(torch.zeros(0, 3, dtype=torch.int32), (4, 4))
    assert table.lookup(torch.tensor([[0, 1, 1], [5, 0, 0]])).tolist() == [-1, -1]
    assert table.lookup_keys(torch.zeros(2, 3, dtype=torch.int64)).shape == (2, 3)
    assert table.lookup_runs(torch.zeros(2, dtype=torch.int64), 3).tolist() == [[-1] * 3] * 2


@settings(max_examples=40)
@given(
    keys=st.sets(st.integers(0, 40)),
    first=st.lists(st.integers(-3, 45), max_size=12),
    length=st.integers(1, 5),
)
def test_runs_are_as_many_single_lookups(keys: set[int], first: list[int], length: int) -> None:
    table = table_from_keys(torch.tensor(sorted(keys), dtype=torch.int64), (64,))
    start = torch.tensor(first, dtype=torch.int64)
    runs = table.lookup_runs(start, length)
    assert torch.equal(runs, table.lookup_keys(start[:, None] + torch.arange(length)))


def test_capacity_keeps_the_lowest_keys_and_reports_the_rest() -> None:
    coordinates = draw((6, 6), 200)
    full = build_table(coordinates, (6, 6))
    with pytest.warns(CapacityWarning, match=f"dropped {len(full) - 10} of {len(full)} coordinates") as seen:
        table = build_table(coordinates, (6, 6), capacity=10)
    assert seen[0].filename == __file__
    assert table.overflow == len(full) - 10
    assert torch.equal(table.coordinates, full.coordinates[:10])
    assert torch.equal(table.rows, torch.where(full.rows < 10, full.rows, -1))
    assert torch.equal(table.lookup(coordinates), table.rows)


def test_capacity_that_suffices_is_silent() -> None:
    coordinates = torch.tensor([[0, 1, 1], [0, 1, 1], [0, 2, 2]])
    table = build_table(coordinates, (6, 6), capacity=2)
    assert (len(table), table.overflow) == (2, 0)


def build(coordinates: object, shape: tuple[int, ...] = (4, 5), **kwargs: object) -> CoordinateTable:
    make: Callable[..., CoordinateTable] = build_table
    return make(torch.as_tensor(coordinates), shape, **kwargs)


@pytest.mark.parametrize(
    ("coordinates", "shape", "message"),
    [
        ([[0, 4, 0]], (4, 5), r"spatial axis 0: found 4\.\.4, allowed 0\.\.3"),
        ([[0, 0, 5]], (4, 5), "spatial axis 1"),
        ([[0, 0, -1]], (4, 5), "spatial axis 1: found -1"),
        ([[-1, 0, 0]], (4, 5), "batch"),
        ([[2**20, 0, 0]], (4, 5), "batch"),
        ([[0, 0]], (4, 5), r"\(N, 3\) for a 2-D grid, got \(1, 2\)"),
        ([0, 0, 0], (4, 5), r"got \(3,\)"),
        ([[0, 0, 0]], (0, 5), "at least 1"),
        ([[0, 0, 0]], (2**21, 2**21), "too large"),
        ([[0, 0]], (2**31,), "too large"),
    ],
)
def test_wrong_coordinates(coordinates: object, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(coordinates, shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_wrong_dtype(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"must be integers, got {dtype}"):
        build(torch.zeros(1, 3, dtype=dtype))


def test_largest_grid_keeps_cells_apart() -> None:
    shape = (2**21 - 2 * MARGIN, 2**21 - 2 * MARGIN)
    corners = [[b, y, x] for b in (0, 2**20 - 1) for y in (0, shape[0] - 1) for x in (0, shape[1] - 1)]
    table = build(corners, shape)
    assert table.coordinates.tolist() == corners
    assert table.lookup(torch.tensor(corners)).tolist() == list(range(8))


def test_wrong_capacity_and_implementation() -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        build([[0, 0, 0]], capacity=0)
    with pytest.raises(ValueError, match="impl must be one of"):
        build([[0, 0, 0]], impl="hash")
    with pytest.raises(ImplementationError, match="no vendor"):
        build([[0, 0, 0]], impl="vendor")
