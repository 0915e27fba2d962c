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
from sparse_core.formats import BSR, COO, CSR, ELL
from sparse_core.linalg import sddmm
from sparse_core.linalg.sddmm import reference

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.complex64: 1e-5}
MASK = torch.tensor([[1.0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 0, 1, 1, 1], [0, 0, 0, 1, 0]]).double()


def operand(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def pattern_of(name: str, found: Entries) -> Any:
    coo = found.coo()
    if name == "COO":
        return coo
    csr = coo.to(CSR)
    return csr if name == "CSR" else csr.to(BSR, block_size=(3, 2))


def stored(pattern: Any) -> Tensor:
    """Dense 0/1 mask of the stored positions."""
    ones = pattern.with_values(torch.ones_like(pattern.values, dtype=torch.float64))
    return (ones.to(CSR).to_dense() != 0).double()


@settings(max_examples=100)
@given(
    found=entries(),
    name=st.sampled_from(["CSR", "COO", "BSR"]),
    impl=st.sampled_from(["auto", "reference"]),
    dtypes=st.tuples(st.sampled_from(ALL_DTYPES), st.sampled_from(ALL_DTYPES)),
    depth=st.integers(0, 6),
)
def test_samples_equal_the_dense_product(
    found: Entries, name: str, impl: Any, dtypes: tuple[torch.dtype, torch.dtype], depth: int
) -> None:
    pattern = pattern_of(name, found)
    a, b = operand((found.shape[0], depth), dtypes[0], 0), operand((depth, found.shape[1]), dtypes[1], 1)
    result = sddmm(pattern, a, b, impl=impl)
    assert type(result) is type(pattern)
    assert result.values.shape == pattern.values.shape
    assert result.dtype == torch.promote_types(*dtypes)
    product = wide(a).to(torch.complex128) @ wide(b).to(torch.complex128)
    tolerance = TOLERANCE.get(result.dtype, 1e-12)
    scale = max(1.0, float(product.abs().max())) if product.numel() else 1.0
    if name == "COO":
        actual, expected = wide(result.values), product[pattern.row, pattern.col]
    else:
        actual, expected = wide(result.to_dense()), product * stored(pattern)
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_block_padding_stays_zero_beside_infinity(impl: Any) -> None:
    pattern = CSR.from_dense(MASK).to(BSR, block_size=(3, 2))
    a = torch.full((4, 2), float("inf"), dtype=torch.float64)
    values = sddmm(pattern, a, torch.ones(2, 5, dtype=torch.float64), impl=impl).values
    # The last blocks hold rows 3..5 and columns 4..5 of a 4 x 5 matrix.
    last = values[-1]
    assert torch.equal(last == 0, last != float("inf"))
    assert bool((last == 0).any())
    assert not values.isnan().any()


@pytest.mark.parametrize("impl", ["vendor", "reference"])
def test_nan_stays_at_its_positions(impl: Any) -> None:
    a, b = torch.ones(4, 3, dtype=torch.float64), torch.ones(3, 5, dtype=torch.float64)
    a[1], b[1, 3] = float("nan"), float("nan")
    result = sddmm(CSR.from_dense(MASK), a, b, impl=impl)
    assert result.col[result.values.isnan()].tolist() == [3, 3]
    assert result.values[~result.values.isnan()].tolist() == [3.0] * 5


@pytest.mark.parametrize("name", ["CSR", "COO", "BSR"])
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_gradients_equal_finite_differences(name: str, impl: Any) -> None:
    row, col = MASK.nonzero(as_tuple=True)
    # The first position twice: COO samples both.
    row, col = torch.cat([row, row[:1]]), torch.cat([col, col[:1]])
    pattern = pattern_of(name, Entries(row, col, torch.ones(len(row), dtype=torch.float64), (4, 5)))
    a = operand((4, 3), torch.float64, 2).requires_grad_()
    b = operand((3, 5), torch.float64, 3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda a, b: sddmm(pattern, a, b, impl=impl).values, (a, b), fast_mode=name != "CSR"
    )


@pytest.mark.parametrize("dtypes", [(True, True), (True, False), (False, True)])
def test_complex_gradients(dtypes: tuple[bool, bool]) -> None:
    types = [torch.complex128 if complicated else torch.float64 for complicated in dtypes]
    pattern = CSR.from_dense(MASK)
    a, b = operand((4, 3), types[0], 4).requires_grad_(), operand((3, 5), types[1], 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: sddmm(pattern, a, b).values, (a, b))


@pytest.mark.parametrize("name", ["CSR", "BSR"])
def test_slices_give_the_same_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, col = MASK.nonzero(as_tuple=True)
    pattern = pattern_of(name, Entries(row, col, torch.ones(len(row)), (4, 5)))
    a, b = operand((4, 3), torch.float64, 6), operand((3, 5), torch.float64, 7)
    whole = sddmm(pattern, a, b, impl="reference").values
    monkeypatch.setattr(reference, "_GATHERED", 30)
    torch.testing.assert_close(sddmm(pattern, a, b, impl="reference").values, whole, rtol=1e-14, atol=1e-14)


PATTERN = CSR.from_dense(MASK)


@pytest.mark.parametrize(
    ("pattern", "a", "b", "options", "error", "message"),
    [
        (PATTERN, torch.ones(4, 3), torch.ones(2, 5), {}, ValueError, r"needs a \(4, K\) and b \(K, 5\)"),
        (PATTERN, torch.ones(3, 3), torch.ones(3, 5), {}, ValueError, r"got \(3, 3\) and \(3, 5\)"),
        (PATTERN, torch.ones(4), torch.ones(3, 5), {}, ValueError, r"a must be a matrix, got shape \(4,\)"),
        (PATTERN, torch.ones(4, 3), torch.ones(3, 5).long(), {}, TypeError, "b must be floating or complex"),
        (PATTERN, torch.ones(4, 3), torch.ones(3, 5, device="meta"), {}, ValueError, "b is on meta"),
        (MASK, torch.ones(4, 3), torch.ones(3, 5), {}, TypeError, "pattern must be a sparse matrix"),
        (PATTERN.to(ELL), torch.ones(4, 3), torch.ones(3, 5), {}, TypeError, r"got ELL: use .to\(CSR\)"),
        (
            PATTERN.to(COO),
            torch.ones(4, 3),
            torch.ones(3, 5),
            {"impl": "vendor"},
            ImplementationError,
            "not COO in torch.float32 on cpu",
        ),
    ],
)
def test_wrong_arguments(
    pattern: Any, a: Tensor, b: Tensor, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sddmm(pattern, a, b, **options)
