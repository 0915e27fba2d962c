"""The step up and the heat map at listed cells: the same rows as of the whole map, and their arguments."""

from __future__ import annotations

import pytest
import torch
from near_scenes import make_level, make_weights
from torch import Tensor

from perception.stages.head import fixed_heat, fixed_up
from sparse_core.conv.grid import FixedGrid

CPU = torch.device("cpu")
SHAPE, FINER = (4, 5), (8, 10)
WEIGHTS = make_weights(torch.float32, CPU)


def level() -> tuple[FixedGrid, FixedGrid, Tensor, Tensor]:
    """Finer cells, coarse cells listed, their features, and those of every coarse cell."""
    fine, listed = make_level([(0, 2, 3), (0, 7, 9), (1, 0, 0)], FINER, 2, 5, 9, "reference", CPU)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 12, generator=generator)
    whole = torch.randn(2 * 4 * 5, 16, generator=generator)
    return fine, listed, features, whole


def dense_rows(listed: FixedGrid) -> Tensor:
    """Rows of the whole map that the listed cells are."""
    frame, y, x = listed.coordinates()[: int(listed.count)].long().unbind(1)
    return (frame * SHAPE[0] + y) * SHAPE[1] + x


def test_step_up_at_listed_cells() -> None:
    fine, listed, features, whole = level()
    count = int(listed.count)
    rows = dense_rows(listed)
    assert 0 < count < 9
    coarse = torch.full((9, 16), float("nan"))
    coarse[:count] = whole[rows]
    wanted = fixed_up(whole, features, fine, WEIGHTS.up)
    out = torch.full((36, 20), 7.0)
    assert fixed_up(coarse, features, fine, WEIGHTS.up, at=listed, out=out) is out
    assert bool((out[4 * count :] == 7).all())
    by_cell = wanted.view(2, 4, 2, 5, 2, 20).permute(0, 1, 3, 2, 4, 5).reshape(40, 4, 20)
    torch.testing.assert_close(out[: 4 * count].view(count, 4, 20), by_cell[rows])
    fresh = fixed_up(coarse, features, fine, WEIGHTS.up, at=listed)
    assert torch.equal(fresh[: 4 * count], out[: 4 * count])


def test_heat_at_listed_cells() -> None:
    features = torch.randn(2 * 8 * 10, 20, generator=torch.Generator().manual_seed(1))
    whole = fixed_heat(features, WEIGHTS.heat, spatial_shape=FINER)
    cells = torch.tensor([159, -1, 3, 80, -1], dtype=torch.int32)
    out = torch.full((2, 3, 8, 10), 9.0)
    assert fixed_heat(features, WEIGHTS.heat, spatial_shape=FINER, cells=cells, out=out) is out
    written = (out != 9).nonzero()
    assert {(int(frame), int(y) * 10 + int(x)) for frame, _, y, x in written} == {(0, 3), (1, 0), (1, 79)}
    assert len(written) == 9
    torch.testing.assert_close(out[out != 9], whole[out != 9])
    assert torch.equal(fixed_heat(features, WEIGHTS.heat, spatial_shape=FINER, out=out), whole)


def test_wrong_arguments() -> None:
    fine, listed, features, whole = level()
    with pytest.raises(ValueError, match=r"at must be 2 grids of \(4, 5\) with coarse's 40 rows"):
        fixed_up(whole, features, fine, WEIGHTS.up, at=listed)
    with pytest.raises(ValueError, match=r"out must be \(160, 20\)"):
        fixed_up(whole, features, fine, WEIGHTS.up, out=torch.zeros(160, 19))
    rows = torch.zeros(160, 20)
    cells = torch.zeros(3, dtype=torch.int32)
    with pytest.raises(ValueError, match="cells needs out"):
        fixed_heat(rows, WEIGHTS.heat, spatial_shape=FINER, cells=cells)
    with pytest.raises(TypeError, match=r"cells must be \(N,\) int32"):
        fixed_heat(rows, WEIGHTS.heat, spatial_shape=FINER, cells=cells.long(), out=torch.zeros(2, 3, 8, 10))
    with pytest.raises(ValueError, match=r"out must be \(2, 3, 8, 10\)"):
        fixed_heat(rows, WEIGHTS.heat, spatial_shape=FINER, out=torch.zeros(2, 3, 10, 8))
