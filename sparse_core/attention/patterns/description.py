"""Measurements of a pattern."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_core.common.table import Report


@dataclass(frozen=True)
class PatternDescription(Report):
    """Measurements of one pattern; ``str()`` gives a table.

    Attributes:
        heads: number of patterns, 1 when all heads share one.
        query_length, key_length, block_size: tokens.
        device: its name.
        blocks: stored blocks of all heads.
        full_blocks: those without a mask.
        masks: different token masks.
        pairs: attended query-key pairs.
        density: share of all pairs.
        block_density: share of all blocks, which a kernel computes.
        used: share of the pairs in stored blocks that are attended.
        shortest_row, median_row, longest_row: blocks in a block row.
        empty_rows: block rows without a block.
        nbytes: bytes of the pattern.
    """

    heads: int
    query_length: int
    key_length: int
    block_size: int
    device: str
    blocks: int
    full_blocks: int
    masks: int
    pairs: int
    density: float
    block_density: float
    used: float
    shortest_row: int
    median_row: int
    longest_row: int
    empty_rows: int
    nbytes: int

    def __str__(self) -> str:
        heads = "shared by all heads" if self.heads == 1 else f"{self.heads} heads"
        return "\n".join(
            [
                f"BlockPattern {self.query_length:,} queries x {self.key_length:,} keys, {heads},"
                f" {self.device}",
                f"pairs       {self.pairs:,}, {100 * self.density:.4g} % of all",
                f"blocks      {self.blocks:,} of {self.block_size} x {self.block_size},"
                f" {100 * self.block_density:.4g} % of all",
                f"full        {self.full_blocks:,} blocks, the others share {self.masks:,} masks",
                f"used        {100 * self.used:.4g} % of the pairs in stored blocks",
                f"block rows  {self.shortest_row} | {self.median_row} | {self.longest_row} blocks"
                f" (shortest, median, longest), {self.empty_rows:,} empty",
                f"bytes       {self.nbytes:,}",
            ]
        )
