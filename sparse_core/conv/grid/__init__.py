"""Grids of fixed capacity, for networks captured in a CUDA graph."""

from sparse_core.conv.grid.api import (
    fixed_hash,
    grid_from_bits,
    grid_from_cells,
    hash_pyramid,
    neighbour_table,
    neighbour_tables,
    pyramid,
)
from sparse_core.conv.grid.layout import (
    DenseGrid,
    FixedGrid,
    FixedHash,
    GridLevel,
    TableRequest,
    cell_coordinates,
    linear_cells,
    padded_width,
    word_count,
)

__all__ = [
    "DenseGrid",
    "FixedGrid",
    "FixedHash",
    "GridLevel",
    "TableRequest",
    "cell_coordinates",
    "fixed_hash",
    "grid_from_bits",
    "grid_from_cells",
    "hash_pyramid",
    "linear_cells",
    "neighbour_table",
    "neighbour_tables",
    "padded_width",
    "pyramid",
    "word_count",
]
