"""Tests of the storage of ELL, SlicedELL, HYB, BSR and NM."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, SlicedELL

ROWS = torch.tensor(
    [
        [1.0, 0.0, 0.0, 2.0],
        [0.0, 0.0, 0.0, 0.0],
        [3.0, 4.0, 5.0, 0.0],
        [0.0, 0.0, 6.0, 0.0],
        [0.0, 7.0, 0.0, 0.0],
    ]
)


def test_ell_is_column_major() -> None:
    matrix = ELL.from_dense(ROWS)
    assert matrix.width == 3
    assert matrix.lengths.tolist() == [2, 0, 3, 1, 1]
    assert matrix.values.tolist() == [[1, 0, 3, 6, 7], [2, 0, 4, 0, 0], [0, 0, 5, 0, 0]]
    assert matrix.col.tolist() == [[0, 0, 0, 2, 1], [3, 0, 1, 0, 0], [0, 0, 2, 0, 0]]
    roomy = ELL.from_dense(ROWS, width=5)
    roomy.validate()
    assert roomy.width == 5
    assert torch.equal(roomy.to_dense(), ROWS)
    assert roomy.nnz == 7


def test_padding_that_holds_something_is_never_used() -> None:
    nan = float("nan")
    ell = ELL.from_dense(ROWS)
    dirty = ell.with_values(torch.where(ell.values == 0, nan, ell.values))
    assert torch.equal(dirty.to_dense(), ROWS)
    assert torch.equal(dirty.T.to_dense(), ROWS.T)
    sliced = SlicedELL.from_dense(ROWS, slice_height=2)
    dirty_slices = sliced.with_values(torch.where(sliced.values == 0, nan, sliced.values))
    assert torch.equal(dirty_slices.to(CSR).to_dense(), ROWS)
    bsr = BSR.from_dense(torch.ones(3, 3), block_size=2)
    dirty_blocks = bsr.with_values(torch.where(bsr.values == 0, nan, bsr.values))
    assert torch.equal(dirty_blocks.to_dense(), torch.ones(3, 3))
    assert torch.equal(dirty_blocks.to(COO).to_dense(), torch.ones(3, 3))
    packed = NM.from_dense(torch.ones(2, 5), n=4, m=4)
    dirty_slots = packed.with_values(torch.where(packed.values == 0, nan, packed.values))
    assert torch.equal(dirty_slots.to_dense(), torch.ones(2, 5))
    assert torch.equal(dirty_slots.to(CSR).to_dense(), torch.ones(2, 5))


def test_slices_are_as_wide_as_their_longest_row() -> None:
    matrix = SlicedELL.from_dense(ROWS, slice_height=2)
    assert matrix.slice_ptr.tolist() == [0, 4, 10, 12]
    assert matrix.lengths.tolist() == [2, 0, 3, 1, 1]
    assert matrix.values.tolist() == [1, 0, 2, 0, 3, 6, 4, 0, 5, 0, 7, 0]
    assert matrix.col.tolist() == [0, 0, 3, 0, 0, 2, 1, 0, 2, 0, 1, 0]
    assert matrix.row_order is None


def test_sorted_slices_say_which_row_is_where() -> None:
    matrix = SlicedELL.from_dense(ROWS, slice_height=2, sort_window=5)
    matrix.validate()
    assert matrix.row_order is not None
    assert matrix.row_order.tolist() == [2, 0, 3, 4, 1]
    assert matrix.lengths.tolist() == [3, 2, 1, 1, 0]
    assert matrix.row_lengths().tolist() == [2, 0, 3, 1, 1]
    assert matrix.slice_ptr.tolist() == [0, 6, 8, 8]
    assert matrix.values.tolist() == [3, 1, 4, 2, 5, 0, 6, 7]
    assert torch.equal(matrix.to_dense(), ROWS)
    windows = SlicedELL.from_dense(ROWS, slice_height=2, sort_window=2)
    assert windows.row_order is not None
    assert windows.row_order.tolist() == [0, 1, 2, 3, 4]


@settings(max_examples=40)
@given(
    rows=st.integers(0, 40), height=st.integers(1, 9), window=st.integers(1, 50), seed=st.integers(0, 1000)
)
def test_windows_are_sorted_and_keep_their_rows(rows: int, height: int, window: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    dense = (torch.rand(rows, 6, generator=generator) < 0.4).float()
    matrix = SlicedELL.from_dense(dense, slice_height=height, sort_window=window)
    matrix.validate()
    assert torch.equal(matrix.to_dense(), dense)
    order = matrix.row_order.tolist() if matrix.row_order is not None else list(range(rows))
    lengths = matrix.lengths.tolist()
    assert [int(count) for count in dense.sum(dim=1)[order].tolist()] == lengths
    for start in range(0, rows, window):
        assert sorted(order[start : start + window]) == list(range(start, min(start + window, rows)))
        assert lengths[start : start + window] == sorted(lengths[start : start + window], reverse=True)
    widths = (matrix.slice_ptr.diff() // height).tolist()
    assert widths == [max(lengths[first : first + height]) for first in range(0, rows, height)]


def test_hyb_splits_at_the_quantile() -> None:
    lengths = torch.tensor([3] * 19 + [50])
    dense = (torch.arange(60) < lengths[:, None]).float() * torch.arange(1.0, 61.0)
    matrix = HYB.from_dense(dense)
    assert matrix.ell.width == 3
    assert matrix.coo.nnz == 47
    assert matrix.coo.is_coalesced
    assert matrix.nnz == 19 * 3 + 50
    assert torch.equal(matrix.to_dense(), dense)
    assert HYB.from_dense(dense, quantile=1.0).coo.nnz == 0
    assert HYB.from_dense(dense, quantile=0.0).ell.width == 0
    assert torch.equal(HYB.from_dense(dense, quantile=0.0).to_dense(), dense)
    assert matrix.values.shape == (20 * 3 + 47,)
    assert torch.equal(matrix.with_values(-matrix.values).to_dense(), -dense)


def test_ragged_blocks_count_what_lies_inside() -> None:
    matrix = BSR.from_dense(torch.ones(5, 7), block_size=(2, 4))
    assert matrix.block_shape == (3, 2)
    assert matrix.is_ragged
    assert repr(matrix) == "BSR(5x7, nnz=35, float32, cpu)"
    assert matrix.row_lengths().tolist() == [7] * 5
    assert matrix.to(CSR).nnz == 35
    assert matrix.values.sum() == 35
    assert matrix.sparsity == 0.0
    assert not BSR.from_dense(torch.ones(4, 8), block_size=(2, 4)).is_ragged


def test_a_block_of_nan_alone_is_kept() -> None:
    dense = torch.zeros(4, 4)
    dense[3, 3] = float("nan")
    assert BSR.from_dense(dense, block_size=2).col.tolist() == [1]


def test_nm_packs_positions() -> None:
    dense = torch.tensor([[0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0]])
    for matrix in (NM.from_dense(dense), CSR.from_dense(dense).to(NM)):
        assert (matrix.n, matrix.m, matrix.groups) == (2, 4, 2)
        assert matrix.index.tolist() == [[[1, 3], [0, 1]], [[0, 3], [0, 1]]]
        assert matrix.values.tolist() == [[[1, 2], [0, 0]], [[0, 3], [4, 0]]]
        assert matrix.index.dtype == torch.uint8
        assert matrix.nnz == 8
        assert matrix.nbytes == 8 * 5
        assert matrix.sparsity == 0.5
        assert matrix.to(CSR).nnz == 8


def test_a_partial_group_stays_inside_where_it_can() -> None:
    matrix = NM.from_dense(torch.ones(3, 5), n=4, m=4)
    matrix.validate()
    assert matrix.index[:, 1].tolist() == [[0, 1, 2, 3]] * 3
    assert matrix.nnz == 15
    assert matrix.to(CSR).nnz == 15
    assert matrix.row_lengths().tolist() == [5, 5, 5]
    half = NM.from_dense(torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]))
    assert half.index.tolist() == [[[0, 1], [0, 1]]]
    assert half.nnz == 4


@pytest.mark.parametrize("through_csr", [False, True])
def test_too_many_nonzeros_are_named(through_csr: bool) -> None:
    dense = torch.zeros(5, 12)
    dense[3, 8:11] = 1
    source = CSR.from_dense(dense) if through_csr else dense
    with pytest.raises(
        ValueError, match=r"^row 3, group 2 \(columns 8\.\.11\) has 3 nonzeros, more than the 2 of 2:4"
    ):
        source.to(NM) if isinstance(source, CSR) else NM.from_dense(source)
    with pytest.raises(ValueError, match=r"^row 3, group 2 \(columns 8\.\.11\) has 3 nonzeros"):
        NM.planned_nbytes(CSR.from_dense(dense))


def test_the_transpose_of_nm_fits_or_says_why() -> None:
    assert torch.equal(NM.from_dense(torch.eye(8)).T.to_dense(), torch.eye(8))
    column = torch.zeros(4, 4)
    column[:, 0] = 1
    with pytest.raises(ValueError, match=r"not 2:4 sparse \(row 0, group 0 .*; use x\.to\(CSR\)\.T$"):
        _ = NM.from_dense(column).T
