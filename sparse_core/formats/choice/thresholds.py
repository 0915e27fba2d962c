"""Measured thresholds of the choice of a format."""

from __future__ import annotations

from typing import NamedTuple


class Thresholds(NamedTuple):
    """Thresholds for one device type and one operation.

    Attributes:
        dense_below: sparsity below which a dense product beats CSR.
        dense_bytes: largest dense matrix to consider.
        block_share: most bytes of BSR per byte of CSR; 0 is never.
        dense_blocks: stored share of the matrix (zeros of blocks included) from which dense beats BSR.
        sliced_padding: most slots per entry of SlicedELL; 0 is never.
        sliced_mean: most entries per row of SlicedELL.
        sliced_rows: fewest rows of SlicedELL, because each has one thread.
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


#: Comments name the measurement behind a number (H200, or two threads of a Xeon CPU). The other numbers
#: follow
#: from the bytes that a product moves. benchmarks/sparse/formats.py measures the loss of these choices.
THRESHOLDS: dict[tuple[str, str], Thresholds] = {
    ("cuda", "spmv"): Thresholds(
        # H200: dense 8192² takes 92 us at any sparsity, CSR 127 at 20 % and 82 at 50 %.
        dense_below=0.45,
        dense_bytes=2**32,
        # H200, relative to CSR: full blocks (0.5 of its bytes) 1.6x to 2.1x as fast, half full (1.0) 1.2x,
        # 30 % full (1.67) equal.
        block_share=1.25,
        # With nearly every block stored the matrix is dense.
        dense_blocks=0.95,
        # H200, relative to CSR: up to 1.6x on stencils, 1.15x with 10 entries per row, 1.18x with 1 to 19
        # (1.9 slots per entry).
        sliced_padding=2.0,
        # H200, relative to CSR: 2x at 100 entries per row, 1.1x at 200.
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
        # H200, 64 columns: 64-blocks take 48 us at 90 % zero and 141 at 50 %, dense 80. With thousands of
        # half-precision columns, blocks win from 40 % zero.
        dense_blocks=0.3,
        # No slices: products with many columns convert them to CSR.
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
#: A matrix is skewed if its longest row has more than this many times the mean entries.
SKEWED = 16
#: A matrix that changes is kept dense below this sparsity: coordinates would take twice the memory.
DENSE_TO_MODIFY = 0.5
#: The largest block size that takes at most this many times the bytes of the best is preferred.
BLOCK_SLACK = 1.1
