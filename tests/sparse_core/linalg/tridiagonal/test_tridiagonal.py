"""Tridiagonal systems against scipy's banded solver and torch's dense one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.linalg import tridiagonal_solve

every_implementation = pytest.mark.parametrize("impl", ["reference", "vendor"])


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def system(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Diagonally dominant bands."""
    lower, upper = draw(*shape, dtype=dtype, seed=seed), draw(*shape, dtype=dtype, seed=seed + 1)
    diagonal = draw(*shape, dtype=dtype, seed=seed + 2)
    dominant = diagonal / diagonal.abs() * (lower.abs() + upper.abs() + 1)
    return lower, dominant, upper


def dense(lower: Tensor, diagonal: Tensor, upper: Tensor) -> Tensor:
    return (
        torch.diag_embed(lower[..., 1:], -1)
        + torch.diag_embed(diagonal)
        + torch.diag_embed(upper[..., :-1], 1)
    )


@every_implementation
@settings(max_examples=40)
@given(
    size=st.integers(1, 40),
    columns=st.one_of(st.none(), st.integers(1, 3)),
    seed=st.integers(0, 2**32 - 3),
    kind=st.sampled_from(["float32", "float64", "complex64", "complex128"]),
)
def test_one_system_against_scipy(impl: Any, size: int, columns: int | None, seed: int, kind: str) -> None:
    dtype = getattr(torch, kind)
    lower, diagonal, upper = system(size, dtype=dtype, seed=seed)
    b = draw(size, *([] if columns is None else [columns]), dtype=dtype, seed=seed)
    bands = np.zeros((3, size), dtype=diagonal.numpy().dtype)
    bands[0, 1:], bands[1], bands[2, :-1] = upper[:-1], diagonal, lower[1:]
    expected = scipy.linalg.solve_banded((1, 1), bands, b.numpy())
    x = tridiagonal_solve(lower, diagonal, upper, b, impl=impl)
    assert x.dtype == dtype
    tolerance = 1e-4 if kind in ("float32", "complex64") else 1e-12
    np.testing.assert_allclose(x.numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("impl", ["reference", "vendor", "auto"])
@pytest.mark.parametrize("batch", [(1,), (7,), (3, 4), (2, 1, 3)])
@pytest.mark.parametrize("columns", [None, 1, 4])
def test_batches_against_torch(impl: Any, batch: tuple[int, ...], columns: int | None) -> None:
    lower, diagonal, upper = system(*batch, 13)
    b = draw(*batch, 13, *([] if columns is None else [columns]), seed=9)
    x = tridiagonal_solve(lower, diagonal, upper, b, impl=impl)
    assert x.shape == b.shape
    right = b[..., None] if columns is None else b
    expected = torch.linalg.solve(dense(lower, diagonal, upper), right).reshape(b.shape)
    torch.testing.assert_close(x, expected)


@every_implementation
def test_ends_of_the_bands_are_ignored(impl: Any) -> None:
    lower, diagonal, upper = system(2, 5)
    b = draw(2, 5, seed=7)
    expected = tridiagonal_solve(lower, diagonal, upper, b, impl=impl)
    marked_lower, marked_upper = lower.clone(), upper.clone()
    marked_lower[:, 0] = float("nan")
    marked_upper[:, -1] = float("inf")
    assert torch.equal(tridiagonal_solve(marked_lower, diagonal, marked_upper, b, impl=impl), expected)
    assert marked_lower[0, 0].isnan()


@every_implementation
def test_broadcasting(impl: Any) -> None:
    lower, diagonal, upper = system(1, 6)
    b = draw(5, 6, 2, seed=3)
    x = tridiagonal_solve(lower, diagonal, upper, b, impl=impl)
    torch.testing.assert_close(dense(lower, diagonal, upper) @ x, b)
    many = system(4, 1, 6)
    y = tridiagonal_solve(*many, draw(1, 3, 6, seed=5), impl=impl)
    assert y.shape == (4, 3, 6)
    torch.testing.assert_close((dense(*many) @ y[..., None])[..., 0], draw(1, 3, 6, seed=5).expand(4, 3, 6))


@every_implementation
@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 5)])
def test_nothing_to_solve(impl: Any, shape: tuple[int, ...]) -> None:
    part = torch.zeros(shape, requires_grad=True)
    x = tridiagonal_solve(part, part, part, part, impl=impl)
    assert x.shape == shape
    x.sum().backward()
    assert part.grad is not None
    assert tridiagonal_solve(*system(2, 3), torch.zeros(2, 3, 0, dtype=torch.float64), impl=impl).numel() == 0


