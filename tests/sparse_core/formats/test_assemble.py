from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_matrices import ALL_DTYPES, Entries, entries
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.formats import Assembled, assemble_csr
from sparse_core.formats.assemble import reference
from sparse_core.formats.assemble.common import PIECE, sum_runs


def assemble(case: Entries, **options: Any) -> Assembled:
    return assemble_csr(case.row, case.col, case.values, case.shape, **options)


def cells_of(made: Assembled) -> list[tuple[int, int]]:
    rows = torch.repeat_interleave(torch.arange(len(made.row_ptr) - 1), made.row_ptr.diff().cpu().long())
    return list(zip(rows.tolist(), made.col.tolist(), strict=True))


@settings(max_examples=80)
@given(case=entries())
def test_cells_and_sums_match_a_loop_over_the_entries(case: Entries) -> None:
    made = assemble(case)
    expected = case.sums()
    assert made.row_ptr.dtype == made.col.dtype == case.row.dtype
    assert made.values.dtype == case.values.dtype
    assert len(made.row_ptr) == case.shape[0] + 1
    assert cells_of(made) == list(expected)
    # Exactly equal, because the order of sums is documented.
    assert made.values.tolist() == list(expected.values())


@settings(max_examples=30)
@given(case=entries(dtypes=ALL_DTYPES), impl=st.sampled_from(["reference", "vendor"]))
def test_scipy_agrees(case: Entries, impl: str) -> None:
    made = assemble(case, impl=impl)
    matrix = case.to_scipy().tocsr()
    matrix.sum_duplicates()
    assert made.row_ptr.tolist() == matrix.indptr.tolist()
    assert made.col.tolist() == matrix.indices.tolist()
    assert made.row_ptr.dtype == made.col.dtype == case.row.dtype
    wide = torch.from_numpy(matrix.data).to(made.values.dtype)
    # scipy sums in another order.
    bound = 2e-2 if made.values.dtype in (torch.float16, torch.bfloat16) else 1e-5
    torch.testing.assert_close(made.values, wide, rtol=bound, atol=bound)


@settings(max_examples=30)
@given(case=entries(dtypes=[torch.float64], specials=True))
def test_nan_and_infinity_stay_in_their_cells(case: Entries) -> None:
    made = assemble(case)
    expected = torch.tensor(list(case.sums().values()), dtype=torch.float64)
    assert torch.equal(made.values.isnan(), expected.isnan())
    assert torch.equal(made.values.nan_to_num(), expected.nan_to_num())


@settings(max_examples=20)
@given(case=entries(dtypes=[torch.float64, torch.complex128], max_rows=5, max_cols=5))
@pytest.mark.parametrize("impl", ["reference", "vendor"])
def test_gradient_is_a_gather(case: Entries, impl: str) -> None:
    values = case.values.requires_grad_()
    made = assemble_csr(case.row, case.col, values, case.shape, impl=impl)
    upstream = torch.arange(1, len(made.values) + 1).to(values.dtype)
    (gradient,) = torch.autograd.grad(made.values, values, upstream)
    number = {cell: position + 1 for position, cell in enumerate(cells_of(made))}
    entry_cells = zip(case.row.tolist(), case.col.tolist(), strict=True)
    assert gradient.tolist() == [number[cell] for cell in entry_cells]


def test_half_sums_are_rounded_once() -> None:
    # 2048 + 1 rounds back to 2048 in float16; in float32 the ones add up first.
    values = torch.tensor([2048.0, *[1.0] * 8], dtype=torch.float16)
    zeros = torch.zeros(9, dtype=torch.int32)
    assert assemble_csr(zeros, zeros, values, (1, 1)).values.tolist() == [2056.0]


@pytest.mark.parametrize("lengths", [[1], [PIECE, 3], [PIECE + 1], [2, 3 * PIECE, 1, PIECE**2 + PIECE + 5]])
def test_long_runs_are_summed_in_pieces(lengths: list[int]) -> None:
    values = torch.randn(sum(lengths), generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def in_pieces(run: Tensor) -> float:
        while len(run) > 1:
            # Add one by one, because sum() of Python 3.12 compensates for rounding.
            sums = [reduce(add, piece.tolist()) for piece in run.split(PIECE)]
            run = torch.tensor(sums, dtype=torch.float64)
        return float(run)

    starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    expected = [in_pieces(run) for run in values.split(lengths)]
    assert sum_runs(values, starts).tolist() == expected
    row = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    assert assemble_csr(row, 0 * row, values, (len(lengths), 1)).values.tolist() == expected


def test_sorted_entries_are_not_sorted_again_and_memory_is_not_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row, col = torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0])
    monkeypatch.setattr(reference.torch, "sort", lambda *_, **__: pytest.fail("sorted"))
    values = torch.tensor([1.0, 2.0, 3.0])
    made = assemble_csr(row, col, values, (3, 4))
    assert made.row_ptr.tolist() == [0, 2, 2, 3]
    made.values.zero_()
    made.col.zero_()
    assert values.tolist() == [1.0, 2.0, 3.0]
    assert col.tolist() == [1, 3, 0]


