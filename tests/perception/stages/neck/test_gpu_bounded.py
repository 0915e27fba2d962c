"""Lists of near cells against their definition, and the neck over them against the dense one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from near_scenes import BothNecks, make_level, make_weights, random_cells
from torch import Tensor

from perception.stages.neck import (
    EmptyMaps,
    GpuBoundedNeck,
    WrittenMaps,
    list_reach,
    near_lists,
    near_tables,
    work_share,
)
from sparse_core.conv.grid import grid_from_cells, linear_cells

CPU = torch.device("cpu")


def both_necks(
    shape: tuple[int, int] = (12, 13),
    frames: int = 2,
    capacities: Sequence[int] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    blocks: int = 2,
) -> BothNecks:
    rooms = capacities or [frames * shape[0] * shape[1]] * (list_reach(blocks) + 1)
    return BothNecks(shape, frames, rooms, dtype=dtype, impl="reference", device=CPU, blocks=blocks)


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 70)),
    st.integers(1, 3),
    st.integers(0, 6),
    st.integers(1, 5),
    st.integers(0, 99),
)
@settings(max_examples=40)
def test_lists_are_the_cells_within_reach(
    shape: tuple[int, int], frames: int, count: int, lists: int, seed: int
) -> None:
    active = random_cells(count, frames, shape, seed)
    coordinates = torch.tensor(active, dtype=torch.int32).view(-1, 3)
    first = grid_from_cells(linear_cells(coordinates, shape), shape, frames, max(1, count))
    found = near_lists(first, [frames * shape[0] * shape[1]] * lists)
    assert len(found) == lists
    for reach, entry in enumerate(found, start=1):
        expected = [
            [frame, y, x]
            for frame in range(frames)
            for y in range(shape[0])
            for x in range(shape[1])
            if any(other == frame and max(abs(y - v), abs(x - u)) <= reach for other, v, u in active)
        ]
        assert entry.coordinates()[: int(entry.count)].tolist() == expected


def test_cells_beyond_the_room_have_neighbours_too() -> None:
    first = grid_from_cells(torch.tensor([0, 30], dtype=torch.int32), (1, 31), 1, 1)
    found = near_lists(first, [3])[0]
    assert (int(first.count), int(found.active), int(found.count)) == (1, 4, 3)
    assert found.cells.tolist() == [0, 1, 29]


@pytest.mark.parametrize("shape", [(3, 40), (7, 7), (8, 9), (50, 6)])
def test_small_map_has_every_distance_from_the_borders(shape: tuple[int, int]) -> None:
    edge = 3
    empty = EmptyMaps(shape, edge)
    assert empty.small == (min(shape[0], 7), min(shape[1], 7))
    y, x = torch.meshgrid(*(torch.arange(size) for size in shape), indexing="ij")
    cell = empty.cell(y, x)
    small = [torch.div(cell, empty.small[1], rounding_mode="floor"), cell % empty.small[1]]
    for place, found, size, room in zip((y, x), small, shape, empty.small, strict=True):
        # As far from both borders, up to the edge.
        torch.testing.assert_close(found.clamp(max=edge), place.clamp(max=edge))
        torch.testing.assert_close((room - 1 - found).clamp(max=edge), (size - 1 - place).clamp(max=edge))
    finer = empty.finer_cell(torch.tensor([2 * shape[0] - 1]), torch.tensor([0]))
    assert int(finer) == 4 * int(cell[-1, 0]) + 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@torch.no_grad()
def test_map_and_heat_are_those_of_the_dense_layers(dtype: torch.dtype) -> None:
    both = both_necks(dtype=dtype)
    scenes = [
        random_cells(12, 2, both.finer, 1, corner=0.4),
        [],
        random_cells(3, 2, both.finer, 2),
        [(1, 23, 25), (0, 0, 0)],
        random_cells(90, 2, both.finer, 3),
    ]
    kept = []
    for seed, cells in enumerate(scenes):
        grids, features = both.scene(cells, seed)
        found, wanted = both.listed(grids, features), both.dense(grids, features)
        for one, other in zip(found, wanted, strict=True):
            # The same sums in the same order, by a library that may cut them up by the number of rows.
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5 if dtype == torch.float32 else 2e-3)
        kept.append((grids, features, found))
    # Some cells are computed and some are not.
    assert 0 < int((both.near.written.cells >= 0).sum()) <= 2 * 24 * 26
    for grids, features, found in reversed(kept):
        for one, other in zip(both.listed(grids, features), found, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(("shape", "blocks"), [((3, 30), 1), ((9, 10), 1), ((5, 6), 3)])
@torch.no_grad()
def test_maps_smaller_than_the_reach(shape: tuple[int, int], blocks: int) -> None:
    both = both_necks(shape, 1, blocks=blocks)
    grids, features = both.scene([(0, 1, 2), (0, 5, 3)], 0)
    for one, other in zip(both.listed(grids, features), both.dense(grids, features), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@torch.no_grad()
def test_cells_beyond_the_room_of_a_list_are_as_in_an_empty_scene() -> None:
    both = both_necks((14, 17), 1, [1, 5, 9, 20, 25, 30])
    grids, features = both.scene([(0, 2, 3), (0, 20, 30)], 0)
    plan = both.near.plan(grids[1], grids[0])
    assert [int(entry.count) for entry in plan.lists] == [1, 5, 9, 20, 25, 30]
    assert int(plan.lists[-1].active) > 30
    found = both.listed(grids, features)
    assert all(bool(torch.isfinite(part).all()) for part in found)
    empty = both.dense(*both.scene([], 0))
    assert torch.equal(found[0][-34:], empty[0][-34:])


def test_restored_cells_are_those_of_an_empty_scene() -> None:
    both = both_necks((12, 13), 1)
    empty = [part.clone() for part in both.near.written[1:3]]
    expected = both.dense(*both.scene([], 0))
    for one, other in zip(empty, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    both.listed(*both.scene(random_cells(5, 1, both.finer, 6), 1))
    assert not torch.equal(both.near.written.features, empty[0])
    nothing = grid_from_cells(torch.full((1,), -1, dtype=torch.int32), (12, 13), 1, 1)
    near_lists(nothing, [1], written=both.near.written, empty=both.near.empty)
    for one, other in zip(both.near.written[1:3], empty, strict=True):
        assert torch.equal(one, other)


def test_share_of_the_work() -> None:
    assert work_share([10] * 6, 10) == 1.0
    assert work_share([0, 0, 0, 0, 0, 10], 10) == 3 / 8
    assert work_share([0] * 4, 5) == 0.0


def test_wrong_arguments() -> None:
    first = grid_from_cells(torch.zeros(1, dtype=torch.int32), (4, 5), 1, 3)
    with pytest.raises(ValueError, match="two dimensions"):
        near_lists(grid_from_cells(torch.zeros(1, dtype=torch.int32), (3, 4, 5), 1, 3), [3])
    with pytest.raises(ValueError, match="1 to 31 positive numbers"):
        near_lists(first, [])
    with pytest.raises(ValueError, match="written and empty together"):
        near_lists(first, [3], empty=EmptyMaps((4, 5), 2))
    lists = [first, *near_lists(first, [20, 20, 20])]
    cells = torch.zeros(80, dtype=torch.int32)
    with pytest.raises(ValueError, match="even and at least 4"):
        near_tables(lists[:3], EmptyMaps((4, 5), 3), cells)
    with pytest.raises(ValueError, match=r"lists must have maps of shape \(4, 6\)"):
        near_tables(lists, EmptyMaps((4, 6), 3), cells)
    with pytest.raises(ValueError, match=r"fine_cells must be \(80,\) int32"):
        near_tables(lists, EmptyMaps((4, 5), 3), cells[1:])
    weights = make_weights(torch.float32, CPU, blocks=1)
    with pytest.raises(ValueError, match="1 blocks need 4 capacities, got 3"):
        GpuBoundedNeck(weights, shape=(4, 5), batch_size=1, capacities=[3, 3, 3])
    with pytest.raises(ValueError, match="at least one block"):
        GpuBoundedNeck(weights._replace(blocks=[]), shape=(4, 5), batch_size=1, capacities=[3, 3])


@pytest.mark.parametrize("name", ["features", "heat", "empty_features", "empty_heat"])
def test_maps_of_another_size(name: str) -> None:
    empty = EmptyMaps((2, 3), 1)
    maps: dict[str, Tensor] = {
        "features": torch.zeros(24, 5),
        "heat": torch.zeros(1, 2, 4, 6),
        "empty_features": torch.zeros(24, 5),
        "empty_heat": torch.zeros(24, 2),
    }
    first = grid_from_cells(torch.zeros(1, dtype=torch.int32), (2, 3), 1, 1)
    near_lists(first, [6], written=WrittenMaps(torch.full((9,), -1, dtype=torch.int32), **maps), empty=empty)
    wrong = WrittenMaps(torch.full((9,), -1, dtype=torch.int32), **maps | {name: maps[name][..., :-1]})
    with pytest.raises(ValueError, match="must be"):
        near_lists(first, [6], written=wrong, empty=empty)


def test_first_list_is_what_the_strided_layer_reaches() -> None:
    level, first = make_level([(0, 3, 4), (0, 7, 7)], (8, 10), 1, 5, 9, "reference", CPU)
    assert int(level.count) == 2
    assert first.coordinates()[: int(first.count)].tolist() == [
        [0, 1, 2], [0, 2, 2], [0, 3, 3], [0, 3, 4],
    ]  # fmt: skip
