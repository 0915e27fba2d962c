"""Fixtures with random active cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from sparse_core.conv import SparseTensor, build_table

RandomCells = Callable[..., Tensor]
RandomSparse = Callable[..., SparseTensor]


def _random_cells(
    shape: Sequence[int], *, batch_size: int = 2, density: float = 0.3, seed: int = 0, empty_frame: int = -1
) -> Tensor:
    """(M, 1 + D) int32 distinct cells in random order; none in ``empty_frame``."""
    generator = torch.Generator().manual_seed(seed)
    cells = batch_size * math.prod(shape)
    index = torch.randperm(cells, generator=generator)[: math.ceil(cells * density)]
    coordinates = torch.stack(torch.unravel_index(index, (batch_size, *shape)), dim=1).int()
    return coordinates[coordinates[:, 0] != empty_frame]


def _random_sparse(
    shape: Sequence[int],
    channels: int,
    *,
    batch_size: int = 2,
    density: float = 0.3,
    seed: int = 0,
    empty_frame: int = -1,
    dtype: torch.dtype = torch.float64,
) -> SparseTensor:
    cells = _random_cells(shape, batch_size=batch_size, density=density, seed=seed, empty_frame=empty_frame)
    table = build_table(cells, shape, impl="reference")
    generator = torch.Generator().manual_seed(seed + 1)
    features = torch.randn(len(table), channels, generator=generator, dtype=torch.float64).to(dtype)
    return SparseTensor.from_table(features, table, batch_size)


@pytest.fixture(scope="session")
def random_cells() -> RandomCells:
    """Function that draws distinct cells in random order."""
    return _random_cells


@pytest.fixture(scope="session")
def random_sparse() -> RandomSparse:
    """Function that draws a sparse tensor with rows in key order."""
    return _random_sparse