def test_shapes_whose_linear_key_would_overflow() -> None:
    row = torch.tensor([2, 2, 2])
    col = torch.tensor([2**62, 5, 2**62])
    made = assemble_csr(row, col, torch.tensor([1.0, 2.0, 4.0]), (3, 2**62 + 1))
    assert made.row_ptr.tolist() == [0, 0, 0, 2]
    assert made.col.tolist() == [5, 2**62]
    assert made.values.tolist() == [2.0, 5.0]
    with pytest.raises(ImplementationError, match=r"fewer than 2\^63 cells"):
        assemble_csr(row, col, torch.ones(3), (3, 2**62 + 1), impl="vendor")


def test_keys_without_room_for_positions() -> None:
    # 2^61 cells fit 63 bits, but not with the position of five entries below them.
    far = 2**60
    row = torch.tensor([1, 0, 1, 1, 0])
    col = torch.tensor([far - 1, 3, 0, far - 1, 3])
    made = assemble_csr(row, col, torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]), (2, far))
    assert made.row_ptr.tolist() == [0, 1, 3]
    assert made.col.tolist() == [3, 0, far - 1]
    assert made.values.tolist() == [18.0, 4.0, 9.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (3, 3)])
def test_no_entries(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
    index = torch.zeros(0, dtype=torch.int32, device=device)
    made = assemble_csr(index, index, torch.zeros(0, dtype=dtype, device=device), shape)
    assert made.row_ptr.tolist() == [0] * (shape[0] + 1)
    assert (len(made.col), len(made.values), made.values.dtype) == (0, 0, dtype)


def build(row: object, col: object, values: object = (1.0, 2.0), **options: Any) -> Assembled:
    return assemble_csr(
        torch.as_tensor(row),
        torch.as_tensor(col),
        torch.as_tensor(values),
        options.pop("shape", (3, 4)),
        **options,
    )


@pytest.mark.parametrize("impl", ["reference", "vendor", "auto"])
@pytest.mark.parametrize(
    ("row", "col", "message"),
    [
        ([0, 3], [0, 0], r"row\[1\] = 3 is outside the matrix of 3 rows"),
        ([-1, 0], [0, 0], r"row\[0\] = -1 is outside"),
        ([0, 0], [0, 4], r"col\[1\] = 4 is outside the matrix of 4 columns"),
        ([0, 0], [-2, 1], r"col\[0\] = -2"),
    ],
)
def test_indices_outside_are_named(row: list[int], col: list[int], message: str, impl: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(row, col, impl=impl)


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"row must be int32 or int64, got torch\.float32"):
        build([0.0, 1.0], [0, 0])
    with pytest.raises(TypeError, match=r"same dtype, got torch\.int64 and torch\.int32"):
        build([0, 1], torch.tensor([0, 0], dtype=torch.int32))
    with pytest.raises(TypeError, match=r"floating or complex, got torch\.int64"):
        build([0, 1], [0, 0], [1, 2])
    with pytest.raises(ValueError, match=r"equally long, got \(2,\) and \(3,\)"):
        build([0, 1], [0, 0, 1])
    with pytest.raises(ValueError, match=r"values must be \(2,\) like row and col, got \(3,\)"):
        build([0, 1], [0, 0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="must not be negative"):
        build([0, 1], [0, 0], shape=(-1, 3))
    with pytest.raises(ValueError, match="on one device, got cpu, cpu and meta"):
        build([0, 1], [0, 0], torch.ones(2, device="meta"))
    with pytest.raises(ValueError, match="impl must be one of"):
        build([0, 1], [0, 0], impl="sort")


@pytest.mark.parametrize("shape", [(7, 3), (40, 60), (300, 2)])
def test_counting_and_sorting_order_alike(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    row, col = (torch.randint(0, size, (100,), generator=generator) for size in shape)
    found = reference._order(row, col, shape)
    monkeypatch.setattr(reference, "_COUNTED", 0)
    expected = reference._order(row, col, shape)
    assert found is not None
    assert expected is not None
    assert torch.equal(found, expected)
