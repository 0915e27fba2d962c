from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_matrices import ALL_DTYPES, Entries, entries
from torch import Tensor

from sparse_core.formats import BSR, COO, CSR, ELL, HYB, SlicedELL, SparseMatrix
from sparse_core.linalg import spmm, spmv
from sparse_core.linalg.spmm import api, reference

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.complex64: 1e-5}
FORMATS: dict[str, tuple[type[SparseMatrix], dict[str, Any]]] = {
    "COO": (COO, {}),
    "CSR": (CSR, {}),
    "ELL": (ELL, {}),
    "SlicedELL": (SlicedELL, {"slice_height": 4}),
    "HYB": (HYB, {}),
    "BSR": (BSR, {"block_size": (2, 3)}),
}
DENSE = torch.tensor(
    [
        [1.0, 0.0, 2.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [3.0, 0.0, 4.0, 5.0, 6.0],
        [0.0, 0.0, 0.0, 7.0, 0.0],
    ],
    dtype=torch.float64,
)


def operand(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def wide(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64).numpy()


@settings(max_examples=100)
@given(
    found=entries(duplicates=False),
    name=st.sampled_from(sorted(FORMATS)),
    impl=st.sampled_from(["auto", "reference"]),
    transpose=st.booleans(),
    batch=st.sampled_from([None, 0, 1, 3]),
    width=st.integers(0, 5),
    dtype=st.sampled_from(ALL_DTYPES),
)
def test_products_equal_scipy(
    found: Entries,
    name: str,
    impl: Any,
    transpose: bool,
    batch: int | None,
    width: int,
    dtype: torch.dtype,
) -> None:
    target, options = FORMATS[name]
    matrix = found.coo().to(CSR).to(target, **options)
    shape = (found.shape[0 if transpose else 1], width)
    dense = operand(shape if batch is None else (batch, *shape), dtype, 0)
    result = spmm(matrix, dense, transpose=transpose, impl=impl)
    assert result.dtype == torch.promote_types(found.values.dtype, dtype)
    oracle = found.to_scipy().astype(np.complex128 if found.values.is_complex() else np.float64)
    oracle = (oracle.T if transpose else oracle).tocsr()
    layers = [dense] if batch is None else list(dense)
    expected = np.zeros((len(layers), oracle.shape[0], width), dtype=wide(result).dtype)
    for index, layer in enumerate(layers):
        expected[index] = oracle @ wide(layer)
    expected = expected[0] if batch is None else expected
    assert tuple(result.shape) == expected.shape
    tolerance = TOLERANCE.get(result.dtype, 1e-12)
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(wide(result), expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("impl", ["vendor", "reference"])
def test_nan_stays_in_its_rows_and_columns(impl: Any) -> None:
    dense = torch.ones(5, 3, dtype=torch.float64)
    dense[1] = float("inf")
    dense[3, 2] = float("nan")
    expected = torch.tensor([[3.0, 3, 3], [0, 0, 0], [18, 18, torch.nan], [7, 7, torch.nan]]).double()
    assert torch.equal(spmm(CSR.from_dense(DENSE), dense, impl=impl).nan_to_num(-1), expected.nan_to_num(-1))


@pytest.mark.parametrize("name", ["COO", "CSR", "BSR"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradients_equal_finite_differences(name: str, transpose: bool, batch: tuple[int, ...]) -> None:
    target, options = FORMATS[name]
    matrix = CSR.from_dense(DENSE).to(target, **options)
    values = matrix.values.detach().clone().requires_grad_()
    dense = operand((*batch, 4 if transpose else 5, 2), torch.float64, 1).requires_grad_()
    for impl in ("auto", "reference"):
        assert torch.autograd.gradcheck(
            lambda values, dense, impl=impl: spmm(
                matrix.with_values(values), dense, transpose=transpose, impl=impl
            ),
            (values, dense),
            fast_mode=name != "CSR",
        )


@pytest.mark.parametrize("dtypes", [(True, True), (True, False), (False, True)])
def test_complex_gradients(dtypes: tuple[bool, bool]) -> None:
    types = [torch.complex128 if complicated else torch.float64 for complicated in dtypes]
    matrix = CSR.from_dense(DENSE)
    values = operand((matrix.nnz,), types[0], 2).requires_grad_()
    dense = operand((2, 5, 2), types[1], 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda v, d: spmm(matrix.with_values(v), d), (values, dense))
    dense = operand((4, 2), types[1], 3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda v, d: spmm(matrix.with_values(v), d, transpose=True), (values, dense)
    )


@pytest.mark.parametrize("impl", ["vendor", "reference"])
def test_strided_operands(impl: Any) -> None:
    matrix = CSR.from_dense(DENSE)
    base = operand((3, 6, 10), torch.float64, 4)
    for dense in (base[0, :, ::2].T, base[:, ::2, ::2].mT, base[:1, :1].expand(2, 5, 10)):
        torch.testing.assert_close(spmm(matrix, dense, impl=impl), DENSE @ dense)


def test_columns_in_slices_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, dense = CSR.from_dense(DENSE), operand((5, 7), torch.float64, 5)
    whole = spmm(matrix, dense, impl="reference")
    monkeypatch.setattr(reference, "_PRODUCTS", 3 * matrix.nnz)
    assert torch.equal(spmm(matrix, dense, impl="reference"), whole)
    assert torch.equal(spmm(matrix, dense, impl="reference"), whole)


def test_a_vector_goes_to_spmv() -> None:
    matrix, x = CSR.from_dense(DENSE), operand((4,), torch.float64, 6)
    assert torch.equal(spmm(matrix, x, transpose=True), spmv(matrix, x, transpose=True))


@pytest.mark.parametrize("compiler", [True, False])
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_automatic_choice_on_a_cpu(
    dtype: torch.dtype, compiler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparse_core.kernels.native.available", lambda source: compiler)
    ran = []
    for name in ("reference", "vendor", "cpu"):
        module = api.SPMM.load(name)
        monkeypatch.setattr(module, "spmm", lambda *args, name=name: ran.append(name) or torch.zeros(4, 2))
    spmm(CSR.from_dense(DENSE.to(dtype)), torch.ones(5, 2, dtype=dtype))
    expected = "cpu" if compiler and dtype in (torch.float32, torch.float64) else "vendor"
    assert ran == ["reference" if dtype in (torch.float16, torch.bfloat16) else expected]


def test_without_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mkl.is_available", lambda: False)
    dense = operand((2, 5, 3), torch.float64, 7)
    torch.testing.assert_close(spmm(CSR.from_dense(DENSE), dense, impl="vendor"), DENSE @ dense)


MATRIX = CSR.from_dense(DENSE)


@pytest.mark.parametrize(
    ("dense", "options", "error", "message"),
    [
        (torch.ones(4, 2), {}, ValueError, r"\(4, 5\) matrix needs dense with 5 rows, got shape \(4, 2\)"),
        (torch.ones(5, 2), {"transpose": True}, ValueError, "transpose of the .* needs dense with 4 rows"),
        (torch.ones(2, 2, 5, 2), {}, ValueError, r"\(K, N\) or \(batch, K, N\), got \(2, 2, 5, 2\)"),
        (torch.tensor(1.0), {}, ValueError, r"got \(\)"),
        (torch.ones(5, 2, dtype=torch.bool), {}, TypeError, "floating or complex, got torch.bool"),
        (torch.ones(5, 2, device="meta"), {}, ValueError, "dense is on meta and the matrix on cpu"),
        (torch.ones(5, 2), {"impl": "fast"}, ValueError, "impl must be one of"),
    ],
)
def test_wrong_arguments(
    dense: Tensor, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        spmm(MATRIX, dense, **options)
