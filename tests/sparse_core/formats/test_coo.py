from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparse_core.formats import COO, CSR
from sparse_core.formats.coo import are_sorted, morton_codes


def duplicated(dtype: torch.dtype = torch.float32) -> COO:
    row, col = torch.tensor([2, 0, 2, 0, 2]), torch.tensor([1, 3, 1, 0, 1])
    return COO(row, col, torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]).to(dtype), (3, 4))


def test_coalesce_sorts_and_sums() -> None:
    matrix = duplicated()
    summed = matrix.coalesce()
    assert (matrix.nnz, summed.nnz) == (5, 3)
    assert (matrix.is_coalesced, summed.is_coalesced) == (None, True)
    summed.validate()
    assert (summed.row.tolist(), summed.col.tolist()) == ([0, 0, 2], [0, 3, 1])
    assert summed.values.tolist() == [8.0, 2.0, 21.0]
    assert summed.coalesce() is summed
    assert torch.equal(summed.to_dense(), torch.from_numpy(matrix.to_scipy().toarray()))
    assert torch.equal(summed.to_dense(), matrix.to_torch().to_dense())
    assert matrix.row_lengths().tolist() == [2, 0, 3]


def test_sums_are_taken_in_input_order() -> None:
    # In float32 (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1.
    index = torch.zeros(3, dtype=torch.int32)
    for values, expected in (([1e8, 1.0, -1e8], 0.0), ([1e8, -1e8, 1.0], 1.0)):
        assert COO(index, index, torch.tensor(values), (1, 1)).coalesce().values.tolist() == [expected]


def test_a_torch_tensor_keeps_its_duplicates_and_its_gradient() -> None:
    indices = torch.tensor([[0, 0, 1], [1, 1, 0]])
    values = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    source = torch.sparse_coo_tensor(indices, values, (2, 2), check_invariants=True)
    assert COO.from_torch(source.detach()).nnz == 3
    matrix = COO.from_torch(source)
    assert matrix.requires_grad
    (matrix.to_dense() * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [2.0, 2.0, 3.0]


def test_sort_by_row_keeps_duplicates_in_input_order() -> None:
    ordered = duplicated().sort()
    assert ordered.nnz == 5
    assert (ordered.row.tolist(), ordered.col.tolist()) == ([0, 0, 2, 2, 2], [0, 3, 1, 1, 1])
    assert ordered.values.tolist() == [8.0, 2.0, 1.0, 4.0, 16.0]
    assert ordered.is_coalesced is None
    assert duplicated().coalesce().sort("row").is_coalesced
    with pytest.raises(ValueError, match='"row" or "morton", got \'column\''):
        ordered.sort("column")  # type: ignore[arg-type]


def interleaved(row: int, column: int) -> int:
    return sum(((row >> bit & 1) << (2 * bit + 1)) | ((column >> bit & 1) << (2 * bit)) for bit in range(31))


@given(
    cells=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), min_size=1, max_size=20)
)
def test_morton_codes_interleave_bits(cells: list[tuple[int, int]]) -> None:
    row, col = torch.tensor(cells).T
    codes = morton_codes(row, col, (2**31, 2**31))
    assert codes.tolist() == [interleaved(*cell) for cell in cells]
    assert morton_codes(row.int(), col.int(), (2**31, 2**31)).tolist() == codes.tolist()


def test_morton_order_walks_quadrants() -> None:
    row, col = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
    matrix = COO(row.reshape(-1), col.reshape(-1), torch.arange(1.0, 17.0), (4, 4))
    curve = matrix.sort("morton")
    assert curve.row.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]
    assert curve.col.tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3]
    assert torch.equal(curve.to_dense(), matrix.to_dense())
    assert curve.sort("morton").values.tolist() == curve.values.tolist()
    with pytest.raises(ValueError, match=r"up to 2\^31"):
        COO(row.reshape(-1), col.reshape(-1), torch.ones(16), (4, 2**32)).sort("morton")


def test_indices_are_checked_unless_told_otherwise() -> None:
    row, col, values = torch.tensor([0, 2]), torch.tensor([1, 0]), torch.ones(2)
    with pytest.raises(ValueError, match="row"):
        COO(row, col, values, (2, 2))
    assert COO(row, col, values, (2, 2), validate=False).nnz == 2


@pytest.mark.parametrize(
    ("row", "col", "expected"),
    [
        ([0, 1, 1, 2], [3, 0, 2, 0], True),
        ([0, 1, 1, 2], [3, 2, 0, 0], False),
        ([0, 2, 2, 2], [0, 1, 3, 3], False),
        ([0, 2, 1], [0, 0, 0], False),
        ([], [], True),
    ],
)
def test_order_and_duplicates_are_seen(row: list[int], col: list[int], expected: bool) -> None:
    assert are_sorted(torch.tensor(row), torch.tensor(col)) is expected


def test_of_csr_it_is_coalesced_and_as_large_as_planned() -> None:
    csr = CSR.from_dense(torch.eye(3, dtype=torch.float64))
    matrix = COO.from_csr(csr)
    assert matrix.is_coalesced
    assert COO.planned_nbytes(csr) == matrix.nbytes == 3 * (2 * 4 + 8)
