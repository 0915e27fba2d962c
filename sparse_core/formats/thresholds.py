"""Where the choice of a format turns: one table of numbers, each with its measurement."""

from __future__ import annotations

from typing import NamedTuple


class Thresholds(NamedTuple):
    """Where the decision turns, for one kind of device and one operation.

    Attributes:
        dense_below: sparsity below which a dense product beats CSR.
        dense_bytes: a dense matrix larger than this is not considered.
        block_share: BSR is taken up to this many bytes for each byte of CSR; 0 is never.
        dense_blocks: stored share of the matrix (zeros of blocks included) from which BSR is not considered.
        sliced_padding: SlicedELL is taken up to this many slots an entry; 0 is never.
        sliced_mean: and up to this many entries a row.
        sliced_rows: and from this many rows, as each has one thread.
        block_reuse, sliced_reuse, csr_reuse, dense_reuse: products that pay for converting to the format.
    """

    dense_below: float
    dense_bytes: float
    csr_reuse: int
    dense_reuse: int
    block_share: float = 0.0
    dense_blocks: float = 1.0
    sliced_padding: float = 0.0
    sliced_mean: float = 0.0
    sliced_rows: int = 0
    block_reuse: int = 0
    sliced_reuse: int = 0


#: A number with a measurement beside it comes from that (H200, or two threads of a Xeon CPU); the others
#: follow from the bytes that a product moves. benchmarks/sparse/formats.py shows what the choices lose.
THRESHOLDS: dict[tuple[str, str], Thresholds] = {
    ("cuda", "spmv"): Thresholds(
        # H200: dense 8192² takes 92 us at any sparsity, CSR 127 at 20 % and 82 at 50 %.
        dense_below=0.45,
        dense_bytes=2**32,
        # H200: full blocks (0.5 of CSR's bytes) are 1.6x to 2.1x as fast as CSR, half full ones (1.0) 1.2x,
        # blocks 30 % full (1.67) take as long.
        block_share=1.25,
        # With nearly every block stored there are no blocks to speak of.
        dense_blocks=0.95,
        # H200: up to 1.6x CSR on stencils, 1.15x on 10 entries in each row, 1.18x on 1 to 19 of them, which
        # is 1.9 slots an entry.
        sliced_padding=2.0,
        # H200: 2x CSR at 100 entries a row, 1.1x at 200; a matrix of longer rows has fewer of them.
        sliced_mean=128.0,
        # H200: 3.7x slower than CSR at 8192 rows of 82, 1.16x slower at 10k rows of 10, 1.2x faster at 100k.
        sliced_rows=32768,
        block_reuse=100,
        sliced_reuse=60,
        csr_reuse=20,
        dense_reuse=20,
    ),
    ("cuda", "spmm"): Thresholds(
        # H200, 64 columns: dense 8192² takes 80 us at any sparsity, CSR 110 at 95 % and 54 at 98 %.
        dense_below=0.965,
        dense_bytes=2**32,
        # H200: blocks 30 % full are still 1.6x as fast as CSR.
        block_share=2.5,
        # H200, 64 columns: 64-blocks take 48 us at 90 % zero and 141 at 50 %, dense 80. (With thousands of
        # columns in half precision blocks win from 40 % zero.)
        dense_blocks=0.3,
        # No slices: products with many columns go through CSR.
        block_reuse=20,
        csr_reuse=5,
        dense_reuse=5,
    ),
    ("cpu", "spmv"): Thresholds(
        # Two threads, 2048²: dense is 1.6x as fast at 50 %, both the same at 60 %, CSR 1.3x at 70 %.
        dense_below=0.6,
        dense_bytes=2**31,
        # The libraries multiply CSR; every other format is converted to it for a product.
        csr_reuse=20,
        dense_reuse=20,
    ),
    ("cpu", "spmm"): Thresholds(
        # Two threads, 2048², 64 columns: dense is 1.3x as fast at 50 %, CSR 1.1x at 60 %, 1.4x at 70 %.
        dense_below=0.57,
        dense_bytes=2**31,
        csr_reuse=5,
        dense_reuse=5,
    ),
}
#: The longest row of a skewed matrix has so many times the mean entries.
SKEWED = 16
#: A matrix that changes is kept dense below this sparsity: coordinates would take twice the memory.
DENSE_TO_MODIFY = 0.5
#: A larger block is preferred when it stores at most this much more than the tightest.
BLOCK_SLACK = 1.1
