from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_matrices import ALL_DTYPES, Entries, entries
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, SlicedELL, SparseMatrix
from sparse_core.linalg import spmv
from sparse_core.linalg.spmv import api
from sparse_core.linalg.structure import as_csr, transposed

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.complex64: 1e-5}
FORMATS: dict[str, tuple[type[SparseMatrix], dict[str, Any]]] = {
    "COO": (COO, {}),
    "CSR": (CSR, {}),
    "ELL": (ELL, {}),
    "SlicedELL": (SlicedELL, {"slice_height": 4}),
    "HYB": (HYB, {}),
    "BSR": (BSR, {"block_size": (3, 2)}),
    "NM": (NM, {"n": 4, "m": 4}),
}
#: 4 x 5 with an empty row, a full row, and a column that is empty.
DENSE = torch.tensor(
    [
        [1.0, 0.0, 2.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [3.0, 0.0, 4.0, 5.0, 6.0],
        [0.0, 0.0, 0.0, 7.0, 0.0],
    ],
    dtype=torch.float64,
)


def build(name: str, found: Entries) -> SparseMatrix:
    target, options = FORMATS[name]
    coo = found.coo()
    return coo if target is COO else coo.to(CSR).to(target, **options)


def vector(length: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(length, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def wide(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64).numpy()


def oracle(found: Entries, x: Tensor, transpose: bool) -> np.ndarray:
    """scipy in double precision, on the sums of duplicates as the type of the entries rounds them."""
    cells = found.sums()
    row, col = np.array(list(cells), dtype=np.int64).reshape(-1, 2).T
    kind = np.complex128 if found.values.is_complex() else np.float64
    matrix = scipy.sparse.coo_array((np.array(list(cells.values()), kind), (row, col)), shape=found.shape)
    return np.asarray((matrix.T if transpose else matrix).tocsr() @ wide(x))


def assert_close(result: Tensor, expected: np.ndarray) -> None:
    tolerance = TOLERANCE.get(result.dtype, 1e-12)
    scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)))
    np.testing.assert_allclose(wide(result), expected, rtol=tolerance, atol=tolerance * scale)


@settings(max_examples=100)
@given(
    found=entries(),
    name=st.sampled_from(sorted(FORMATS)),
    impl=st.sampled_from(["auto", "reference"]),
    transpose=st.booleans(),
    x_dtype=st.sampled_from(ALL_DTYPES),
    seed=st.integers(0, 99),
)
def test_products_equal_scipy(
    found: Entries, name: str, impl: Any, transpose: bool, x_dtype: torch.dtype, seed: int
) -> None:
    matrix = build(name, found)
    x = vector(found.shape[0 if transpose else 1], x_dtype, seed)
    result = spmv(matrix, x, transpose=transpose, impl=impl)
    assert result.dtype == torch.promote_types(found.values.dtype, x_dtype)
    assert_close(result, oracle(found, x, transpose))


