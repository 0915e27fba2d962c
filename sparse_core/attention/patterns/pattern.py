"""Block pattern: which queries attend to which keys."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from sparse_core.attention.patterns import combination
from sparse_core.attention.patterns.blocks import PatternBlocks
from sparse_core.attention.patterns.description import PatternDescription
from sparse_core.attention.patterns.files import load_pattern, save_pattern
from sparse_core.attention.patterns.grid import FULL, BlockGrid
from sparse_core.attention.patterns.picture import pattern_picture
from sparse_core.attention.patterns.validation import validate


class BlockPattern(PatternBlocks):
    """Query-key pairs that attention computes: block rows with lists of block columns.

    A block is full, or has a token mask of its pairs. The last block row and column may extend beyond the
    lengths; masks are False there. Builders store equal masks once, store an all-True mask as a full block,
    and drop blocks without a pair.

    Args:
        row_ptr: (heads, block rows + 1) int32 offsets into ``columns``; each head starts where the previous
            one ends. With one head, all heads of an attention share it.
        columns: (blocks,) int32 block columns, ascending within a row.
        partial: (blocks,) int32, -1 for a full block, else the index of its mask.
        token_masks: (masks, block_size, block_size) bool, True where a query (first) may attend to a key.
        query_length: queries.
        key_length: keys.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.

    Attributes:
        heads: number of patterns, 1 when all heads share one.
        block_rows, block_columns: blocks of a head along its queries and keys.
        blocks: stored blocks of all heads.
        grid: heads, lengths and block size.
        device: of the tensors.
        plans: cached preparations of the implementations; copies start empty.

    Raises:
        TypeError: wrong dtypes.
        ValueError: sizes or devices do not match. :meth:`validate` checks the numbers.
    """

    def validate(self) -> BlockPattern:
        """Check every number and return the pattern.

        Raises:
            ValueError: names the wrong head, block row and block, or the mask.
        """
        validate(self)
        return self

    def to_token_mask(self) -> Tensor:
        """Return bool (query_length, key_length), or (heads, query_length, key_length) when heads differ."""
        size = self.block_size
        shape = (self.heads, self.block_rows, size, self.block_columns, size)
        mask = torch.zeros(shape, dtype=torch.bool, device=self.device)
        head, row, column = self.coordinates()
        blocks = mask.permute(0, 1, 3, 2, 4)
        full = self.partial == FULL
        blocks[head[full], row[full], column[full]] = True
        blocks[head[~full], row[~full], column[~full]] = self.token_masks[self.partial[~full].long()]
        tokens = mask.reshape(self.heads, self.block_rows * size, self.block_columns * size)
        tokens = tokens[:, : self.query_length, : self.key_length].contiguous()
        return tokens[0] if self.heads == 1 else tokens

    def to_block_mask(self) -> Tensor:
        """Return the stored blocks: bool (block rows, block columns), with heads first when these differ."""
        shape = (self.heads, self.block_rows, self.block_columns)
        mask = torch.zeros(shape, dtype=torch.bool, device=self.device)
        mask[self.coordinates()] = True
        return mask[0] if self.heads == 1 else mask

    def transposed(self) -> BlockPattern:
        """Exchange queries and keys; the result is cached."""
        return self._transposed

    @cached_property
    def _transposed(self) -> BlockPattern:
        head, row, column = self.coordinates()
        grid = BlockGrid(self.heads, self.key_length, self.query_length, self.block_size)
        return self.assemble(grid, head, column, row, self.partial, self.token_masks.transpose(1, 2))

    def shifted(self, rows: int = 0, columns: int = 0) -> BlockPattern:
        """Move the pattern by whole tokens: query i and key j become i + rows and j + columns.

        Pairs outside the lengths are dropped.
        """
        return combination.shifted(self, rows, columns)

    def causal(self) -> BlockPattern:
        """Drop keys after the query: key j stays if j <= i + key_length - query_length."""
        return combination.causal(self)

    def __or__(self, other: BlockPattern) -> BlockPattern:
        """Return the pairs that either attends; a pattern with one head combines with any number."""
        return combination.union(self, other) if isinstance(other, BlockPattern) else NotImplemented

    def __and__(self, other: BlockPattern) -> BlockPattern:
        """Return the pairs that both attend; a pattern with one head combines with any number."""
        return combination.intersection(self, other) if isinstance(other, BlockPattern) else NotImplemented

    def __eq__(self, other: object) -> bool:
        """True if heads, lengths, block size and every block are equal; waits for the device."""
        if not isinstance(other, BlockPattern):
            return NotImplemented
        if self is other:
            return True
        if self.grid != other.grid or self.blocks != other.blocks or self.device != other.device:
            return False
        if not (torch.equal(self.row_ptr, other.row_ptr) and torch.equal(self.columns, other.columns)):
            return False
        full = self.partial == FULL
        if not torch.equal(full, other.partial == FULL):
            return False
        # Masks may be numbered differently; compare each pair of numbers once.
        count = max(1, len(other.token_masks))
        used = torch.unique(self.partial[~full].long() * count + other.partial[~full])
        return torch.equal(self.token_masks[used // count], other.token_masks[used % count])

    __hash__ = None  # type: ignore[assignment]

    def describe(self) -> PatternDescription:
        """Measure the pattern; waits for the device. ``str()`` of the result is a table."""
        lengths = torch.sort(self.row_lengths().flatten()).values.cpu()
        _, row, column = self.coordinates()
        inside = self.grid.inside(self.device).sum(dim=(1, 2))
        stored_pairs = int(inside[self.grid.edges(row, column)].sum())
        return PatternDescription(
            heads=self.heads,
            query_length=self.query_length,
            key_length=self.key_length,
            block_size=self.block_size,
            device=str(self.device),
            blocks=self.blocks,
            full_blocks=int((self.partial == FULL).sum()),
            masks=len(self.token_masks),
            pairs=self.pairs,
            density=self.density,
            block_density=self.block_density,
            used=self.pairs / stored_pairs if stored_pairs else 0.0,
            shortest_row=int(lengths[0]),
            median_row=int(lengths[(len(lengths) - 1) // 2]),
            longest_row=int(lengths[-1]),
            empty_rows=int((lengths == 0).sum()),
            nbytes=self.nbytes,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the pattern as safetensors, see :func:`sparse_core.attention.patterns.files.save_pattern`."""
        return save_pattern(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> BlockPattern:
        """Read a file of :meth:`save`, see :func:`sparse_core.attention.patterns.files.load_pattern`."""
        return load_pattern(cls, path, device=device)

    def picture(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Draw the pattern as a PNG, see :func:`sparse_core.attention.patterns.picture.pattern_picture`."""
        return pattern_picture(self, path, title=title)

    def __repr__(self) -> str:
        return (
            f"BlockPattern({self.query_length} queries, {self.key_length} keys, block_size={self.block_size},"
            f" heads={self.heads}, blocks={self.blocks}, device={str(self.device)!r})"
        )

    def __getstate__(self) -> dict[str, object]:
        # Plans hold addresses of these tensors; the other caches are cheap to compute again.
        state = {name: value for name, value in self.__dict__.items() if name not in ("_transposed", "pairs")}
        return {**state, "plans": {}}
