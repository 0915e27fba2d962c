"""Pruning to 2:4 and packing in plain torch: the oracle of the kernel."""

from __future__ import annotations

from itertools import combinations, product

import torch
from torch import Tensor

from sparse_core.nm.packing.two_four.common import Compressed24, PackedBoth, empty_compressed
from sparse_core.nm.packing.two_four.layout import metadata_from_nibbles, nibbles_from_index

_PAIRS = list(combinations(range(4), 2))


def prune_and_pack(weight: Tensor) -> Compressed24:
    """Keep the two largest magnitudes of each group of four; see the public function."""
    rows, columns = weight.shape
    order = weight.abs().reshape(rows, columns // 4, 4).argsort(dim=2, descending=True, stable=True)
    return compress(weight, order[..., :2].sort(dim=2).values)


def prune_and_pack_both(weight: Tensor, *, dense: bool) -> PackedBoth:
    """Keep the best pattern of each 4x4 tile in both directions; see the public function."""
    mask = transposable_mask(weight)
    return PackedBoth(
        compress(weight, _positions(mask)),
        compress(weight.T.contiguous(), _positions(mask.T)),
        weight.masked_fill(~mask, 0) if dense else None,
    )


def transposable_mask(weight: Tensor) -> Tensor:
    """Return the mask (rows, columns) with two of four in each row and column of every 4x4 tile.

    It keeps the most magnitude; ties go to the first pattern in the order of :func:`tile_patterns`.
    """
    rows, columns = weight.shape
    tiles = weight.abs().float().reshape(rows // 4, 4, columns // 4, 4).transpose(1, 2)
    pairs = torch.stack([tiles[..., a] + tiles[..., b] for a, b in _PAIRS], dim=-1)  # (.., .., row, pair)
    patterns = torch.tensor(tile_patterns(), device=weight.device)
    p = patterns.T
    # The additions have the kernel's order, so that ties break the same way.
    upper = pairs[:, :, 0, p[0]] + pairs[:, :, 1, p[1]]
    lower = pairs[:, :, 2, p[2]] + pairs[:, :, 3, p[3]]
    total = upper + lower
    # If rows 0 and 1 are complements, rows 2 and 3 are chosen first: totals that round to equal numbers could
    # differ before.
    free = p[0] + p[1] == 5
    best = lower[..., p[2] + p[3] == 5].amax(dim=2, keepdim=True)
    total = total.masked_fill(free & (lower < best), -1)
    chosen = patterns[total.argmax(dim=2)]
    masks = torch.zeros((6, 4), dtype=torch.bool, device=weight.device)
    for number, (a, b) in enumerate(_PAIRS):
        masks[number, a] = masks[number, b] = True
    return masks[chosen].transpose(1, 2).reshape(rows, columns)


def tile_patterns() -> list[tuple[int, int, int, int]]:
    """Return the 90 patterns with two of four per row and column of a 4x4 tile, as pair numbers."""
    patterns = []
    for rows in product(range(6), repeat=4):
        counts = [0] * 4
        for pair in rows:
            for column in _PAIRS[pair]:
                counts[column] += 1
        if counts == [2, 2, 2, 2]:
            patterns.append((rows[0], rows[1], rows[2], rows[3]))
    return patterns


def compress(weight: Tensor, positions: Tensor) -> Compressed24:
    """Pack ``weight`` (rows, columns) with the kept ``positions`` (rows, columns / 4, 2), rising."""
    rows, columns = weight.shape
    result = empty_compressed(rows, columns, weight)
    kept = weight.reshape(rows, columns // 4, 4).gather(2, positions.long())
    result.values.copy_(kept.reshape(rows, columns // 2))
    nibbles = nibbles_from_index(positions.to(torch.uint8))
    result.metadata.copy_(metadata_from_nibbles(nibbles, weight.dtype.itemsize))
    return result


def _positions(mask: Tensor) -> Tensor:
    rows, columns = mask.shape
    return mask.reshape(rows, columns // 4, 4).nonzero()[:, 2].reshape(rows, columns // 4, 2)
