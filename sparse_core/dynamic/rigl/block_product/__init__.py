"""Products of a weight with the same number of blocks in every block row."""

from sparse_core.dynamic.rigl.block_product.api import block_convolution, block_linear
from sparse_core.dynamic.rigl.block_product.plan import BlockPlan, Taps, plan_blocks

__all__ = ["BlockPlan", "Taps", "block_convolution", "block_linear", "plan_blocks"]
