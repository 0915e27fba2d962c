"""Which queries attend to which keys, in blocks."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from sparse_core.attention.patterns.description import PatternDescription
from sparse_core.attention.patterns.grid import FULL, BlockGrid, tidy_masks


class _Operations:
    """Functions that methods of :class:`BlockPattern` call.

    Their modules import this one, and register them here when they are imported.
    """

    validate: Callable[[BlockPattern], None]
    shifted: Callable[[BlockPattern, int, int], BlockPattern]
    causal: Callable[[BlockPattern], BlockPattern]
    union: Callable[[BlockPattern, BlockPattern], BlockPattern]
    intersection: Callable[[BlockPattern, BlockPattern], BlockPattern]
    save: Callable[[BlockPattern, str | os.PathLike[str]], Path]
    load: Callable[..., BlockPattern]
    picture: Callable[..., Path]


operations = _Operations()


class BlockPattern:
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
    ) -> BlockPattern:
        """A pattern for the lengths and the block size of a grid; its heads are those of ``row_ptr``."""
        _, query_length, key_length, block_size = grid
        sizes = {"query_length": query_length, "key_length": key_length, "block_size": block_size}
        return cls(row_ptr, columns, partial, token_masks, **sizes)

    @property
    def nbytes(self) -> int:
        """Bytes of the four tensors."""
        return sum(t.nbytes for t in (self.row_ptr, self.columns, self.partial, self.token_masks))

    @cached_property
    def pairs(self) -> int:
        """Pairs of query and key that are attended, over all heads."""
        return int(self.block_pairs().sum())

    @property
    def density(self) -> float:
        """Share of the pairs of query and key that are attended; exact."""
        return self.pairs / (self.heads * self.query_length * self.key_length)

    @property
    def block_density(self) -> float:
        """Share of the blocks that are stored: the work of a kernel, compared with dense."""
        return self.blocks / (self.heads * self.block_rows * self.block_columns)

    def row_lengths(self) -> Tensor:
        """(heads, block rows) int32, blocks of each row."""
        return self.row_ptr[:, 1:] - self.row_ptr[:, :-1]

    def coordinates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Head, block row and block column of each block, (blocks,) int64."""
        rows = torch.arange(self.heads * self.block_rows, device=self.device)
        row = torch.repeat_interleave(rows, self.row_lengths().flatten().long(), output_size=self.blocks)
        return row // self.block_rows, row % self.block_rows, self.columns.long()

    def block_pairs(self) -> Tensor:
        """(blocks,) int64, pairs that each block attends."""
        _, row, column = self.coordinates()
        queries = (self.query_length - row * self.block_size).clamp(max=self.block_size)
        keys = (self.key_length - column * self.block_size).clamp(max=self.block_size)
        # One more entry than there are masks, so that -1 finds something where there are none.
        counts = torch.nn.functional.pad(self.token_masks.sum(dim=(1, 2)), (0, 1))
        return torch.where(self.partial == FULL, queries * keys, counts[self.partial.long()])

    def validate(self) -> BlockPattern:
        """Look at every number; returns the pattern.

        Raises:
            ValueError: names the head, block row and block that is wrong, or the mask.
        """
        operations.validate(self)
        return self

    def to(self, device: torch.device | str) -> BlockPattern:
        """The pattern on another device; itself where it is there already."""
        moved = self.row_ptr.to(device)
        if moved is self.row_ptr:
            return self
        rest = (tensor.to(device) for tensor in (self.columns, self.partial, self.token_masks))
        return BlockPattern.on(self.grid, moved, *rest)

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
        return assemble(grid, head, column, row, self.partial, self.token_masks.transpose(1, 2))

    def expand_heads(self, heads: int) -> BlockPattern:
        """The pattern that all heads share, written out for each; itself if it has that many."""
        if heads == self.heads:
            return self
        if self.heads != 1 or heads < 1:
            raise ValueError(f"a pattern with {self.heads} heads cannot be expanded to {heads}: only 1 can")
        starts = torch.arange(heads, dtype=torch.int32, device=self.device) * self.blocks
        columns, partial = self.columns.repeat(heads), self.partial.repeat(heads)
        return BlockPattern.on(self.grid, self.row_ptr + starts[:, None], columns, partial, self.token_masks)

    def shifted(self, rows: int = 0, columns: int = 0) -> BlockPattern:
        """The pattern moved by whole tokens: query i and key j become i + rows and j + columns.

        Pairs that leave the lengths are dropped; tokens that come in attend to nothing.
        """
        return operations.shifted(self, rows, columns)

    def causal(self) -> BlockPattern:
        """Without the keys after the query: key j stays when j <= i + key_length - query_length."""
        return operations.causal(self)

    def __or__(self, other: BlockPattern) -> BlockPattern:
        """Pairs that either attends; a shared pattern goes with one of any number of heads."""
        return operations.union(self, other) if isinstance(other, BlockPattern) else NotImplemented

    def __and__(self, other: BlockPattern) -> BlockPattern:
        """Pairs that both attend; a shared pattern goes with one of any number of heads."""
        return operations.intersection(self, other) if isinstance(other, BlockPattern) else NotImplemented

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
        return operations.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> BlockPattern:
        """Read what :meth:`save` wrote, see :func:`sparse_core.attention.patterns.files.load_pattern`."""
        return operations.load(path, device=device)

    def picture(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Draw the pattern as a PNG, see :func:`sparse_core.attention.patterns.picture.pattern_picture`."""
        return operations.picture(self, path, title=title)

    def __repr__(self) -> str:
        return (
            f"BlockPattern({self.query_length} queries, {self.key_length} keys, block_size={self.block_size},"
            f" heads={self.heads}, blocks={self.blocks}, device={str(self.device)!r})"
        )

    def __getstate__(self) -> dict[str, object]:
        # Plans refer to the memory of these tensors, and the rest is quickly worked out again.
        state = {name: value for name, value in self.__dict__.items() if name not in ("_transposed", "pairs")}
        return {**state, "plans": {}}


def assemble(
    grid: BlockGrid, head: Tensor, row: Tensor, column: Tensor, mask: Tensor, masks: Tensor
) -> BlockPattern:
    """The pattern of a list of blocks in its canonical form.

    Blocks are sorted, masks cut at the lengths; empty ones go, whole ones are full, equal ones kept once.

    Args:
        grid: lengths and block size.
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
    return BlockPattern.on(grid, row_ptr, column.int(), partial[kept].int(), token_masks)
