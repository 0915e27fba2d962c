from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_matrices import ALL_DTYPES, Entries, entries
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.formats import BSR, COO, CSR, ELL, SlicedELL
from sparse_core.linalg import spgemm
from sparse_core.linalg.spgemm import common, gradient

TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 4e-2, torch.float32: 1e-5, torch.complex64: 1e-5}
IMPLEMENTATIONS = ["vendor", "without MKL", "reference"]


def wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def run(a: Any, b: Any, impl: str) -> CSR:
    with pytest.MonkeyPatch.context() as patch:
        if impl == "without MKL":
            patch.setattr("torch.backends.mkl.is_available", lambda: False)
            impl = "vendor"
        return spgemm(a, b, impl=impl)  # type: ignore[arg-type]


@st.composite
def factors(draw: st.DrawFn) -> tuple[Entries, Entries]:
    """Two matrices that fit each other."""
    a, b = draw(entries()), draw(entries())
    inner = min(a.shape[1], b.shape[0])
    left, right = a.col < inner, b.row < inner
    return (
        Entries(a.row[left], a.col[left], a.values[left], (a.shape[0], inner)),
        Entries(b.row[right], b.col[right], b.values[right], (inner, b.shape[1])),
    )


@settings(max_examples=100)
@given(pair=factors(), impl=st.sampled_from(IMPLEMENTATIONS), whole_blocks=st.booleans())
def test_products_equal_scipy(pair: tuple[Entries, Entries], impl: str, whole_blocks: bool) -> None:
    a, b = (found.coo().to(CSR) for found in pair)
    dtype = torch.promote_types(a.dtype, b.dtype)
    if dtype in (torch.float16, torch.bfloat16):
        impl = "reference"
    result = run(a.to(BSR, block_size=(2, 3)) if whole_blocks else a, b, impl)
    result.validate()
    assert result.dtype == dtype
    assert result.index_dtype == torch.int32
    left = a.to(BSR, block_size=(2, 3)).to(CSR) if whole_blocks else a
    expected = wide(left.to_dense()).to(torch.complex128) @ wide(b.to_dense()).to(torch.complex128)
    tolerance = TOLERANCE.get(dtype, 1e-12)
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    np.testing.assert_allclose(
        wide(result.to_dense()).numpy(), expected.numpy(), rtol=tolerance, atol=tolerance * scale
    )
    # The product of both patterns stores every entry.
    ones = [matrix.with_values(torch.ones_like(matrix.values.real)).to(torch.float64) for matrix in (left, b)]
    structure = (ones[0].to_scipy() @ ones[1].to_scipy()).tocsr()
    structure.sort_indices()
    assert result.row_ptr.tolist() == structure.indptr.tolist()
    assert result.col.tolist() == structure.indices.tolist()


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_sums_that_cancel_stay_stored(impl: str) -> None:
    a = CSR.from_dense(torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    b = CSR.from_dense(torch.tensor([[1.0, 0.0], [-1.0, 2.0]]))
    result = run(a, b, impl)
    assert result.col.tolist() == [0, 1]
    assert result.values.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_nan_and_infinity_stay_in_their_cells(impl: str) -> None:
    a = CSR.from_dense(torch.tensor([[torch.nan, 0, 0], [0, 2, 0], [0, 0, torch.inf]]))
    b = CSR.from_dense(torch.tensor([[1.0, 0, 0], [3, 4, 0], [0, -1, 0]]))
    result = run(a, b, impl)
    assert result.col.tolist() == [0, 0, 1, 1]
    assert result.values.isnan().tolist() == [True, False, False, False]
    assert result.values[1:].tolist() == [6, 8, -torch.inf]


@pytest.mark.parametrize("impl", ["vendor", "reference"])
@pytest.mark.parametrize("kind", [torch.float64, torch.complex128])
def test_gradients_equal_finite_differences(impl: Any, kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    a = CSR.from_dense(torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]).to(kind))
    b = CSR.from_dense(torch.tensor([[0.0, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]]).double())
    left = torch.randn(a.nnz, dtype=kind, generator=generator).requires_grad_()
    right = torch.randn(b.nnz, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda left, right: spgemm(a.with_values(left), b.with_values(right), impl=impl).values, (left, right)
    )


