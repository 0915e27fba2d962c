from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.formats import COO, CSR, CompactCSR

WIDE = 400_000


def decoded(matrix: CompactCSR) -> list[tuple[int, int, float]]:
    """Decode the entries one by one, by the documented rule."""
    found = []
    for row in range(matrix.shape[0]):
        cursor = max(0, row + matrix.anchor_offset)
        for place in range(int(matrix.row_ptr[row]), int(matrix.row_ptr[row + 1])):
            cursor += int(matrix.delta[place]) % 65536
            value = matrix.values[place]
            if not (value == 0 and bool(torch.signbit(value))):
                found.append((row, cursor, float(value)))
    return found


def wide(row: list[int], col: list[int], values: list[float], rows: int = 3) -> CSR:
    return COO(torch.IntTensor(row), torch.IntTensor(col), torch.FloatTensor(values), (rows, WIDE)).to(CSR)


def entries_of(csr: CSR) -> list[tuple[int, int, float]]:
    return list(zip(csr.row_indices().tolist(), csr.col.tolist(), csr.values.tolist(), strict=True))


def test_four_bytes_an_entry(draw_dense: Callable[..., Tensor]) -> None:
    csr = CSR.from_dense(draw_dense(30, 40, 0.4, torch.float32))
    matrix = csr.to(CompactCSR)
    assert matrix.nbytes == 31 * 4 + csr.nnz * 4
    assert matrix.fillers == 0
    assert decoded(matrix) == entries_of(csr)


def test_the_anchor_follows_a_band() -> None:
    # Entries far right of the diagonal: without the anchor every row would need a filler.
    rows = torch.arange(5)
    csr = COO(rows.repeat(2), torch.cat([rows + 100_000, rows + 100_001]), torch.ones(10), (5, WIDE)).to(CSR)
    matrix = csr.to(CompactCSR)
    assert matrix.anchor_offset == 100_000
    assert matrix.fillers == 0
    assert matrix.delta.tolist() == [0, 1] * 5
    lower = csr.T.to(CompactCSR)
    assert lower.anchor_offset == -100_001
    assert torch.equal(lower.to(CSR).col, csr.T.col)


def test_wide_gaps_are_bridged_by_fillers() -> None:
    csr = wide([0, 0, 0, 1, 2, 2], [0, 65535, 65535 + 65536, 3, 1, 200_000], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    matrix = csr.to(CompactCSR)
    matrix.validate()
    # Gaps 65535 (fits), 65536 (one filler) and 199999 (three).
    assert matrix.fillers == 4
    assert (matrix.nnz, len(matrix.delta)) == (6, 10)
    assert matrix.delta.tolist()[:4] == [0, -1, -1, 1]
    assert matrix.row_lengths().tolist() == [3, 1, 2]
    assert decoded(matrix) == entries_of(csr)
    assert entries_of(matrix.to(CSR)) == entries_of(csr)
    assert CompactCSR.planned_nbytes(csr) == matrix.nbytes
    assert repr(matrix) == f"CompactCSR(3x{WIDE}, nnz=6, float16, cpu)"


@settings(max_examples=40)
@given(
    cells=st.sets(
        st.tuples(
            st.integers(0, 4),
            st.sampled_from(
                [
                    0,
                    1,
                    2,
                    65534,
                    65535,
                    65536,
                    65537,
                    131070,
                    131071,
                    131072,
                    196605,
                    196606,
                    200_000,
                    WIDE - 1,
                ]
            ),
        ),
        max_size=20,
    ),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
)
def test_any_gaps_round_trip(cells: set[tuple[int, int]], dtype: torch.dtype) -> None:
    ordered = sorted(cells)
    csr = wide(
        [row for row, _ in ordered], [col for _, col in ordered], [1.0 + i for i in range(len(cells))], rows=5
    )
    matrix = csr.to(CompactCSR, dtype=dtype)
    matrix.validate()
    assert matrix.nnz == csr.nnz
    assert decoded(matrix) == entries_of(csr) == entries_of(matrix.to(CSR))
    assert entries_of(matrix.T.T.to(CSR)) == entries_of(csr)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_negative_zero_is_an_entry_and_not_a_filler(dtype: torch.dtype) -> None:
    # -1e-30 rounds to -0.0 in float16.
    csr = wide([0, 0, 1], [0, 100_000, 2], [-0.0, -1e-30, 1.0])
    matrix = csr.to(CompactCSR, dtype=dtype)
    assert (matrix.nnz, matrix.fillers) == (3, 1)
    assert matrix.to(CSR).col.tolist() == csr.col.tolist()
    changed = matrix.with_values(torch.full_like(matrix.values, -0.0))
    assert (changed.nnz, changed.fillers) == (3, 1)
    changed.validate()
    assert decoded(changed) == [(0, 0, 0.0), (0, 100_000, 0.0), (1, 2, 0.0)]
    plain = wide([0, 1], [0, 1], [1.0, 2.0]).to(CompactCSR, dtype=dtype)
    assert plain.with_values(torch.full_like(plain.values, -0.0)).nnz == 2
    plain.with_values(torch.full_like(plain.values, -0.0)).validate()


def test_fillers_get_no_gradient_and_hide_no_infinity() -> None:
    csr = wide([0, 0], [0, 100_000], [float("inf"), 2.0])
    matrix = csr.to(CompactCSR)
    assert matrix.fillers == 1
    values = torch.ones_like(matrix.values).requires_grad_()
    matrix.with_values(values).to(CSR).values.float().sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 0.0, 1.0]
    assert matrix.to(CSR).values.tolist() == [float("inf"), 2.0]


def test_rounding_and_overflow() -> None:
    csr = wide([0, 1], [0, 1], [1 / 3, 1e5])
    with pytest.raises(
        ValueError, match=r"^values\[1\] = 100000 overflows torch\.float16: use dtype=torch\.bfloat16$"
    ):
        csr.to(CompactCSR)
    rounded = csr.to(CompactCSR, dtype=torch.bfloat16)
    assert torch.equal(rounded.to(CSR).values, csr.values.to(torch.bfloat16))
    with pytest.raises(ValueError, match="scale the matrix"):
        csr.with_values(torch.tensor([1e300, 0.0], dtype=torch.float64)).to(CompactCSR, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="real values, got torch.complex64".replace(".", r"\.")):
        csr.to(torch.complex64).to(CompactCSR)
    with pytest.raises(TypeError, match=r"torch\.float16 or torch\.bfloat16, got torch\.float32"):
        csr.to(CompactCSR, dtype=torch.float32)


def test_gradient_passes_the_rounding() -> None:
    csr = wide([0, 0, 2], [0, 100_000, 7], [1.0, 2.0, 3.0])
    values = csr.values.double().requires_grad_()
    weight = torch.tensor([2.0, 3.0, 4.0])
    (csr.with_values(values).to(CompactCSR).to(CSR).values.float() * weight).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == weight.tolist()
