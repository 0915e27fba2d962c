"""Convolution on a CPU over plans made once a level: blocks of rows, or tiles near active cells."""

from sparse_core.conv.convolution.cpu.blocks import RowBlock, RowPool, block_convolution, rows_product
from sparse_core.conv.convolution.cpu.levels import DirectLevel, direct_level, fits, strided_level
from sparse_core.conv.convolution.cpu.tiles import (
    TILE_MARGINS,
    TilePlan,
    Tiles,
    tile_convolution,
    tile_weight,
)

__all__ = [
    "TILE_MARGINS",
    "DirectLevel",
    "RowBlock",
    "RowPool",
    "TilePlan",
    "Tiles",
    "block_convolution",
    "direct_level",
    "fits",
    "rows_product",
    "strided_level",
    "tile_convolution",
    "tile_weight",
]
