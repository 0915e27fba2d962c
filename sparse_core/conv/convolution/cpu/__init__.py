"""Convolution on a CPU over plans made once a level: blocks of rows, or tiles near active cells."""

from sparse_core.conv.convolution.cpu.blocks import RowBlock, RowPool, block_convolution, rows_product
from sparse_core.conv.convolution.cpu.keyed import (
    CellKeys,
    KeyedLevel,
    keyed_level,
    keyed_strided_level,
    merged,
)
from sparse_core.conv.convolution.cpu.levels import DirectLevel, direct_level, fits, strided_level
from sparse_core.conv.convolution.cpu.tiles import (
    TILE_MARGINS,
    TilePlan,
    Tiles,
    keyed_tile_plan,
    tile_convolution,
    tile_weight,
)

__all__ = [
    "TILE_MARGINS",
    "CellKeys",
    "DirectLevel",
    "KeyedLevel",
    "RowBlock",
    "RowPool",
    "TilePlan",
    "Tiles",
    "block_convolution",
    "direct_level",
    "fits",
    "keyed_level",
    "keyed_strided_level",
    "keyed_tile_plan",
    "merged",
    "rows_product",
    "strided_level",
    "tile_convolution",
    "tile_weight",
]