@settings(max_examples=40)
@given(found=entries(dtypes=[torch.float32], specials=True), impl=st.sampled_from(["vendor", "reference"]))
def test_nan_and_infinity_stay_in_their_rows(found: Entries, impl: Any) -> None:
    x = vector(found.shape[1], torch.float32, 0)
    x[: len(x) // 3] = float("inf")
    x[len(x) // 3 : len(x) // 2] = float("nan")
    with np.errstate(invalid="ignore"):
        expected = oracle(found, x, False)
    assert_close(spmv(found.coo().to(CSR), x, impl=impl), expected)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_padding_meets_no_infinity(name: str) -> None:
    matrix = build(name, coordinates(DENSE))
    x = torch.ones(5, dtype=torch.float64)
    x[1] = float("inf")
    result = spmv(matrix, x, impl="reference")
    if name not in ("BSR", "NM"):
        assert result.tolist() == [3.0, 0.0, 18.0, 7.0]
        return
    # Their zeros are stored: 0 * inf is NaN in rows that store column 1, and nothing elsewhere.
    stored = matrix.with_values(torch.ones_like(matrix.values)).to(CSR).to_dense()
    assert torch.equal(result.isnan(), stored[:, 1] != 0)


def coordinates(dense: Tensor) -> Entries:
    row, col = dense.nonzero(as_tuple=True)
    return Entries(row, col, dense[row, col], (dense.shape[0], dense.shape[1]))


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_gradients_equal_finite_differences(name: str, transpose: bool, impl: Any) -> None:
    matrix = build(name, coordinates(DENSE))
    values = matrix.values.detach().clone().requires_grad_()
    x = vector(4 if transpose else 5, torch.float64, 1).requires_grad_()

    def product(values: Tensor, x: Tensor) -> Tensor:
        return spmv(matrix.with_values(values), x, transpose=transpose, impl=impl)

    # Padding does not change the product, so both gradients are zero.
    assert torch.autograd.gradcheck(product, (values, x), fast_mode=name != "CSR")


@pytest.mark.parametrize("dtypes", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("transpose", [False, True])
def test_complex_gradients(dtypes: tuple[bool, bool], transpose: bool) -> None:
    types = [torch.complex128 if complicated else torch.float64 for complicated in dtypes]
    matrix = CSR.from_dense(DENSE)
    values = vector(matrix.nnz, types[0], 2).requires_grad_()
    x = vector(4 if transpose else 5, types[1], 3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda values, x: spmv(matrix.with_values(values), x, transpose=transpose), (values, x)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_gradients_keep_their_type(dtype: torch.dtype) -> None:
    matrix = CSR.from_dense(DENSE.to(dtype))
    matrix = matrix.with_values(matrix.values.requires_grad_())
    x = torch.ones(5, dtype=torch.float32, requires_grad=True)
    result = spmv(matrix, x)
    result.backward(torch.tensor([1.0, 1.0, 2.0, 0.0]))
    assert result.dtype == x.grad.dtype == torch.float32
    assert matrix.values.grad.dtype == dtype
    assert matrix.values.grad.tolist() == [1, 1, 2, 2, 2, 2, 0]
    assert x.grad.tolist() == [7, 0, 10, 10, 12]


def test_duplicates_share_the_gradient() -> None:
    values = torch.ones(3, requires_grad=True)
    matrix = COO(torch.tensor([0, 1, 0]), torch.tensor([1, 0, 1]), values, (2, 2))
    spmv(matrix, torch.tensor([2.0, 3.0])).sum().backward()
    assert values.grad.tolist() == [3, 2, 3]


def test_half_sums_are_taken_in_single_precision() -> None:
    length = 4096
    matrix = CSR.from_dense(torch.ones(1, length, dtype=torch.float16))
    x = torch.full((length,), 1.0 + 2**-9, dtype=torch.float16)
    # 4096 exactly representable terms; in float16 the sum would stop growing near 2048.
    assert float(spmv(matrix, x)) == 4104.0


def test_transpose_is_planned_once_for_a_structure() -> None:
    matrix = CSR.from_dense(DENSE)
    other = matrix.with_values(matrix.values * 2)
    assert matrix.transpose_order() is other.transpose_order()
    assert transposed(matrix) is transposed(matrix)
    assert torch.equal(transposed(other).to_dense(), 2 * DENSE.T)
    # Plans of the transpose do not depend on the values.
    assert transposed(other)._structure_cache is transposed(matrix)._structure_cache
    matrix.values.mul_(3)
    assert torch.equal(transposed(matrix).to_dense(), 3 * DENSE.T)


def test_conversion_is_kept_until_the_values_change() -> None:
    matrix = ELL.from_dense(DENSE)
    assert as_csr(matrix) is as_csr(matrix)
    before = spmv(matrix, torch.ones(5, dtype=torch.float64))
    matrix.values.mul_(2)
    assert torch.equal(spmv(matrix, torch.ones(5, dtype=torch.float64)), 2 * before)


@pytest.mark.parametrize("impl", ["reference", "vendor"])
def test_values_changed_in_place_are_used(impl: Any) -> None:
    matrix = CSR.from_dense(DENSE)
    x = torch.ones(5, dtype=torch.float64)
    assert spmv(matrix, x, impl=impl).tolist() == [3, 0, 18, 7]
    matrix.values.add_(1)
    assert spmv(matrix, x, impl=impl).tolist() == [5, 0, 22, 8]


def test_values_changed_before_backward_are_noticed() -> None:
    matrix = CSR.from_dense(DENSE)
    x = torch.ones(5, dtype=torch.float64, requires_grad=True)
    result = spmv(matrix.with_values(matrix.values.clone().requires_grad_()), x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("impl", ["reference", "vendor"])
def test_uninitialised_memory_is_not_read(impl: Any) -> None:
    matrix = CSR.from_dense(DENSE)
    assert spmv(matrix, torch.ones(5, dtype=torch.float64), impl=impl).tolist() == [3, 0, 18, 7]
    assert spmv(matrix, torch.ones(4, dtype=torch.float64), impl=impl, transpose=True).tolist() == [
        4,
        0,
        6,
        12,
        6,
    ]


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_automatic_choice_on_a_cpu(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    for module in (api.SPMV.load("reference"), api.SPMV.load("vendor")):
        original = module.spmv
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(
            module, "spmv", lambda *args, name=name, original=original: ran.append(name) or original(*args)
        )
    spmv(CSR.from_dense(DENSE.to(dtype)), torch.ones(5, dtype=dtype))
    assert ran == ["reference" if dtype in (torch.float16, torch.bfloat16) else "vendor"]


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("mkl", [True, False])
def test_both_cpu_libraries(index_dtype: torch.dtype, mkl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if mkl and not torch.backends.mkl.is_available():
        pytest.skip("torch without MKL")
    monkeypatch.setattr("torch.backends.mkl.is_available", lambda: mkl)
    narrow = CSR.from_dense(DENSE)
    matrix = CSR(narrow.row_ptr.to(index_dtype), narrow.col.to(index_dtype), narrow.values, narrow.shape)
    assert matrix.index_dtype == index_dtype
    strided = torch.arange(15, dtype=torch.float64)[::3]
    assert torch.equal(spmv(matrix, strided, impl="vendor"), DENSE @ strided)


def test_conjugated_views() -> None:
    x = vector(5, torch.complex128, 4)
    matrix = CSR.from_dense(DENSE.to(torch.complex128) * (1 + 2j))
    for impl in ("vendor", "reference"):
        expected = matrix.to_dense().conj() @ x.conj()
        assert_close(spmv(matrix.with_values(matrix.values.conj()), x.conj(), impl=impl), expected.numpy())


def call(matrix: Any, x: Any, **options: Any) -> Tensor:
    return spmv(matrix, x, **options)


MATRIX = CSR.from_dense(DENSE)


@pytest.mark.parametrize(
    ("matrix", "x", "options", "error", "message"),
    [
        (MATRIX, torch.ones(4), {}, ValueError, r"\(4, 5\) matrix needs x of length 5, got 4"),
        (MATRIX, torch.ones(5), {"transpose": True}, ValueError, "needs x of length 4, got 5"),
        (MATRIX, torch.ones(5, 2), {}, ValueError, r"got \(5, 2\): use spmm"),
        (MATRIX, torch.tensor(1.0), {}, ValueError, r"x must have shape \(K,\), got \(\)"),
        (
            MATRIX,
            torch.ones(5, dtype=torch.int64),
            {},
            TypeError,
            "x must be floating or complex, got torch.int64",
        ),
        (MATRIX, np.ones(5), {}, TypeError, "x must be a dense tensor, got ndarray"),
        (
            MATRIX,
            torch.ones(5).to_sparse(),
            {},
            TypeError,
            r"layout torch.sparse_coo: convert it with CSR\.from_torch",
        ),
        (MATRIX, torch.ones(5, device="meta"), {}, ValueError, "x is on meta and the matrix on cpu"),
        (
            DENSE,
            torch.ones(5),
            {},
            TypeError,
            "matrix must be a sparse matrix of sparse_core.formats, got Tensor",
        ),
        (MATRIX, torch.ones(5), {"impl": "fast"}, ValueError, "impl must be one of"),
        (MATRIX, torch.ones(5), {"impl": "vendor", "method": "merge"}, ValueError, "needs impl='triton'"),
        (MATRIX.to(torch.float16), torch.ones(5).half(), {"impl": "vendor"}, ImplementationError, "on a CPU"),
    ],
)
def test_wrong_arguments(
    matrix: Any, x: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(matrix, x, **options)


def test_libraries_neither_warn_nor_touch_the_filters(repository: Path) -> None:
    program = """
import warnings, torch
from sparse_core.formats import CSR
from sparse_core.linalg import spgemm, spmm, spmv, sddmm
before = list(warnings.filters)
matrix = CSR.from_dense(torch.eye(3))
spmv(matrix, torch.ones(3), impl="vendor"), spmm(matrix, torch.ones(3, 2), impl="vendor")
spgemm(matrix, matrix, impl="vendor"), sddmm(matrix, torch.ones(3, 2), torch.ones(2, 3), impl="vendor")
assert warnings.filters == before
"""
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