@every_implementation
@pytest.mark.parametrize("columns", [None, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients(impl: Any, columns: int | None, dtype: torch.dtype) -> None:
    bands = [part.requires_grad_() for part in system(2, 4, dtype=dtype)]
    b = draw(2, 4, *([] if columns is None else [columns]), dtype=dtype, seed=8).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda *operands: tridiagonal_solve(*operands, impl=impl), (*bands, b), fast_mode=True
    )


def test_gradients_through_broadcasting() -> None:
    bands = [part.requires_grad_() for part in system(1, 4)]
    b = draw(3, 4, seed=8).requires_grad_()
    assert torch.autograd.gradcheck(tridiagonal_solve, (*bands, b))


@every_implementation
def test_non_finite_values_stay_in_their_system(impl: Any) -> None:
    lower, diagonal, upper = system(5, 6)
    b = draw(5, 6, 2, seed=2)
    expected = tridiagonal_solve(lower, diagonal, upper, b, impl=impl)
    diagonal[1, 3] = float("nan")
    b[3, 2, 1] = float("inf")
    x = tridiagonal_solve(lower, diagonal, upper, b, impl=impl, check=False)
    bad = torch.zeros(5, 2, dtype=torch.bool)
    bad[1], bad[3, 1] = True, True
    assert torch.equal((~x.isfinite()).any(dim=1), bad)
    kept = ~bad[:, None, :].expand_as(x)
    torch.testing.assert_close(x[kept], expected[kept])


@every_implementation
def test_zero_pivots(impl: Any) -> None:
    lower, diagonal, upper = (part.reshape(2, 3, 4) for part in system(6, 4))
    lower[1, 0], upper[1, 0], diagonal[1, 0, 2] = 0, 0, 0
    b = draw(2, 3, 4, seed=6)
    with pytest.raises(ValueError, match=r"zero pivot in row 2 of system \(1, 0\): it is singular"):
        tridiagonal_solve(lower, diagonal, upper, b, impl=impl)
    x = tridiagonal_solve(lower, diagonal, upper, b, impl=impl, check=False)
    good = torch.ones(2, 3, dtype=torch.bool)
    good[1, 0] = False
    assert torch.equal(x.isfinite().all(dim=-1), good)
    expected = torch.linalg.solve(dense(lower, diagonal, upper)[good], b[good][..., None])[..., 0]
    torch.testing.assert_close(x[good], expected)
    one = torch.zeros(1)
    with pytest.raises(ValueError, match="zero pivot in row 0 of the system"):
        tridiagonal_solve(one, one, one, one + 1, impl=impl)


def test_only_the_vendor_exchanges_rows() -> None:
    """[[0, 1], [1, 0]] is regular but needs a row exchange."""
    one, zero = torch.ones(2), torch.zeros(2)
    b = torch.tensor([3.0, 5.0])
    assert tridiagonal_solve(one, zero, one, b, impl="vendor").tolist() == [5.0, 3.0]
    with pytest.raises(ValueError, match="or needs row exchanges"):
        tridiagonal_solve(one, zero, one, b, impl="reference")


@every_implementation
def test_long_positive_definite_system(impl: Any) -> None:
    """The discrete Laplacian, not strictly dominant, with a parabola as solution."""
    size = 1000
    off = -torch.ones(size, dtype=torch.float64)
    x = tridiagonal_solve(off, -2 * off, off, torch.ones(size, dtype=torch.float64), impl=impl)
    place = torch.arange(1, size + 1, dtype=torch.float64)
    torch.testing.assert_close(x, place * (size + 1 - place) / 2, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("operands", "error", "message"),
    [
        ([(3,), (3,), (3,), (4,)], ValueError, r"b must be \(..., n\) or .* \(3,\), got \(4,\)"),
        ([(2,), (3,), (3,), (3,)], ValueError, r"lower must have shape .* got \(2,\)"),
        ([(3,), (3,), (1, 3), (3,)], ValueError, r"upper must have shape .* got \(1, 3\)"),
        (
            [(2, 3), (4, 3), (2, 3), (2, 3)],
            ValueError,
            r"do not broadcast: lower \(2, 3\), diagonal \(4, 3\)",
        ),
        ([(), (), (), ()], ValueError, "got a scalar"),
    ],
)
def test_shapes(operands: list[tuple[int, ...]], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tridiagonal_solve(*(torch.ones(shape) for shape in operands))


def test_types() -> None:
    part = torch.ones(3)
    with pytest.raises(TypeError, match=r"not torch\.float16"):
        tridiagonal_solve(part.half(), part.half(), part.half(), part.half())
    with pytest.raises(TypeError, match="lower must be a torch tensor, got list"):
        tridiagonal_solve([1.0], part, part, part)  # type: ignore[arg-type]
    assert tridiagonal_solve(part * 0, part, part * 0, part.double()).dtype == torch.float64
    with pytest.raises(ValueError, match="impl must be one of"):
        tridiagonal_solve(part, part, part, part, impl="thomas")  # type: ignore[arg-type]
