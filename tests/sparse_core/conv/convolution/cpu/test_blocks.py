"""Products of blocks of rows: against the plain product, and the same bits on any number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sparse_core.conv.convolution.cpu.blocks import MANY_ROWS, rows_product


@pytest.fixture(autouse=True)
def _threads_are_put_back() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("biased", [True, False])
def test_products_of_few_rows_do_not_depend_on_threads(biased: bool) -> None:
    torch.manual_seed(0)
    matrix, bias = torch.randn(96, 32), torch.randn(32)
    for count in (1, 5, 7, 15, 16, 17, 33, 49, 100, MANY_ROWS - 1, MANY_ROWS, MANY_ROWS + 3):
        rows, given = torch.randn(count, 96), torch.randn(count, 32)
        torch.set_num_threads(1)
        first = rows_product(rows, matrix, out=given.clone(), bias=bias if biased else None)
        exact = rows.double() @ matrix.double() + (bias if biased else given)
        torch.testing.assert_close(first.double(), exact, rtol=1e-5, atol=1e-4)
        for threads in (2, 3, 5):
            torch.set_num_threads(threads)
            again = rows_product(rows, matrix, out=given.clone(), bias=bias if biased else None)
            assert torch.equal(again, first)


def test_no_rows() -> None:
    out = torch.empty(0, 3)
    assert rows_product(torch.empty(0, 4), torch.ones(4, 3), out=out, bias=torch.ones(3)) is out
