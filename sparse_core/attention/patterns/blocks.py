"""Base class of block patterns: their lists, masks and counts."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.attention.patterns.grid import FULL, BlockGrid, tidy_masks


class PatternBlocks:
    """Base class of :class:`sparse_core.attention.BlockPattern`, which documents arguments and attributes.

    Functions that combine, check, store and draw patterns take this class, so that the methods of
    :class:`~sparse_core.attention.BlockPattern` can call them.
    """

    def __init__(
        self,
        row_ptr: Tensor,
        columns: Tensor,
        partial: Tensor,
        token_masks: Tensor,
        *,
        query_length: int,
        key_length: int,
        block_size: int,
    ) -> None:
        for name, tensor, dtype in (
            ("row_ptr", row_ptr, torch.int32),
            ("columns", columns, torch.int32),
            ("partial", partial, torch.int32),
            ("token_masks", token_masks, torch.bool),
        ):
            if tensor.dtype != dtype:
                raise TypeError(f"{name} must be {str(dtype).removeprefix('torch.')}, got {tensor.dtype}")
            if tensor.device != row_ptr.device:
                raise ValueError(f"{name} is on {tensor.device} but row_ptr is on {row_ptr.device}")
        heads = row_ptr.shape[0] if row_ptr.ndim == 2 else 1
        grid = BlockGrid(heads, query_length, key_length, block_size)
        grid.check()
        if tuple(row_ptr.shape) != (heads, grid.rows + 1):
            raise ValueError(
                f"row_ptr must have shape (heads, {grid.rows + 1}) for {query_length} queries in blocks of"
                f" {block_size}, got {tuple(row_ptr.shape)}"
            )
        if columns.ndim != 1:
            raise ValueError(f"columns must be one-dimensional, got shape {tuple(columns.shape)}")
        if partial.shape != columns.shape:
            raise ValueError(
                f"partial must have the shape of columns {tuple(columns.shape)}, got {tuple(partial.shape)}"
            )
        if token_masks.ndim != 3 or tuple(token_masks.shape[1:]) != (block_size, block_size):
            raise ValueError(
                f"token_masks must have shape (masks, {block_size}, {block_size}),"
                f" got {tuple(token_masks.shape)}"
            )
        self.row_ptr = row_ptr
        self.columns = columns
        self.partial = partial
        self.token_masks = token_masks
        self.query_length = query_length
        self.key_length = key_length
        self.block_size = block_size
        self.grid = grid
        self.heads = heads
        self.block_rows, self.block_columns = grid.rows, grid.columns
        self.blocks: int = columns.shape[0]
        self.device = row_ptr.device
        self.plans: dict[object, object] = {}

    @classmethod
    def on(
        cls, grid: BlockGrid, row_ptr: Tensor, columns: Tensor, partial: Tensor, token_masks: Tensor
    ) -> Self:
        """Make a pattern with the lengths and block size of a grid; its heads are those of ``row_ptr``."""
        _, query_length, key_length, block_size = grid
        sizes = {"query_length": query_length, "key_length": key_length, "block_size": block_size}
        return cls(row_ptr, columns, partial, token_masks, **sizes)

    @classmethod
    def assemble(
        cls, grid: BlockGrid, head: Tensor, row: Tensor, column: Tensor, mask: Tensor, masks: Tensor
    ) -> Self:
        """Make a pattern in canonical form from a list of blocks.

        This sorts blocks, cuts masks at the lengths, drops empty blocks, turns whole masks into full blocks
        and stores equal masks once.

        Args:
            head, row, column: (blocks,) integer, no block twice; any order.
            mask: (blocks,) integer, -1 for a full block, else an index into ``masks``.
            masks: (masks, block_size, block_size) bool; True where a query may attend to a key.
        """
        key = (head.long() * grid.rows + row) * grid.columns + column
        if len(key) > 1 and not bool((key[1:] > key[:-1]).all()):
            key, order = torch.sort(key)
            mask = mask[order]
        mask = mask.long()
        row, column = key // grid.columns % grid.rows, key % grid.columns
        partial, token_masks, kept = tidy_masks(grid, row, column, mask, masks)
        key, column = key[kept], column[kept]
        counts = torch.bincount(key // grid.columns, minlength=grid.heads * grid.rows)
        ends = counts.cumsum(0).reshape(grid.heads, grid.rows)
        starts = torch.cat([ends.new_zeros(1), ends[:-1, -1]])
        row_ptr = torch.cat([starts[:, None], ends], dim=1).int()
        return cls.on(grid, row_ptr, column.int(), partial[kept].int(), token_masks)

    @property
    def nbytes(self) -> int:
        """Size of the four tensors in bytes."""
        return sum(t.nbytes for t in (self.row_ptr, self.columns, self.partial, self.token_masks))

    @cached_property
    def pairs(self) -> int:
        """Number of attended query-key pairs, over all heads."""
        return int(self.block_pairs().sum())

    @property
    def density(self) -> float:
        """Share of the query-key pairs that are attended; exact."""
        return self.pairs / (self.heads * self.query_length * self.key_length)

    @property
    def block_density(self) -> float:
        """Share of the blocks that are stored: the work relative to dense attention."""
        return self.blocks / (self.heads * self.block_rows * self.block_columns)

    def row_lengths(self) -> Tensor:
        """Return the blocks of each row, (heads, block rows) int32."""
        return self.row_ptr[:, 1:] - self.row_ptr[:, :-1]

    def coordinates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return head, block row and block column of each block, (blocks,) int64."""
        rows = torch.arange(self.heads * self.block_rows, device=self.device)
        row = torch.repeat_interleave(rows, self.row_lengths().flatten().long(), output_size=self.blocks)
        return row // self.block_rows, row % self.block_rows, self.columns.long()

    def block_pairs(self) -> Tensor:
        """Return the attended pairs of each block, (blocks,) int64."""
        _, row, column = self.coordinates()
        queries = (self.query_length - row * self.block_size).clamp(max=self.block_size)
        keys = (self.key_length - column * self.block_size).clamp(max=self.block_size)
        # An extra entry, so that index -1 is valid without masks.
        counts = torch.nn.functional.pad(self.token_masks.sum(dim=(1, 2)), (0, 1))
        return torch.where(self.partial == FULL, queries * keys, counts[self.partial.long()])

    def to(self, device: torch.device | str) -> Self:
        """Return the pattern on another device; itself if it is there already."""
        moved = self.row_ptr.to(device)
        if moved is self.row_ptr:
            return self
        rest = (tensor.to(device) for tensor in (self.columns, self.partial, self.token_masks))
        return self.on(self.grid, moved, *rest)

    def expand_heads(self, heads: int) -> Self:
        """Copy a shared pattern for each head; itself if it has that many."""
        if heads == self.heads:
            return self
        if self.heads != 1 or heads < 1:
            raise ValueError(
                f"expand_heads({heads}) needs a pattern with 1 head and heads >= 1, this has {self.heads}"
            )
        starts = torch.arange(heads, dtype=torch.int32, device=self.device) * self.blocks
        columns, partial = self.columns.repeat(heads), self.partial.repeat(heads)
        return self.on(self.grid, self.row_ptr + starts[:, None], columns, partial, self.token_masks)
