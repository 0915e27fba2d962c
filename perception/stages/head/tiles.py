"""How the head's kernels cut their products; numbers to tune, no result depends on them but by rounding."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Tile(NamedTuple):
    """How a product is cut.

    Attributes:
        rows: of the map (or boxes) in a program.
        columns: of the output in a program; only the step up uses it, the others take all.
        depth: inputs in a step of the sum; 32 where the padded inputs are not a multiple of it.
        warps, stages: see ``triton.Config``.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


#: By kernel and bytes of a feature.
TILES = {
    ("up", 2): Tile(64, 32, 64, 4, 2),
    ("up", 4): Tile(32, 32, 32, 4, 2),
    ("heat", 2): Tile(64, 0, 32, 4, 3),
    ("heat", 4): Tile(16, 0, 32, 4, 2),
    ("boxes", 2): Tile(16, 0, 128, 8, 4),
    ("boxes", 4): Tile(16, 0, 32, 8, 3),
}


def depth_for(tile: Tile, *padded: int) -> int:
    """The tile's depth, or 32 where it does not divide the padded inputs."""
    return tile.depth if all(inputs % tile.depth == 0 for inputs in padded) else 32


def precision_of(dtype: torch.dtype) -> str:
    """How ``tl.dot`` multiplies features of this type: float32 in full precision."""
    return "ieee" if dtype == torch.float32 else "tf32"
