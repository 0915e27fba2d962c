"""Operators of all formats against scipy and torch, and their gradients against dense ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, CompactCSR, SlicedELL, SparseMatrix, algebra
from sparse_core.formats.indexing import pointers_from_rows, transpose_structure

FORMATS: list[tuple[type[SparseMatrix], dict[str, Any]]] = [
    (COO, {}),
    (CSR, {}),
    (ELL, {}),
    (SlicedELL, {"slice_height": 4, "sort_window": 8}),
    (HYB, {"quantile": 0.5}),
    (BSR, {"block_size": (3, 2)}),
    (NM, {"n": 4, "m": 4}),
    (CompactCSR, {}),
]
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SHAPES = ((7, 5), (5, 7), (1, 9), (9, 1), (6, 6), (0, 4), (4, 0), (0, 0), (1, 1), (33, 20))

#: What is done to a matrix, as ours and as scipy write it: (ours a, ours b, scipy a, scipy b) to two results.
OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "a + b": (lambda a, b: a + b, lambda a, b: a + b),
    "a - b": (lambda a, b: a - b, lambda a, b: a - b),
    "a * b": (lambda a, b: a * b, lambda a, b: a.multiply(b)),
    "a @ b.T": (lambda a, b: a @ b.to(CSR).T, lambda a, b: a @ b.T),
    "-a": (lambda a, b: -a, lambda a, b: -a),
    "a + 0": (lambda a, b: a + 0, lambda a, b: a + 0),
    "0 - a": (lambda a, b: 0 - a, lambda a, b: -a),
    "sum": (lambda a, b: sum([a, b, a]), lambda a, b: a + b + a),
    "2 * a": (lambda a, b: 2 * a, lambda a, b: 2 * a),
    "a * -0.5": (lambda a, b: a * -0.5, lambda a, b: a * -0.5),
    "a / 4": (lambda a, b: a / 4, lambda a, b: a / 4),
    "np.float64(3) * a": (lambda a, b: np.float64(3) * a, lambda a, b: 3 * a),
    "conj": (lambda a, b: a.conj(), lambda a, b: a.conj()),
    "a + dense": (lambda a, b: a + b.to_dense(), lambda a, b: a + b.toarray()),
    "dense - a": (lambda a, b: b.to_dense() - a, lambda a, b: b.toarray() - a),
    "dense * a": (lambda a, b: b.to_dense() * a, lambda a, b: a.multiply(b.toarray())),
    "a / dense": (lambda a, b: a / (b.to_dense() + 10), lambda a, b: a / (b.toarray() + 10)),
    "scaled rows": (
        lambda a, b: a * b.to_dense().sum(1)[:, None],
        lambda a, b: a.multiply(b.sum(1)[:, None]),
    ),
    "scaled columns": (lambda a, b: a * b.to_dense().sum(0), lambda a, b: a.multiply(b.sum(0)[None])),
    "sum()": (lambda a, b: a.sum(), lambda a, b: a.sum()),
    "sum(0)": (lambda a, b: a.sum(axis=0), lambda a, b: a.sum(axis=0)),
    "sum(1)": (lambda a, b: a.sum(axis=1), lambda a, b: a.sum(axis=1)),
    "sum(-1)": (lambda a, b: a.sum(axis=-1), lambda a, b: a.sum(axis=-1)),
    "rows": (lambda a, b: a[1:5], lambda a, b: a.tocsr()[1:5]),
    "every other row, backwards": (lambda a, b: a[::-2], lambda a, b: a.tocsr()[::-2]),
    "rows and columns": (lambda a, b: a[:-1, 1:4], lambda a, b: a.tocsr()[:-1, 1:4]),
    "all": (lambda a, b: a[:], lambda a, b: a),
}
for shift in (-3, -1, 0, 2, 40):
    OPERATIONS[f"diagonal({shift})"] = (
        lambda a, b, k=shift: a.diagonal(k),
        lambda a, b, k=shift: np.zeros(0) if -k >= a.shape[0] or k >= a.shape[1] else a.diagonal(k),
    )


def draw(shape: tuple[int, int], density: float, dtype: torch.dtype, seed: int) -> Tensor:
    """Small integers, so that every order of a sum gives the same number."""
    generator = np.random.default_rng(seed)
    numbers = generator.integers(-4, 5, (2, *shape)) * (generator.random(shape) < density)
    return torch.from_numpy(numbers[0] + 1j * numbers[1] if dtype.is_complex else numbers[0]).to(dtype)


def as_array(found: Any) -> Any:
    if isinstance(found, SparseMatrix):
        found.validate()
        found = found.to_dense()
    if isinstance(found, Tensor):
        return found.numpy()
    return found.toarray() if scipy.sparse.issparse(found) else np.asarray(found)


def compare(seed: int, shapes: tuple[tuple[int, int], ...], densities: tuple[float, ...]) -> int:
    """Every operation on every format for matrices of one seed; the number of comparisons."""
    cases = 0
    for number, (shape, density) in enumerate(itertools.product(shapes, densities)):
        dtype = DTYPES[(seed + number) % len(DTYPES)]
        dense = [draw(shape, density, dtype, 1000 * seed + 2 * number + part) for part in range(2)]
        theirs = [scipy.sparse.csr_array(part.numpy()) for part in dense]
        for left, right in zip(FORMATS, FORMATS[1:] + FORMATS[:1], strict=True):
            half = CompactCSR in (left[0], right[0])
            if half and dtype.is_complex:
                continue
            pairs = zip((left, right), dense, strict=True)
            ours = [target.from_dense(part, **options) for (target, options), part in pairs]
            for name, (our, their) in OPERATIONS.items():
                expected = as_array(their(*theirs))
                found = as_array(our(*ours))
                assert found.shape == expected.shape, (name, shape, left[0], dtype)
                if half and name == "a / dense":
                    assert np.allclose(found, expected, rtol=2e-3), (name, shape, left[0], dtype)
                elif "/" in name:
                    assert np.allclose(found, expected, rtol=1e-6), (name, shape, left[0], dtype)
                else:
                    assert np.array_equal(found, expected), (name, shape, left[0], dtype)
                cases += 1
    return cases


def test_operators_equal_those_of_scipy() -> None:
    assert compare(0, ((7, 5), (0, 4)), (0.25,)) > 500


@pytest.mark.slow
def test_operators_equal_those_of_scipy_at_length() -> None:
    assert sum(compare(seed, SHAPES, (0.0, 0.25, 1.0)) for seed in range(4)) > 24_000


@pytest.mark.parametrize(("target", "options"), FORMATS)
def test_scaling_keeps_format_structure_and_padding(
    target: type[SparseMatrix], options: dict[str, Any]
) -> None:
    matrix = target.from_dense(draw((7, 5), 0.4, torch.float32, 3), **options)
    for number in (2, 0, -1.5, float("inf"), float("nan"), torch.tensor(3.0), torch.tensor(float("inf"))):
        for found in (matrix * number, number * matrix):
            found.validate()
            assert type(found) is target
            expected = matrix.to(CSR).values * number
            torch.testing.assert_close(found.to(CSR).values, expected.to(found.dtype), equal_nan=True)
    (matrix / 0).validate()
    assert type(-matrix) is type(matrix.conj()) is target


def test_types_are_promoted_as_in_torch() -> None:
    half, single = CSR.from_dense(torch.eye(3).half()), CSR.from_dense(torch.eye(3))
    assert (half + single).dtype == (half * single).dtype == torch.float32
    assert (half + half.to(torch.bfloat16)).dtype == torch.float32
    assert (2.5 * half).dtype == torch.float16
    assert (single * 1j).dtype == torch.complex64
    assert (single * torch.arange(3)).dtype == torch.float32
    assert (half + half).to_dense().tolist() == (2 * torch.eye(3)).tolist()


def test_rows_by_numbers_lists_and_masks() -> None:
    dense = draw((6, 4), 0.6, torch.float64, 5)
    for target, options in FORMATS:
        matrix = target.from_dense(dense, **options)
        for key in (0, -1, np.int64(3)):
            assert torch.equal(matrix[key].double(), dense[key])
            assert torch.equal(matrix[:, key % 4].double(), dense[:, key % 4])
            assert matrix[key, 2].item() == dense[key, 2].item()
        mask = torch.tensor([True, False, True, True, False, False])
        for rows in ([3, 0, 3, -1], [], mask, torch.tensor([5, 5], dtype=torch.int32)):
            expected = dense[torch.as_tensor(rows, dtype=None if len(rows) else torch.int64)]
            assert isinstance(matrix[rows], CSR)
            assert torch.equal(matrix[rows].to_dense().double(), expected)
            assert torch.equal(matrix[rows, 1:3].to_dense().double(), expected[:, 1:3])
        assert torch.equal(matrix[1:, [2, 0]].to_dense().double(), dense[1:, [2, 0]])
        assert torch.equal(torch.stack(list(matrix)).double(), dense)


def gradients(compute: Callable[..., Any], dense: list[Tensor], sparse: bool) -> list[Tensor]:
    leaves = [part.clone().requires_grad_() for part in dense]
    operands = [CSR.from_dense(part) for part in leaves] if sparse else leaves
    result = compute(*operands)
    result = result.to_dense() if isinstance(result, SparseMatrix) else result
    weights = torch.arange(1.0, result.numel() + 1, dtype=result.real.dtype).reshape(result.shape)
    (result * weights).sum().abs().backward()
    return [part.grad * (part.detach() != 0) for part in leaves if part.grad is not None]


SMOOTH: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (lambda a, b: a + b - 2 * a, lambda a, b: a + b - 2 * a),
    "product": (lambda a, b: a * b, lambda a, b: a * b),
    "with dense": (lambda a, b: a * b.to_dense().exp() + b.to_dense(), lambda a, b: a * b.exp() + b),
    "rows": (lambda a, b: a[[0, 2, 0]] * b[1:4], lambda a, b: a[[0, 2, 0]] * b[1:4]),
    "row": (lambda a, b: a[1] * b[:, 0].sum(), lambda a, b: a[1] * b[:, 0].sum()),
    "diagonal": (
        lambda a, b: a.diagonal(1) * b.diagonal(-1).sum(),
        lambda a, b: a.diagonal(1) * b.diagonal(-1).sum(),
    ),
    "sums": (lambda a, b: a.sum(0) * b.sum(1).sum() + b.sum(), lambda a, b: a.sum(0) * b.sum() + b.sum()),
    "conj": (lambda a, b: a.conj() * b, lambda a, b: a.conj() * b),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_those_of_dense_matrices(name: str, dtype: torch.dtype) -> None:
    ours, theirs = SMOOTH[name]
    dense = [draw((5, 4), 0.6, dtype, seed) for seed in (1, 2)]
    for found, expected in zip(gradients(ours, dense, True), gradients(theirs, dense, False), strict=True):
        torch.testing.assert_close(found, expected)


def test_operands_that_do_not_match() -> None:
    matrix, other = CSR.from_dense(torch.eye(3)), CSR.from_dense(torch.ones(3, 2))
    for compute in (lambda: matrix + other, lambda: matrix * other, lambda: matrix - other):
        with pytest.raises(ValueError, match=r"same shape, got \(3, 3\) and \(3, 2\)"):
            compute()
    with pytest.raises(ValueError, match="would make the matrix dense"):
        matrix + 1
    with pytest.raises(ValueError, match="would make the matrix dense"):
        2.0 - matrix
    with pytest.raises(ValueError, match=r"got \(2,\)"):
        matrix * torch.ones(2)
    for wrong in ("x", None, np.ones((3, 3)), [1.0]):
        for compute in (
            lambda wrong=wrong: matrix + wrong,
            lambda wrong=wrong: wrong - matrix,
            lambda wrong=wrong: matrix * wrong,
            lambda wrong=wrong: matrix / wrong,
        ):
            with pytest.raises(TypeError, match=r"unsupported operand|can't multiply|not a numpy array"):
                compute()
    with pytest.raises(TypeError, match="unsupported operand"):
        matrix / matrix
    with pytest.raises(ValueError, match="axis must be None, 0, 1, -1 or -2, got 2"):
        matrix.sum(axis=2)
    with pytest.raises(ValueError, match="matrices are on cpu and meta"):
        matrix + matrix.to("meta")


def test_indices_outside_are_refused() -> None:
    matrix = CSR.from_dense(torch.ones(3, 2))
    for key in (3, -4, [0, 3], (0, 2), (slice(None), -3)):
        with pytest.raises(IndexError, match=r"is outside -\d\.\.\d"):
            matrix[key]
    with pytest.raises(IndexError, match=r"a mask must have shape \(3,\), got \(2,\)"):
        matrix[torch.tensor([True, False])]
    with pytest.raises(IndexError, match="rows and columns, got 3 indices"):
        matrix[0, 0, 0]
    for key in ("a", 1.5, None, [0.5], torch.ones(1, 1).long()):
        with pytest.raises(TypeError, match=r"expected an integer|must be a list of integers"):
            matrix[key]
    with pytest.raises(TypeError, match=r"use matrix\[rows\]\[:, columns\]"):
        matrix[[0], [1]]


def test_sums_and_products_of_shapes_with_more_than_2_63_cells() -> None:
    row, shape = torch.tensor([0, 0, 9]), (10, 2**62)
    left = COO(row, torch.tensor([2**61, 5, 7]), torch.tensor([1.0, 2, 3]), shape).to(CSR)
    right = COO(row[:2], torch.tensor([2**61, 6]), torch.tensor([10.0, 20]), shape).to(CSR)
    total, product = left + right, left * right
    total.validate()
    product.validate()
    assert total.row_indices().tolist() == [0, 0, 0, 9]
    assert total.col.tolist() == [5, 6, 2**61, 7]
    assert total.values.tolist() == [2, 20, 11, 3]
    assert (product.col.tolist(), product.values.tolist()) == ([2**61], [10])


@pytest.mark.parametrize("shape", [*SHAPES, (300, 200)])
def test_scipy_and_torch_merge_two_structures_alike(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    left, right = (CSR.from_dense((torch.rand(shape, generator=generator) < 0.4).float()) for _ in range(2))
    for found, expected in (
        (algebra._merge_by_scipy(left, right), algebra._merge(left, right)),
        (algebra._match_by_scipy(left, right), algebra._match(left, right)),
        (transpose_structure(left.row_ptr, left.col, shape[1]), _sorted_transpose(left)),
    ):
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)


def _sorted_transpose(matrix: CSR) -> tuple[Tensor, Tensor, Tensor]:
    col, order = torch.sort(matrix.col, stable=True)
    rows = matrix.row_indices()[order]
    return pointers_from_rows(col, matrix.shape[1]), rows, order.to(matrix.index_dtype)


def test_sums_keep_entries_that_cancel() -> None:
    matrix = CSR.from_dense(torch.eye(3))
    assert (matrix - matrix).values.tolist() == [0, 0, 0]


def test_slices_own_their_memory() -> None:
    matrix = CSR.from_dense(torch.arange(1.0, 13).reshape(3, 4))
    for part in (matrix[1:], matrix[:, 1:3], matrix[::2], matrix[2:1]):
        part.validate()
        part.values.zero_()
    assert matrix.values.tolist() == list(range(1, 13))
    assert matrix[2:1].shape == (0, 4)
    assert matrix[:, 3:1].shape == (3, 0)


def test_operators_under_transforms() -> None:
    matrix = CSR.from_dense(torch.arange(1.0, 13, dtype=torch.float64).reshape(3, 4))
    blocks = BSR.from_dense(matrix.to_dense(), block_size=2)
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "sum": lambda values: (matrix.with_values(values) + matrix).values,
        "product": lambda values: (matrix.with_values(values) * matrix).values,
        "columns": lambda values: matrix.with_values(values)[:, 1:3].values,
        "diagonal": lambda values: matrix.with_values(values).diagonal(),
        "blocks": lambda values: blocks.with_values(blocks.values * values[0]).to(CSR).values,
        "zeros": lambda values: matrix.with_values(values).without_zeros().values,
    }
    for name, function in functions.items():
        backward = torch.autograd.functional.jacobian(function, matrix.values)
        assert torch.equal(torch.func.jacrev(function)(matrix.values), backward), name


@pytest.mark.parametrize("kind", [CSR, COO, BSR])
def test_products_under_transforms(kind: type[SparseMatrix]) -> None:
    matrix = kind.from_dense(torch.arange(1.0, 13, dtype=torch.float64).reshape(3, 4))
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "vector": lambda values, x: (matrix.with_values(values) @ x[0]).square().sum(),
        "matrix": lambda values, x: (matrix.with_values(values) @ x.T).square().sum(),
        "transposed": lambda values, x: (x[:, :3] @ matrix.with_values(values)).square().sum(),
    }
    x = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for name, function in functions.items():
        found = torch.func.grad(function, argnums=(0, 1))(matrix.values, x)
        # The plans that the transform cached serve plain calls.
        inputs = matrix.values.clone().requires_grad_(), x.clone().requires_grad_()
        expected = torch.autograd.grad(function(*inputs), inputs)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, msg=name)
    with pytest.raises(ImplementationError, match=r"no transform of torch\.func"):
        torch.func.grad(lambda values: (matrix.with_values(values) @ matrix.T).sum())(matrix.values)
