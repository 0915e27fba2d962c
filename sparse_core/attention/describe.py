"""Measure a pattern."""

from __future__ import annotations

import torch

from sparse_core.attention.patterns.description import PatternDescription
from sparse_core.attention.patterns.grid import FULL
from sparse_core.attention.patterns.pattern import BlockPattern, operations


def describe(pattern: BlockPattern) -> PatternDescription:
    """Measure a pattern; waits for the device."""
    lengths = torch.sort(pattern.row_lengths().flatten()).values.cpu()
    _, row, column = pattern.coordinates()
    inside = pattern.grid.inside(pattern.device).sum(dim=(1, 2))
    held = int(inside[pattern.grid.edges(row, column)].sum())
    return PatternDescription(
        heads=pattern.heads,
        query_length=pattern.query_length,
        key_length=pattern.key_length,
        block_size=pattern.block_size,
        device=str(pattern.device),
        blocks=pattern.blocks,
        full_blocks=int((pattern.partial == FULL).sum()),
        masks=len(pattern.token_masks),
        pairs=pattern.pairs,
        density=pattern.density,
        block_density=pattern.block_density,
        used=pattern.pairs / held if held else 0.0,
        shortest_row=int(lengths[0]),
        median_row=int(lengths[(len(lengths) - 1) // 2]),
        longest_row=int(lengths[-1]),
        empty_rows=int((lengths == 0).sum()),
        nbytes=pattern.nbytes,
    )


operations.describe = describe
