from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


def random_dense(rows: int, columns: int, density: float, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(rows, columns, generator=generator) < density
    # Small integers are exact in every type, so conversions can be compared to the last bit.
    values = torch.randint(1, 9, (rows, columns), generator=generator)
    values = values * (1 - 2 * torch.randint(0, 2, (rows, columns), generator=generator))
    dense = torch.where(kept, values, 0).to(dtype)
    return dense * (1 - 2j) if dtype.is_complex else dense


@pytest.fixture
def draw_dense() -> Callable[..., Tensor]:
    """``draw_dense(rows, columns, density, dtype, seed=0)``: small integers and zeros."""
    return random_dense


@pytest.fixture(scope="module", autouse=True)
def _one_thread(one_thread: None) -> None:
    """See ``one_thread``."""
