"""Tile sizes of the head's kernels; they change results by rounding only."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Tile(NamedTuple):
    """Tiles of a matrix product.

    Attributes:
        rows: rows of the map (or boxes) per program.
        columns: output columns per program; used by ``up`` only, others compute all.
        depth: inputs per step of the sum; 32 if it does not divide the padded inputs.
        warps, stages: see ``triton.Config``.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


#: Tiles by kernel and bytes per feature.
TILES = {
    ("up", 2): Tile(64, 32, 64, 4, 2),
    ("up", 4): Tile(32, 32, 32, 4, 2),
    ("heat", 2): Tile(64, 0, 32, 4, 3),
    ("heat", 4): Tile(16, 0, 32, 4, 2),
    ("boxes", 2): Tile(16, 0, 128, 8, 4),
    ("boxes", 4): Tile(16, 0, 32, 8, 3),
}


def depth_for(tile: Tile, *padded: int) -> int:
    """Return the tile's depth, or 32 if it does not divide the padded inputs."""
    return tile.depth if all(inputs % tile.depth == 0 for inputs in padded) else 32


def precision_of(dtype: torch.dtype) -> str:
    """Return the precision of ``tl.dot`` for features of this dtype: full for float32."""
    return "ieee" if dtype == torch.float32 else "tf32"
