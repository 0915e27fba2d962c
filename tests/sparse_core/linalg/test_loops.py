"""Compiled loops: every width and type, strided operands, gradients, any number of threads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg import loops, sddmm, spmm

pytestmark = pytest.mark.skipif(
    loops.why_not("cpu", torch.float32) is not None, reason="no C++ compiler: install g++"
)
TYPES = [(torch.float32, torch.int32), (torch.float64, torch.int32), (torch.float32, torch.int64)]


def matrix_of(dtype: torch.dtype, index: torch.dtype) -> CSR:
    """40 x 30, with empty rows and a row of many entries."""
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(40, 30, dtype=dtype, generator=generator)
    dense[torch.rand(40, 30, generator=generator) < 0.8] = 0
    dense[7], dense[20:23] = 1.5, 0
    found = CSR.from_dense(dense)
    return CSR(found.row_ptr.to(index), found.col.to(index), found.values, found.shape)


def operand(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(shape[-1]))


@pytest.mark.parametrize(("dtype", "index"), TYPES)
@pytest.mark.parametrize("width", [0, 1, 7, 8, 33, 64, 140])
def test_every_width(width: int, dtype: torch.dtype, index: torch.dtype) -> None:
    matrix = matrix_of(dtype, index)
    x, a = operand(30, width, dtype=dtype), operand(40, width, dtype=dtype)
    torch.testing.assert_close(spmm(matrix, x, impl="cpu"), matrix.to_dense() @ x)
    torch.testing.assert_close(
        sddmm(matrix, a, x.T, impl="cpu").values, sddmm(matrix, a, x.T, impl="reference").values
    )


def test_strided_operands_and_a_batch() -> None:
    matrix = matrix_of(torch.float64, torch.int32)
    base = operand(2, 12, 30, dtype=torch.float64)
    expected = matrix.to_dense() @ base[:, ::2].mT
    torch.testing.assert_close(spmm(matrix, base[:, ::2].mT, impl="cpu"), expected)


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = matrix_of(torch.float32, torch.int32)
    x, a = operand(30, 70, dtype=torch.float32), operand(40, 70, dtype=torch.float32)
    one = spmm(matrix, x, impl="cpu"), sddmm(matrix, a, x.T, impl="cpu").values
    monkeypatch.setattr(loops, "_SHARE", 1)
    for threads in (2, 5, 64):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert torch.equal(spmm(matrix, x, impl="cpu"), one[0])
        assert torch.equal(sddmm(matrix, a, x.T, impl="cpu").values, one[1])


def test_gradients() -> None:
    matrix = matrix_of(torch.float64, torch.int32)
    values = matrix.values.clone().requires_grad_()
    x = operand(30, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda v, d: spmm(matrix.with_values(v), d, impl="cpu"), (values, x))


@pytest.mark.parametrize(
    ("dtype", "kind", "message"),
    [(torch.bfloat16, "cpu", "needs float32 or float64"), (torch.float32, "mps", "needs a CPU, got mps")],
)
def test_reasons(dtype: torch.dtype, kind: str, message: str) -> None:
    assert (loops.why_not(kind, dtype) or "").startswith(message)
