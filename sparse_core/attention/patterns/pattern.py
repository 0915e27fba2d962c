"""Which queries attend to which keys, in blocks."""

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
    """The pairs of query and key that attention computes: block rows with lists of block columns.

    A block is full, or has a token mask that says which of its pairs count. The last block row and column may
    reach beyond the lengths: tokens there do not exist, masks are False there, and a block that is full is so
    as far as the lengths go. The builders keep equal masks once, store a mask that is True throughout as a
    full block, and leave out blocks without a pair.

    Args:
        row_ptr: (heads, block rows + 1) int32 offsets into ``columns``; a head continues where the one before
            it ended. One head stands for all heads of an attention.
        columns: (blocks,) int32 block columns, rising within a row.
        partial: (blocks,) int32, -1 for a full block, else the index of its mask.
        token_masks: (masks, block_size, block_size) bool, True where a query (first) may attend to a key.
        query_length: queries.
        key_length: keys.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.

    Attributes:
        row_ptr, columns, partial, token_masks, query_length, key_length, block_size: as given.
        heads: patterns, 1 when all heads share one.
        block_rows, block_columns: blocks of a head along its queries and keys.
        blocks: stored blocks of all heads.
        grid: heads, lengths and block size.
        device: where the tensors are.
        plans: what implementations prepare once for this pattern; a copy, also on a device, makes its own.

    Raises:
        TypeError: wrong dtypes.
        ValueError: sizes or devices do not fit. What needs a look at the numbers is left to :meth:`validate`.
    """

    def validate(self) -> BlockPattern:
        """Look at every number; returns the pattern.

        Raises:
            ValueError: names the head, block row and block that is wrong, or the mask.
        """
        validate(self)
        return self

    def to_token_mask(self) -> Tensor:
        """Bool (query_length, key_length), or (heads, query_length, key_length) when heads differ."""
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
        """Bool (block rows, block columns), or (heads, block rows, block columns): the stored blocks."""
        shape = (self.heads, self.block_rows, self.block_columns)
        mask = torch.zeros(shape, dtype=torch.bool, device=self.device)
        mask[self.coordinates()] = True
        return mask[0] if self.heads == 1 else mask

    def transposed(self) -> BlockPattern:
        """Queries and keys exchanged; made once."""
        return self._transposed

    @cached_property
    def _transposed(self) -> BlockPattern:
        head, row, column = self.coordinates()
        grid = BlockGrid(self.heads, self.key_length, self.query_length, self.block_size)
        return self.assemble(grid, head, column, row, self.partial, self.token_masks.transpose(1, 2))

    def shifted(self, rows: int = 0, columns: int = 0) -> BlockPattern:
        """The pattern moved by whole tokens: query i and key j become i + rows and j + columns.

        Pairs that leave the lengths are dropped; tokens that come in attend to nothing.
        """
        return combination.shifted(self, rows, columns)

    def causal(self) -> BlockPattern:
        """Without the keys after the query: key j stays when j <= i + key_length - query_length."""
        return combination.causal(self)

    def __or__(self, other: BlockPattern) -> BlockPattern:
        """Pairs that either attends; a shared pattern goes with one of any number of heads."""
        return combination.union(self, other) if isinstance(other, BlockPattern) else NotImplemented

    def __and__(self, other: BlockPattern) -> BlockPattern:
        """Pairs that both attend; a shared pattern goes with one of any number of heads."""
        return combination.intersection(self, other) if isinstance(other, BlockPattern) else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Whether heads, lengths, block size and every block are the same; waits for the device."""
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
        # Masks may be numbered differently; each pair of numbers is compared once.
        count = max(1, len(other.token_masks))
        used = torch.unique(self.partial[~full].long() * count + other.partial[~full])
        return torch.equal(self.token_masks[used // count], other.token_masks[used % count])

    __hash__ = None  # type: ignore[assignment]

    def describe(self) -> PatternDescription:
        """Measure the pattern; waits for the device. ``str()`` of the result is a table."""
        lengths = torch.sort(self.row_lengths().flatten()).values.cpu()
        _, row, column = self.coordinates()
        inside = self.grid.inside(self.device).sum(dim=(1, 2))
        held = int(inside[self.grid.edges(row, column)].sum())
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
            used=self.pairs / held if held else 0.0,
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
        """Read what :meth:`save` wrote, see :func:`sparse_core.attention.patterns.files.load_pattern`."""
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
        # Plans refer to the memory of these tensors, and the rest is quickly worked out again.
        state = {name: value for name, value in self.__dict__.items() if name not in ("_transposed", "pairs")}
        return {**state, "plans": {}}
