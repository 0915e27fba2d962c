"""Block grid of a pattern, and the canonical form of its masks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: Mask index of a full block.
FULL = -1


class BlockGrid(NamedTuple):
    """Grid of blocks over queries and keys.

    Attributes:
        heads: number of patterns, 1 for one that all heads share.
        query_length, key_length: tokens.
        block_size: tokens along a side of a block.
    """

    heads: int
    query_length: int
    key_length: int
    block_size: int

    @property
    def rows(self) -> int:
        """Block rows; the last one may reach beyond the queries."""
        return -(-self.query_length // self.block_size)

    @property
    def columns(self) -> int:
        """Block columns; the last one may reach beyond the keys."""
        return -(-self.key_length // self.block_size)

    def check(self) -> None:
        """Raise ``ValueError`` unless lengths, heads and block size are valid."""
        size = self.block_size
        if not (isinstance(size, int) and 16 <= size <= 128 and size % 16 == 0):
            raise ValueError(f"block_size must be a multiple of 16 from 16 to 128, got {size!r}")
        for name in ("query_length", "key_length", "heads"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")

    def edges(self, row: Tensor, column: Tensor) -> Tensor:
        """Return the edge that cuts each block: 0 none, 1 the last key, 2 the last query, 3 both."""
        edge = torch.zeros_like(row)
        if self.query_length % self.block_size:
            edge = edge + 2 * (row == self.rows - 1)
        if self.key_length % self.block_size:
            edge = edge + (column == self.columns - 1)
        return edge

    def inside(self, device: torch.device | str) -> Tensor:
        """Return (4, block_size, block_size) bool: the positions that exist in a block, by its edge."""
        place = torch.arange(self.block_size, device=device)
        everywhere = torch.ones_like(place, dtype=torch.bool)
        queries = place < (self.query_length - 1) % self.block_size + 1
        keys = place < (self.key_length - 1) % self.block_size + 1
        rows = torch.stack([everywhere, everywhere, queries, queries])
        columns = torch.stack([everywhere, keys, everywhere, keys])
        return rows[:, :, None] & columns[:, None, :]


def tidy_masks(
    grid: BlockGrid, row: Tensor, column: Tensor, mask: Tensor, masks: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the new mask index of each block, the masks, and True for each block with a pair."""
    kept = torch.ones_like(mask, dtype=torch.bool)
    places = (mask != FULL).nonzero()[:, 0]
    if len(places) == 0:
        return mask, masks[:0].contiguous(), kept
    # A shared mask becomes a different one in a block that an edge cuts.
    pairs, which = torch.unique(
        mask[places] * 4 + grid.edges(row[places], column[places]), return_inverse=True
    )
    inside = grid.inside(masks.device)
    cut = masks[pairs // 4] & inside[pairs % 4]
    counts = cut.sum(dim=(1, 2))
    whole = counts == inside.sum(dim=(1, 2))[pairs % 4]
    proper = (counts > 0) & ~whole
    index = torch.full_like(counts, FULL)
    if bool(proper.any()):
        equal = equal_masks(cut[proper])
        index[proper] = equal
    partial = mask.clone()
    partial[places] = index[which]
    kept[places] = counts[which] > 0
    # Number the masks in the order of their first use.
    used = partial[places]
    used = used[used >= 0]
    order = first_uses(used)
    number = torch.zeros(int(index.max()) + 2, dtype=torch.long, device=mask.device)
    number[order] = torch.arange(len(order), device=mask.device)
    number[-1] = FULL
    source = torch.zeros(len(order), dtype=torch.long, device=mask.device)
    sources = (index >= 0).nonzero()[:, 0]
    # Any of several equal masks will do, so the order of the writes does not matter.
    source[number[index[sources]]] = sources
    return number[partial], cut[source].contiguous(), kept


def first_uses(index: Tensor) -> Tensor:
    """Return the distinct numbers of ``index`` in the order in which they first occur."""
    ranked, order = torch.sort(index, stable=True)
    first = torch.ones_like(ranked, dtype=torch.bool)
    first[1:] = ranked[1:] != ranked[:-1]
    return index[torch.sort(order[first]).values]


def equal_masks(masks: Tensor, fingerprint: Tensor | None = None) -> Tensor:
    """Number masks: (masks,) int64, equal for equal masks, from 0 without gaps.

    Args:
        masks: (masks, block_size, block_size) bool.
        fingerprint: (masks,) int64, equal for equal masks; hashes by default.
    """
    # Group by fingerprint, then compare the masks themselves.
    count = len(masks)
    numbers: Tensor
    _, numbers = torch.unique(_hashes(masks) if fingerprint is None else fingerprint, return_inverse=True)
    example = torch.zeros(count, dtype=torch.long, device=masks.device)
    example.scatter_reduce_(0, numbers, torch.arange(count, device=masks.device), "amin", include_self=False)
    if bool((masks == masks[example[numbers]]).all()):
        return numbers
    _, numbers = torch.unique(masks.reshape(count, -1), dim=0, return_inverse=True)
    return numbers


def _hashes(masks: Tensor) -> Tensor:
    """Return one int64 per mask, the same on every device."""
    words = masks.reshape(len(masks), -1).contiguous().view(torch.int64)
    generator = torch.Generator("cpu").manual_seed(20260301)
    factors = torch.randint(-(2**62), 2**62, (2, words.shape[1]), generator=generator, device="cpu")
    factors = factors.to(masks.device) | 1
    mixed = words * factors[0]
    mixed = (mixed ^ (mixed >> 29)) * factors[1]
    return (mixed ^ (mixed >> 32)).sum(dim=1)
