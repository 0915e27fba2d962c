"""Order of the positions in cuSPARSELt's compressed matrices.

A compressed matrix (rows, columns) is the kept values, row-major, followed by a nibble ``i0 | i1 << 2`` per
group of four. Nibbles are stored in tiles of 64 rows by 64 bytes of dense columns (32 of 16 bits, 64 of 8
bits), row tile by row tile, and within a tile in the order in which Hopper's sparse matrix instruction reads
them.

The order was found by compressing matrices whose groups differ in one bit of their number (version 0.8 on
compute capability 9.0). ``layout_matches`` of :mod:`sparse_core.nm.linear.cusparselt.compress` compares it
with the library before it is used.
"""

from __future__ import annotations

import torch
from torch import Tensor


def fits(rows: int, columns: int, itemsize: int) -> bool:
    """Return True if the matrix consists of whole metadata tiles."""
    return rows % 64 == 0 and columns % (64 // itemsize) == 0


def metadata_from_nibbles(nibbles: Tensor, itemsize: int) -> Tensor:
    """Return nibbles (rows, groups) uint8, ``i0 | i1 << 2``, in the library's order.

    ``itemsize`` is the bytes of a value, 1 or 2.
    """
    rows, groups = nibbles.shape
    if not fits(rows, 4 * groups, itemsize):
        raise ValueError(f"a {rows}x{4 * groups} matrix of {itemsize}-byte values is not made of whole tiles")
    if itemsize == 2:
        # Bits of the row: 5 4 | 3 | 2 1 0; of the group: tile | 2 | 1 | 0.
        tiles = nibbles.reshape(rows // 64, 4, 2, 8, groups // 8, 2, 2, 2)
        ordered = tiles.permute(0, 4, 1, 3, 6, 7, 5, 2)
    else:
        # Bits of the row: 5 4 | 3 | 2 1 0; of the group: tile | 3 | 2 1 | 0.
        tiles = nibbles.reshape(rows // 64, 4, 2, 8, groups // 16, 2, 4, 2)
        ordered = tiles.permute(0, 4, 1, 3, 6, 5, 2, 7)
    pairs = ordered.reshape(-1, 2)
    return pairs[:, 0] | (pairs[:, 1] << 4)


def nibbles_from_index(index: Tensor) -> Tensor:
    """Return (rows, groups) uint8 for positions (rows, groups, 2)."""
    return (index[..., 0] | (index[..., 1] << 2)).to(torch.uint8)
