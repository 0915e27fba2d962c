"""On a CPU the whole way is gone each time."""

from __future__ import annotations

import torch

from sparse_core.formats import generators
from sparse_core.linalg import spmv


def test_nothing_is_noted_on_a_cpu() -> None:
    matrix = generators.random_uniform(50, per_row=3, seed=1)
    x = torch.randn(50)
    assert torch.equal(spmv(matrix, x), spmv(matrix, x))
    assert not matrix._again
    assert not matrix.with_values(matrix.values)._again
