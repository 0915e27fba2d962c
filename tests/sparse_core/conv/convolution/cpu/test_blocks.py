"""Products of blocks of rows: against the plain product, and the same bits on any number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sparse_core.conv.convolution.cpu.blocks import (
    RowPool,
    block_convolution,
    even_blocks,
    relu_rows_,
    rows_by_taps,
    rows_of_part,
    rows_product,
)


@pytest.fixture(autouse=True)
def _threads_are_put_back() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [True, False])
def test_products_do_not_depend_on_threads(biased: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    matrix, bias = torch.randn(96, 32).to(dtype), torch.randn(32).to(dtype)
    # Sums are float32 in both: one rounding is left.
    limit = {torch.float32: 1e-5, torch.bfloat16: 2**-8}[dtype]
    for count in (1, 7, 16, 100, 2 * rows_of_part(96, dtype) + 3):
        rows, given = torch.randn(count, 96).to(dtype), torch.randn(count, 32).to(dtype)
        torch.set_num_threads(1)
        first = rows_product(rows, matrix, out=given.clone(), bias=bias if biased else None)
        exact = rows.double() @ matrix.double() + (bias if biased else given)
        torch.testing.assert_close(first.double(), exact, rtol=limit, atol=1e-4)
        for threads in (2, 3, 5):
            torch.set_num_threads(threads)
            again = rows_product(rows, matrix, out=given.clone(), bias=bias if biased else None)
            assert torch.equal(again, first)


def test_relu_of_bfloat16_is_that_of_its_numbers() -> None:
    rows = torch.tensor([-0.0, 0.0, -1e-38, 1e-38, -3.0, 3.0, -torch.inf, torch.inf]).bfloat16()
    expected = rows.relu()
    assert torch.equal(relu_rows_(rows), expected)
    assert not torch.signbit(rows).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_of_blocks_rounds_as_its_type(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparse_core.conv.convolution.cpu.blocks.BLOCK_ELEMENTS", 1 << 14)
    torch.manual_seed(0)
    rows = torch.randint(0, 101, (1000, 9), dtype=torch.int32)
    ordered = rows_by_taps(rows.T < 100)
    rows = rows[ordered.order]
    features, weight, bias = torch.randn(101, 16), torch.randn(9, 16, 32), torch.randn(32)
    features[-1] = 0
    blocks = even_blocks(rows, 16, ordered, dtype)
    # The same bytes hold twice as many rows in half precision.
    most = max(block.stop - block.start for block in blocks)
    assert most * 9 * 16 * dtype.itemsize <= 4 << 14
    assert (most > 64) == (dtype == torch.bfloat16)
    given = [part.to(dtype) for part in (features, weight, bias, torch.randn(1000, 32))]
    pool = RowPool(dtype)
    out = pool.take(1000, 32)
    assert out.dtype == dtype
    block_convolution(
        given[0], given[1], blocks, out=out, bias=given[2], residual=given[3], relu=True, pool=pool
    )
    features, weight, bias, residual = (part.double() for part in given)
    expected = torch.einsum("mki,kio->mo", features[rows.long()], weight) + bias + residual
    # In bfloat16 bias and residual are rounded together, and the sum once more.
    limit = {torch.float32: 1e-5, torch.bfloat16: 2**-7}[dtype]
    torch.testing.assert_close(out.double(), expected.relu(), rtol=limit, atol=10 * limit)


def test_a_pool_gives_rows_of_either_type_in_one_memory() -> None:
    pool = RowPool(torch.bfloat16)
    halves = pool.take_with_zero_row(5, 7)
    assert halves.dtype == torch.bfloat16
    assert halves.shape == (6, 7)
    assert not halves[-1].any()
    place = halves.data_ptr()
    pool.give(halves)
    exact = pool.take(3, 7, torch.float32)
    assert exact.dtype == torch.float32
    assert exact.data_ptr() == place
    assert pool.take(100, 3).data_ptr() != place


def test_no_rows() -> None:
    out = torch.empty(0, 3)
    assert rows_product(torch.empty(0, 4), torch.ones(4, 3), out=out, bias=torch.ones(3)) is out
