from __future__ import annotations

import pytest
import torch
from hypothesis import given
from sparse_matrices import Entries, entries

from sparse_core.formats import CSR, SlicedELL, generators
from sparse_core.linalg.spmv import plan as plans
from sparse_core.linalg.spmv.plan import (
    MERGE_ITEMS,
    PIECE,
    PatternPlan,
    adaptive_plan,
    find_patterns,
    merge_plan,
    pattern_plan,
    row_profile,
)


def columns_of(plan: PatternPlan, row: int) -> list[int]:
    which = int(plan.pattern[row])
    return [row + int(offset) for offset in plan.offsets[which, : int(plan.lengths[which])]]


@pytest.mark.parametrize(
    "matrix", [generators.poisson_2d(9, 7), generators.stencil_27(5), generators.diagonal(40)]
)
@pytest.mark.parametrize("sliced", [False, True])
def test_patterns_give_back_every_column(matrix: CSR, sliced: bool) -> None:
    plan = pattern_plan(matrix.to(SlicedELL, slice_height=4) if sliced else matrix)
    assert plan is not None
    assert plan.pattern.dtype == torch.uint8
    for row in range(matrix.shape[0]):
        begin, end = matrix.row_ptr[row : row + 2].tolist()
        assert columns_of(plan, row) == matrix.col[begin:end].tolist()


def test_a_rare_pattern_outside_the_sample_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_SAMPLE_ROWS", 4)
    dense = torch.eye(50)
    dense[31, 2] = dense[32, 33] = 1.0
    plan = pattern_plan(CSR.from_dense(dense))
    assert plan is not None
    assert len(plan.lengths) == 3
    assert columns_of(plan, 31) == [2, 31]
    assert columns_of(plan, 32) == [32, 33]


def test_equal_hashes_of_different_rows_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans._Offsets, "hashes", lambda self, rows: torch.zeros_like(rows))
    dense = torch.eye(6)
    assert pattern_plan(CSR.from_dense(dense)) is not None
    dense[3, 5] = 1.0
    assert pattern_plan(CSR.from_dense(dense)) is None


def test_matrices_without_few_patterns_have_no_plan() -> None:
    assert pattern_plan(generators.random_uniform(2000, per_row=3)) is None
    assert pattern_plan(CSR.from_dense(torch.ones(3, 40))) is None
    assert pattern_plan(CSR.from_dense(torch.zeros(5, 5))) is None
    assert find_patterns(torch.zeros(0, dtype=torch.int64), lambda row, entry: row) is None
    sorted_rows = generators.poisson_2d(8).to(SlicedELL, slice_height=4, sort_window=16)
    assert sorted_rows.row_order is None or pattern_plan(sorted_rows) is None


@given(entries(max_rows=40, max_cols=40))
def test_merge_parts_cover_every_entry_and_row_end_once(drawn: Entries) -> None:
    matrix = drawn.coo().to(CSR)
    rows, stored = matrix.shape[0], matrix.nnz
    plan = merge_plan(matrix)
    programs = len(plan.first_row) - 1
    assert programs == -(-(rows + stored) // MERGE_ITEMS)
    for program in range(programs):
        row, row_end = plan.first_row[program : program + 2].tolist()
        entry = program * MERGE_ITEMS - row
        # Rows that end here end after the first entry of the part and within it.
        ends = matrix.row_ptr[row + 1 : row_end + 1]
        assert ((ends >= entry) & (ends + torch.arange(row, row_end) < (program + 1) * MERGE_ITEMS)).all()
    if programs:
        assert plan.first_row[0] == 0
        assert plan.first_row[-1] == rows
    starts = [index for index in range(stored) if int(plan.row_starts[index // 32]) >> (index % 32) & 1]
    nonempty = matrix.row_lengths() > 0
    assert starts == matrix.row_ptr[:-1][nonempty].tolist()


def test_rows_over_several_parts_are_listed() -> None:
    dense = torch.zeros(4, 3 * MERGE_ITEMS)
    dense[1] = 1.0
    dense[3, 0] = 1.0
    plan = merge_plan(CSR.from_dense(dense))
    assert plan.split.rows.tolist() == [1]
    assert plan.split.first.tolist() == [0]
    assert plan.split.last.tolist() == [3]


def test_rows_of_many_parts_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_NARROW_PARTS", 2)
    dense = torch.zeros(4, 3 * MERGE_ITEMS)
    dense[1] = 1.0
    dense[2, :MERGE_ITEMS] = dense[3] = 1.0
    split = merge_plan(CSR.from_dense(dense)).split
    assert split.narrow == 1
    assert split.rows.tolist() == [2, 1, 3]
    assert (split.last - split.first).tolist() == [1, 3, 3]


def csr_of(lengths: list[int]) -> CSR:
    row_ptr = torch.tensor([0, *lengths]).cumsum(0).int()
    col = torch.cat([torch.arange(length, dtype=torch.int32) for length in lengths])
    return CSR(row_ptr, col, torch.ones(len(col)), (len(lengths), max(lengths)))


def test_long_rows_are_cut_where_lines_begin() -> None:
    lengths = [0, 3, 32, 33, PIECE, 3 * PIECE]
    plan = adaptive_plan(csr_of(lengths))
    assert (plan.short_rows, plan.longest_short, plan.mean_short) == (3, 32, 35 / 3)
    assert plan.long_entries == 33 + 4 * PIECE
    # Rows 4 and 5 begin within a line, 68 and 1092.
    assert plan.piece_start.tolist() == [
        35,
        68,
        64 + PIECE,
        1092,
        1088 + PIECE,
        1088 + 2 * PIECE,
        1088 + 3 * PIECE,
    ]
    assert plan.piece_end.tolist() == [
        68,
        64 + PIECE,
        1092,
        1088 + PIECE,
        1088 + 2 * PIECE,
        1088 + 3 * PIECE,
        1092 + 3 * PIECE,
    ]
    assert plan.piece_row.tolist() == [3, *[-1] * 6]
    assert plan.split.rows.tolist() == [4, 5]
    assert plan.split.first.tolist() == [1, 3]
    assert plan.split.last.tolist() == [3, 7]


def test_pieces_grow_with_very_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MOST_PIECES", 2)
    plan = adaptive_plan(csr_of([5 * PIECE]))
    assert (plan.piece_end - plan.piece_start).tolist() == [3 * PIECE, 2 * PIECE]


def test_profile_of_a_matrix_without_rows() -> None:
    assert row_profile(CSR.from_dense(torch.zeros(0, 3))).longest == 0
