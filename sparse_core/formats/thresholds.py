"""Where the choice of a format turns: one table of numbers, each with its measurement."""

from __future__ import annotations

from typing import NamedTuple


class Thresholds(NamedTuple):
    """Where the decision turns, for one kind of device and one operation.

    Attributes:
        dense_below: sparsity below which a dense product beats CSR.
        dense_bytes: a dense matrix larger than this is not considered.
        block_share: BSR is taken up to this many bytes for each byte of CSR; 0 is never.
        dense_blocks: stored share of the matrix (zeros of blocks included) from which dense beats BSR.
        sliced_padding: SlicedELL is taken up to this many slots an entry; 0 is never.
        sliced_mean: and up to this many entries a row.
        block_reuse, sliced_reuse, csr_reuse, dense_reuse: products that pay for converting to the format.
    """

    dense_below: float
    dense_bytes: float
    block_share: float
    dense_blocks: float
    sliced_padding: float
    sliced_mean: float
    block_reuse: int
    sliced_reuse: int
    csr_reuse: int
    dense_reuse: int


#: A number with a measurement beside it comes from that (H200, or two threads of a Xeon CPU); the others
#: follow from the bytes that a product moves. benchmarks/bench_formats.py shows what the choices lose.
THRESHOLDS: dict[tuple[str, str], Thresholds] = {
    ("cuda", "spmv"): Thresholds(
        # H200: dense 8192² takes 90 us at any sparsity, CSR reads as many bytes at 50 %.
        dense_below=0.5,
        dense_bytes=2**32,
        # H200: blocks of 64 that are full (0.5 of CSR's bytes) are 1.7x to 2.9x as fast as CSR.
        block_share=0.85,
        # H200: BSR takes 36 us at 50 %, so dense never catches up below a nearly full matrix.
        dense_blocks=0.95,
        # H200: 1.0x to 1.6x CSR on stencils, 1.08x on 10 entries in each row.
        sliced_padding=1.25,
        # Longer rows fill a warp in CSR, which then reads as well.
        sliced_mean=64.0,
        block_reuse=100,
        sliced_reuse=50,
        csr_reuse=20,
        dense_reuse=20,
    ),
    ("cuda", "spmm"): Thresholds(
        # 64 columns: a dense product reads the matrix once, CSR gathers 256 bytes an entry from the cache.
        dense_below=0.95,
        dense_bytes=2**32,
        block_share=1.5,
        # H200, bfloat16, 64x64 blocks at 8192³: 1.1x dense at 40 % sparsity, 5.3x at 90 %, 10x at 95 %.
        dense_blocks=0.62,
        # Products with many columns go through CSR.
        sliced_padding=0.0,
        sliced_mean=0.0,
        block_reuse=20,
        sliced_reuse=0,
        csr_reuse=5,
        dense_reuse=5,
    ),
    ("cpu", "spmv"): Thresholds(
        # Two threads, 2048²: dense is 1.6x as fast at 50 %, both the same at 60 %, CSR 1.3x at 70 %.
        dense_below=0.6,
        dense_bytes=2**31,
        # The libraries multiply CSR; every other format is converted to it for a product.
        block_share=0.0,
        dense_blocks=1.0,
        sliced_padding=0.0,
        sliced_mean=0.0,
        block_reuse=0,
        sliced_reuse=0,
        csr_reuse=20,
        dense_reuse=20,
    ),
    ("cpu", "spmm"): Thresholds(
        # Two threads, 2048², 64 columns: dense is 1.3x as fast at 50 %, CSR 1.1x at 60 %, 1.4x at 70 %.
        dense_below=0.57,
        dense_bytes=2**31,
        block_share=0.0,
        dense_blocks=1.0,
        sliced_padding=0.0,
        sliced_mean=0.0,
        block_reuse=0,
        sliced_reuse=0,
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
