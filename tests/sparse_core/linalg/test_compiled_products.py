"""Products in ``torch.compile(fullgraph=True)`` give the same bits and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sparse_core.formats import BSR, COO, CSR
from sparse_core.linalg import spmm, spmv
from sparse_core.linalg.products.compiled import sparse_product_op

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

MATRIX = CSR.from_dense(
    torch.rand(6, 6, generator=torch.Generator().manual_seed(0))
    * (torch.rand(6, 6, generator=torch.Generator().manual_seed(1)) > 0.5)
)
BLOCKS = MATRIX.to(BSR, block_size=(2, 3))
VALUES = MATRIX.values.clone()


def both_orders(x: Tensor, values: Tensor) -> Tensor:
    """A square matrix that is not symmetric, so that an exchanged order shows."""
    matrix = MATRIX.with_values(2 * values)
    return (matrix @ x).relu() + 3 * (x @ matrix)


def several(x: Tensor, values: Tensor) -> Tensor:
    columns = torch.stack([x, 2 * x], dim=1)
    product = BLOCKS @ columns + spmm(MATRIX, columns[None], transpose=True)[0] * values.sum()
    for _ in range(2):
        product = MATRIX @ product
    return product


def by_name(x: Tensor, values: Tensor) -> Tensor:
    return spmv(MATRIX.with_values(values), x, transpose=True, impl="reference")


Function = Callable[[Tensor, Tensor], Tensor]


def result_and_gradients(function: Function) -> tuple[Tensor, ...]:
    x = torch.arange(1.0, 7.0).requires_grad_()
    values = VALUES.clone().requires_grad_()
    result = function(x, values)
    gradients = torch.autograd.grad(result.square().sum(), (x, values))
    return result.detach(), *gradients


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [both_orders, several, by_name])
def test_a_compiled_function_does_the_same(function: Function, backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for found, expected in zip(result_and_gradients(compiled), result_and_gradients(function), strict=True):
        torch.testing.assert_close(found, expected)
    assert torch.equal(compiled(torch.ones(6), VALUES), function(torch.ones(6), VALUES))


def test_the_matrix_may_be_an_argument() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda matrix, x: matrix @ x, backend="eager", fullgraph=True)
    other = CSR.from_dense(torch.eye(6) * 5)
    for matrix in (MATRIX, other):
        assert torch.equal(compiled(matrix, torch.ones(6)), matrix @ torch.ones(6))


def test_complex_values() -> None:
    torch._dynamo.reset()
    values = torch.complex(VALUES, VALUES.flip(0))

    def product(x: Tensor, imaginary: Tensor) -> Tensor:
        return torch.view_as_real(MATRIX.with_values(values * imaginary) @ (x * 1j))

    compiled = torch.compile(product, backend="aot_eager", fullgraph=True)
    for found, expected in zip(result_and_gradients(compiled), result_and_gradients(product), strict=True):
        torch.testing.assert_close(found, expected)


def test_another_format_is_refused_with_the_way_on() -> None:
    torch._dynamo.reset()
    entries = COO(torch.tensor([0]), torch.tensor([1]), torch.ones(1), (2, 2))
    compiled = torch.compile(lambda x: entries @ x, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"convert the matrix with \.to\(CSR\) before the compiled"):
        compiled(torch.ones(2))
    # Without fullgraph the product runs normally.
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: entries @ x, backend="eager")
    assert compiled(torch.ones(2)).tolist() == [1, 0]


@pytest.mark.parametrize("dense", [torch.rand(6), torch.rand(6, 2), torch.rand(3, 6, 2)])
@pytest.mark.parametrize("matrix", [MATRIX, BLOCKS], ids=["CSR", "BSR"])
def test_operator_passes_opcheck(matrix: Any, dense: Tensor) -> None:
    torch.library.opcheck(
        sparse_product_op,
        (
            matrix.values.clone().requires_grad_(),
            matrix.row_ptr,
            matrix.col,
            dense.clone().requires_grad_(),
            6,
            6,
            False,
            "auto",
        ),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


def test_a_second_derivative_is_refused() -> None:
    values = VALUES.clone().requires_grad_()
    x = torch.ones(6, requires_grad=True)
    product = sparse_product_op(values, MATRIX.row_ptr, MATRIX.col, x, 6, 6, False, "auto")
    (of_x,) = torch.autograd.grad(product.sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(of_x.square().sum(), values)
    full = MATRIX.to_dense()
    torch.testing.assert_close(found, 2 * full.sum(0)[MATRIX.col.long()])
    (of_values,) = torch.autograd.grad(product.sum(), values, create_graph=True)
    with pytest.raises(RuntimeError, match=r"sparse_product_of_values.*autograd"):
        torch.autograd.grad(of_values.square().sum(), x)
