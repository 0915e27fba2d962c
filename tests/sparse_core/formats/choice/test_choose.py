"""Tests of the choice of a format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_matrices import REAL_DTYPES, Entries, entries

from sparse_core.formats import BSR, COO, CSR, ELL, SlicedELL, SparseMatrix
from sparse_core.formats import generators as make
from sparse_core.formats.choice.choose import Choice, _fastest, choose_format, classic_choice
from sparse_core.formats.choice.profile import BLOCK_SIZES, profile_of
from sparse_core.formats.choice.thresholds import THRESHOLDS

OPERATIONS = ("spmv", "spmm", "modify")


def on_cuda(matrix: CSR, operation: str = "spmv") -> Choice:
    """The choice that a CUDA device with kernels would get; needs no such device."""
    limits = THRESHOLDS["cuda", operation]
    return _fastest(profile_of(matrix), limits, item=matrix.dtype.itemsize, kernels=True)


def plain_profile(matrix: Any) -> dict[str, Any]:
    """Profile of a scipy CSR matrix, counted row by row and block by block."""
    lengths = np.diff(matrix.indptr)
    slots = sum(32 * lengths[start : start + 32].max(initial=0) for start in range(0, len(lengths), 32))
    row, col = matrix.tocoo().coords
    blocks = {size: len(set(zip(row // size, col // size, strict=True))) for size in BLOCK_SIZES}
    return {"lengths": lengths, "slots": slots, "blocks": blocks}


@settings(max_examples=40)
@given(entries(max_rows=150, max_cols=150))
def test_profile_is_what_counting_gives(found: Entries) -> None:
    matrix = found.coo().to(CSR)
    profile = profile_of(matrix)
    assert (profile.shape, profile.nnz) == (matrix.shape, matrix.nnz)
    assert profile.sparsity == pytest.approx(matrix.sparsity)
    if matrix.nnz == 0:
        assert (profile.shortest, profile.longest, profile.mean) == (0, 0, 0.0)
        return
    plain = plain_profile(matrix.to_scipy())
    assert (profile.shortest, profile.longest) == (plain["lengths"].min(), plain["lengths"].max())
    assert profile.mean == pytest.approx(plain["lengths"].mean())
    assert profile.padding == pytest.approx(plain["slots"] / matrix.nnz)
    for size, count in plain["blocks"].items():
        assert profile.block_fill[size] == pytest.approx(matrix.nnz / (count * size**2))


def test_profile_of_a_large_matrix_is_estimated_from_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = make.block_sparse(2000, 1024, block_size=16, density=0.1, seed=3).to(CSR)
    exact = profile_of(matrix)
    monkeypatch.setattr("sparse_core.formats.choice.profile._ENTRIES", 20_000)
    again = CSR(matrix.row_ptr, matrix.col, matrix.values, matrix.shape)
    sampled = profile_of(again)
    assert sampled != exact
    assert sampled._replace(block_fill={}) == exact._replace(block_fill={})
    assert sampled.block_fill[16] == pytest.approx(1.0)
    for size in BLOCK_SIZES:
        assert sampled.block_fill[size] == pytest.approx(exact.block_fill[size], rel=0.15)


def test_profile_of_a_large_matrix_whose_bands_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparse_core.formats.choice.profile._ENTRIES", 1)
    row = torch.full((100,), 100, dtype=torch.int32)
    matrix = COO(row, torch.arange(100, dtype=torch.int32), torch.ones(100), (64 * 1000, 100)).to(CSR)
    assert profile_of(matrix).block_fill == dict.fromkeys(BLOCK_SIZES, 0.0)
    assert on_cuda(matrix).format is CSR


@pytest.mark.parametrize("size", [8, 16, 32, 64])
@pytest.mark.parametrize("operation", ["spmv", "spmm"])
def test_full_blocks_are_found_on_cuda(size: int, operation: str) -> None:
    choice = on_cuda(make.block_sparse(1024, block_size=size, density=0.1).to(CSR), operation)
    assert choice.format is BSR
    assert choice.options == {"block_size": (size, size)}
    assert f"{size}x{size} are 100 % full" in choice.reason


def test_half_values_pay_for_blocks_that_float32_does_not() -> None:
    # A third of each block is stored: 2 bytes a slot against 2 + 4 an entry, or 4 against 4 + 4.
    matrix = make.block_sparse(512, block_size=64, density=0.1).to(CSR)
    every = torch.rand(matrix.nnz, generator=torch.Generator().manual_seed(0)) < 0.33
    thinned = matrix.with_values(matrix.values * every).without_zeros()
    assert on_cuda(thinned).format is not BSR
    assert on_cuda(thinned.to(torch.float16)).format is BSR


@pytest.mark.parametrize("matrix", [make.poisson_2d(190), make.poisson_3d(33), make.random_uniform(33_000)])
def test_even_rows_are_sliced_on_cuda(matrix: CSR) -> None:
    choice = on_cuda(matrix)
    assert (choice.format, choice.options) == (SlicedELL, {"slice_height": 32})
    longest = int(matrix.row_lengths().max())
    assert f"to {longest} entries" in choice.reason
    # Products with many columns use CSR for any rows.
    assert on_cuda(matrix, "spmm").format is CSR


def test_skewed_rows_stay_compressed_on_cuda() -> None:
    matrix = make.power_law(3000, alpha=1.8, seed=1)
    choice = on_cuda(matrix)
    assert choice.format is CSR
    assert str(int(matrix.row_lengths().max())) in choice.reason


@pytest.mark.parametrize("operation", ["spmv", "spmm"])
def test_little_sparsity_is_dense(operation: str) -> None:
    matrix = make.random_uniform(200, per_row=150)
    for choice in (on_cuda(matrix, operation), choose_format(matrix, operation=operation)):
        assert (choice.format, choice.name) == (torch.Tensor, "dense")
        assert "25 % of the positions are zero" in choice.reason or "cover" in choice.reason


def test_a_dense_matrix_that_would_not_fit_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = make.random_uniform(200, per_row=150)
    small = THRESHOLDS["cpu", "spmv"]._replace(dense_bytes=200 * 200 * 4 - 1)
    monkeypatch.setitem(THRESHOLDS, ("cpu", "spmv"), small)
    assert choose_format(matrix).format is CSR


def test_csr_is_chosen_on_a_cpu() -> None:
    for matrix in (
        make.poisson_2d(30),
        make.power_law(500),
        make.block_sparse(512, block_size=32, density=0.05),
    ):
        for operation in ("spmv", "spmm"):
            assert choose_format(matrix, operation=operation).format is CSR


def test_coo_is_chosen_for_changing_matrices() -> None:
    assert choose_format(make.poisson_2d(20), operation="modify").format is COO
    assert choose_format(torch.ones(4, 4), operation="modify").format is torch.Tensor


def test_too_few_products_do_not_pay_for_a_conversion() -> None:
    matrix = make.poisson_2d(30)
    needed = THRESHOLDS["cpu", "spmv"].csr_reuse
    sliced = matrix.to(SlicedELL)
    stays = choose_format(sliced, reuse=needed - 1)
    assert stays.format is SlicedELL
    assert f"{needed - 1} products do not pay" in stays.reason
    assert stays.convert(sliced) is sliced
    assert choose_format(sliced, reuse=needed).format is CSR
    # Every product with coordinates makes a CSR, so keeping them saves nothing.
    assert choose_format(matrix.to(COO), reuse=0).format is CSR
    dense = matrix.to_dense()
    assert choose_format(dense, reuse=0).convert(dense) is dense
    assert choose_format(matrix, reuse=0).format is CSR


def test_textbook_decision_tree() -> None:
    assert classic_choice(torch.ones(10, 10)).name == "dense"
    assert classic_choice(make.poisson_2d(20)).name == "ELL"
    assert classic_choice(make.poisson_2d(20), "modify").name == "ELL"
    skewed = make.power_law(500)
    assert classic_choice(skewed).name == "CSR"
    assert classic_choice(skewed, "modify").name == "COO"
    assert "within a factor of two" in classic_choice(make.poisson_2d(20)).reason


@settings(max_examples=30)
@given(
    entries(dtypes=REAL_DTYPES),
    st.sampled_from([COO, CSR, ELL, SlicedELL, BSR, None]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([0, 10, 1000]),
)
def test_following_a_choice_keeps_the_matrix(
    found: Entries, kind: type[SparseMatrix] | None, operation: Any, reuse: int
) -> None:
    csr = found.coo().to(CSR)
    matrix = csr.to_dense() if kind is None else csr.to(kind)
    choices = [
        choose_format(matrix, operation=operation, reuse=reuse),
        classic_choice(matrix, operation),
    ]
    if operation != "modify":
        choices.append(on_cuda(csr, operation))
    for choice in choices:
        converted = choice.convert(matrix)
        assert isinstance(converted, choice.format)
        assert choice.holds(converted)
        assert choice.convert(converted) is converted
        dense = converted.to_dense() if isinstance(converted, SparseMatrix) else converted
        assert torch.equal(dense, csr.to_dense())
        assert choice.reason
        assert choice.name in str(choice)
    again = choose_format(matrix, operation=operation, reuse=reuse)
    assert again == choices[0]


def test_a_block_size_is_an_option_that_a_matrix_may_have() -> None:
    matrix = make.block_sparse(256, block_size=32, density=0.2)
    choice = on_cuda(matrix.to(CSR))
    assert choice.convert(matrix) is matrix
    other = matrix.to(BSR, block_size=8)
    assert not choice.holds(other)
    assert choice.convert(other).block_size == (32, 32)


def test_a_zero_size_or_empty_matrix_is_csr() -> None:
    for shape in ((0, 0), (0, 5), (5, 0), (5, 5)):
        choice = choose_format(torch.zeros(shape))
        assert choice.format is CSR
        assert choice.reason == "the matrix stores no entries"
        assert choose_format(CSR.from_dense(torch.zeros(shape)), operation="modify").format is COO


def test_values_do_not_matter_and_gradients_are_left_alone() -> None:
    dense = torch.eye(100)
    dense[3, 4] = float("nan")
    matrix = CSR.from_dense(dense)
    wanted = choose_format(matrix)
    learned = matrix.with_values(torch.zeros(matrix.nnz, requires_grad=True))
    assert choose_format(learned) == wanted
    assert choose_format(learned.to(ELL), reuse=1000) == wanted
    assert learned.values.grad is None


def test_bad_arguments_are_named() -> None:
    matrix = make.poisson_2d(3)
    with pytest.raises(ValueError, match="operation must be one of spmv, spmm, modify; got 'spgemm'"):
        choose_format(matrix, operation="spgemm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="operation must be one of"):
        classic_choice(matrix, "add")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reuse must be 0 or more products, got -1"):
        choose_format(matrix, reuse=-1)
    with pytest.raises(TypeError, match="got csr_array"):
        choose_format(scipy.sparse.csr_array((3, 3)))
    with pytest.raises(TypeError, match=r"layout torch\.sparse_coo"):
        choose_format(torch.eye(3).to_sparse())
    with pytest.raises(ValueError, match=r"two dimensions, got shape \(2, 3, 4\)"):
        choose_format(torch.ones(2, 3, 4))


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ["spmv", "spmm"])
def test_a_gpu_chooses_by_its_own_thresholds(cuda: torch.device, operation: Any) -> None:
    for matrix in (make.poisson_2d(40), make.power_law(2000), make.block_sparse(512, block_size=64).to(CSR)):
        moved = matrix.to(cuda)
        choice = choose_format(moved, operation=operation)
        expected = on_cuda(matrix, operation)
        assert choice == expected
        x = torch.randn(matrix.shape[1], generator=torch.Generator().manual_seed(0))
        oracle = matrix.to(torch.float64).to_scipy() @ x.double().numpy()
        product = choice.convert(moved) @ x.to(cuda)
        torch.testing.assert_close(product.cpu().double(), torch.from_numpy(oracle), rtol=1e-4, atol=1e-3)