def test_gradients_through_other_formats_and_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "PRODUCTS", 3)
    generator = torch.Generator().manual_seed(1)
    dense = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in ((5, 4), (4, 6))]
    a, b = SlicedELL.from_dense(dense[0]), ELL.from_dense(dense[1])
    left, right = a.values.clone().requires_grad_(), b.values.clone().requires_grad_()
    spgemm(a.with_values(left), b.with_values(right)).values.square().sum().backward()
    factors = [a.to_dense().requires_grad_(), b.to_dense().requires_grad_()]
    (factors[0] @ factors[1]).square().sum().backward()
    assert factors[0].grad is not None
    assert factors[1].grad is not None
    # The gradient of the values equals that of the dense matrix.
    torch.testing.assert_close(a.with_values(left.grad).to_dense(), factors[0].grad)
    torch.testing.assert_close(b.with_values(right.grad).to_dense(), factors[1].grad)


def test_duplicates_share_the_gradient() -> None:
    values = torch.ones(3, requires_grad=True)
    a = COO(torch.tensor([0, 1, 0]), torch.tensor([1, 0, 1]), values, (2, 2))
    spgemm(a, CSR.from_dense(torch.tensor([[2.0, 3], [0, 4]]))).values.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [4, 5, 4]


def test_slices_of_rows_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(2)
    dense = torch.randn(40, 40, generator=generator) * (torch.rand(40, 40, generator=generator) < 0.2)
    dense[7] = 1.0
    matrix = CSR.from_dense(dense)
    whole = spgemm(matrix, matrix, impl="reference")
    for products in (1, 50, 1000):
        monkeypatch.setattr(common, "PRODUCTS", products)
        part = spgemm(matrix, matrix, impl="reference")
        assert torch.equal(part.values, whole.values)
        assert torch.equal(part.col, whole.col)
        assert torch.equal(part.row_ptr, whole.row_ptr)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_automatic_choice_on_a_cpu(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    for module in (gradient.reference, gradient.vendor):
        original = module.spgemm
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(
            module, "spgemm", lambda *args, name=name, original=original: ran.append(name) or original(*args)
        )
    matrix = CSR.from_dense(torch.eye(3, dtype=dtype))
    spgemm(matrix, matrix)
    assert ran == ["reference" if dtype in (torch.float16, torch.bfloat16) else "vendor"]


EYE = CSR.from_dense(torch.eye(3))


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "message"),
    [
        (
            EYE,
            CSR.from_dense(torch.ones(2, 3)),
            {},
            ValueError,
            r"a \(3, 3\) needs b with 3 rows, got shape \(2, 3\)",
        ),
        (EYE, torch.eye(3), {}, TypeError, "b must be a sparse matrix"),
        (torch.eye(3), EYE, {}, TypeError, "a must be a sparse matrix"),
        (EYE, EYE, {"impl": "triton"}, ImplementationError, "no triton implementation"),
        (EYE, EYE, {"impl": "fast"}, ValueError, "impl must be one of"),
        (EYE.to(torch.float16), EYE.to(torch.float16), {"impl": "vendor"}, ImplementationError, "on a CPU"),
    ],
)
def test_wrong_arguments(
    a: Any, b: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        spgemm(a, b, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.bfloat16])
def test_products_on_cuda_equal_the_cpu(dtype: torch.dtype, cuda: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(rows: int, columns: int) -> CSR:
        dense = torch.randn(rows, columns, generator=generator)
        return CSR.from_dense(
            torch.where(torch.rand(rows, columns, generator=generator) < 0.1, dense, 0.0)
        ).to(dtype)

    a, b = draw(300, 200), draw(200, 250)
    expected = spgemm(a, b, impl="reference")
    for impl in ("auto", "reference"):
        found = spgemm(a.to(cuda), b.to(cuda), impl=impl)  # type: ignore[arg-type]
        found.validate()
        assert torch.equal(found.row_ptr.cpu(), expected.row_ptr)
        assert torch.equal(found.col.cpu(), expected.col)
        tolerance = TOLERANCE.get(dtype, 1e-12)
        torch.testing.assert_close(
            wide(found.values.cpu()), wide(expected.values), rtol=tolerance, atol=10 * tolerance
        )
