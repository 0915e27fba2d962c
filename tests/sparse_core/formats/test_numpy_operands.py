"""Sparse matrices beside numpy arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sparse_core.formats import BSR, COO, CSR, ELL, SparseMatrix

DENSE = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)).relu()
VECTOR = np.linspace(-1, 1, 8, dtype=np.float32)


@pytest.mark.parametrize("kind", [CSR, COO, ELL, BSR])
@pytest.mark.parametrize(
    "array",
    [VECTOR, VECTOR[::-1], VECTOR.astype(np.float64), VECTOR.astype(">f4"), np.outer(VECTOR, VECTOR)],
    ids=["vector", "reversed", "float64", "big-endian", "matrix"],
)
def test_products(kind: Any, array: np.ndarray) -> None:
    matrix: SparseMatrix = kind.from_dense(DENSE, **({"block_size": 4} if kind is BSR else {}))
    for found, expected in ((matrix @ array, DENSE.numpy() @ array), (array @ matrix, array @ DENSE.numpy())):
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_scipy_matrices_are_refused() -> None:
    matrix = CSR.from_dense(DENSE)
    with pytest.raises(TypeError, match=r"convert it with CSR\.from_scipy"):
        matrix @ matrix.to_scipy()


def test_read_only_arrays_and_lengths() -> None:
    fixed = VECTOR.copy()
    fixed.flags.writeable = False
    matrix = CSR.from_dense(DENSE)
    assert torch.equal(matrix @ fixed, matrix @ torch.from_numpy(VECTOR))
    with pytest.raises(ValueError, match="length 8, got 3"):
        matrix @ VECTOR[:3]
    with pytest.raises(TypeError, match="astype"):
        matrix @ np.arange(8)


@pytest.mark.parametrize("combine", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_other_operators_say_what_to_do(combine: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(TypeError, match="from_numpy"):
        combine(CSR.from_dense(DENSE), VECTOR)
