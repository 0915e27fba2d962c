"""Lists that the GPU kernels read, made once per pattern."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.patterns.grid import FULL
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.errors import ImplementationError

#: Concurrent programs per multiprocessor; decides into how many parts a long row is cut.
_PROGRAMS_PER_PROCESSOR = 2
#: Shortest part of a cut row, in tokens.
_SHORTEST_PART = 1024
#: A part is long if it takes this share of the time of all. Long parts that start last would delay the end.
_LONG_SHARE = 0.125
#: Work lists (by batch size) that a pattern caches.
_MOST_LISTS = 16
#: Launches (by operand shapes) that a pattern caches.
_MOST_LAUNCHES = 64
#: Key in ``plans`` of known row lengths, (heads * block rows,) on the CPU.
ROW_LENGTHS = "row_lengths"
_owners: weakref.WeakValueDictionary[int, BlockPattern] = weakref.WeakValueDictionary()


class WorkList(NamedTuple):
    """Order in which programs process block rows: long ones first and cut into parts, the rest head by head.

    So programs that run at the same time read keys and values of few heads, which fit into the cache.

    Attributes:
        parts: (parts, 4) int32: the unit ``(batch_index * heads + head) * block rows + block row``; first and
            end block within the unit; slot of the result, -1 for rows that are not cut.
        joins: (cut rows, 3) int32: unit, first slot, slots.
        slots: parts of all cut rows.
    """

    parts: Tensor
    joins: Tensor
    slots: int


@dataclass
class Lists:
    """Rows of a pattern, in each the full blocks first, then the blocks with a mask or beyond the keys.

    Attributes:
        row_ptr: (heads * block rows + 1,) int32.
        full_end: (heads * block rows,) int32, where the full blocks of a row end.
        columns: (blocks,) int32.
        mask: (blocks,) int32, index of the token mask; -1 for full blocks.
        masks: (masks, block_size, block_size) bool; the last one is all True.
        bits: (masks, block_size, words) int32, the same masks, key j in bit j % 32 of word j // 32.
        row_lengths: blocks of each row, (heads * block rows,) on the CPU.
        equal: True if all rows have equally many blocks.
        unmasked: True if no block has a mask or crosses the end of the keys.
        work: work lists by batch, heads and group.
        launches: kernel launches, see :meth:`keep_launch`.
    """

    row_ptr: Tensor
    full_end: Tensor
    columns: Tensor
    mask: Tensor
    masks: Tensor
    bits: Tensor
    row_lengths: Tensor
    equal: bool
    unmasked: bool
    pattern_heads: int
    block_rows: int
    block_size: int
    work: dict[tuple[int, int, int], WorkList]
    launches: dict[object, object]

    @cached_property
    def mask_bytes(self) -> Tensor:
        """``masks`` as uint8, the same object at every launch."""
        return self.masks.view(torch.uint8)

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors that launches of the Triton kernels read at fixed addresses."""
        parts = [part for work in self.work.values() for part in (work.parts, work.joins)]
        return [self.row_ptr, self.full_end, self.columns, self.mask, self.mask_bytes, *parts]

    def work_list(self, batch: int, heads: int, group: int = 1) -> WorkList | None:
        """Return the order of the rows of ``batch * heads`` heads; ``None`` for storage order without cuts.

        With a ``group``, that many consecutive heads share one row with the blocks of all.
        """
        units = batch * heads // group * self.block_rows
        if self.equal:
            few = units < _PROGRAMS_PER_PROCESSOR * _processors(self.columns.device)
            longest = int(self.row_lengths[0]) * group if len(self.row_lengths) else 0
            if not few or longest * self.block_size <= _SHORTEST_PART:
                return None
        key = (batch, heads, group)
        work = self.work.get(key)
        if work is None:
            refuse_capture(self.columns)
            if len(self.work) >= _MOST_LISTS:
                self.work.clear()
            work = self.work[key] = _work_list(self, batch, heads, group)
        return work

    def keep_launch(self, key: object, launch: object) -> None:
        """Cache a launch; a full cache is emptied first."""
        if len(self.launches) >= _MOST_LAUNCHES:
            self.launches.clear()
        self.launches[key] = launch


def _work_list(lists: Lists, batch: int, heads: int, group: int) -> WorkList:
    device = lists.columns.device
    per_head = lists.row_lengths.reshape(lists.pattern_heads, lists.block_rows).expand(heads, -1)
    grouped = per_head.reshape(heads // group, group, lists.block_rows).sum(dim=1)
    lengths = grouped.repeat(batch, 1).flatten()
    share = int(lengths.sum()) / (_PROGRAMS_PER_PROCESSOR * _processors(device))
    limit = max(math.ceil(share / 2), -(-_SHORTEST_PART // lists.block_size), 1)
    pieces = (-(-lengths // limit)).clamp(min=1)
    unit = torch.repeat_interleave(torch.arange(len(lengths)), pieces)
    piece = torch.arange(len(unit)) - (pieces.cumsum(0) - pieces)[unit]
    size = -(-lengths // pieces)
    begin = piece * size[unit]
    end = torch.minimum(begin + size[unit], lengths[unit])
    cut = pieces > 1
    slots = int(pieces[cut].sum())
    slot = torch.full_like(unit, -1)
    slot[cut[unit]] = torch.arange(slots)
    parts = torch.stack([unit, begin, end, slot], dim=1)
    parts = parts[torch.argsort(end - begin, descending=True, stable=True)]
    long = parts[:, 2] - parts[:, 1] > share * _LONG_SHARE
    parts = parts[torch.argsort(torch.where(long, -1, parts[:, 0] // lists.block_rows), stable=True)]
    start = slot[torch.searchsorted(unit, cut.nonzero().flatten())]
    joins = torch.stack([cut.nonzero().flatten(), start, pieces[cut]], dim=1)
    return WorkList(_upload(parts, device), _upload(joins, device), slots)


def _upload(numbers: Tensor, device: torch.device) -> Tensor:
    """Copy to a device as int32, without waiting for it."""
    numbers = numbers.int()
    if device.type == "cuda":
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=True)


def lists_of(pattern: BlockPattern) -> Lists:
    """Return the lists of a pattern; make them at the first call.

    Making them waits for the device, unless the plans of the pattern hold :data:`ROW_LENGTHS`.
    """
    lists = pattern.plans.get("blocks")
    if not isinstance(lists, Lists):
        if ROW_LENGTHS not in pattern.plans:
            refuse_capture(pattern.columns)
        with torch.inference_mode(False), torch.no_grad():
            lists = _make_lists(pattern)
        pattern.plans["blocks"] = lists
        if pattern.blocks:
            _owners[pattern.columns.data_ptr()] = pattern
    return lists


def owner_of(row_ptr: Tensor, columns: Tensor, partial: Tensor) -> BlockPattern | None:
    """Return the pattern that owns these tensors, found by address; compiled code has only the tensors."""
    pattern = _owners.get(columns.data_ptr()) if columns.numel() else None
    if pattern is None:
        return None
    own = (pattern.row_ptr, pattern.columns, pattern.partial)
    given = (row_ptr, columns, partial)
    same = all(a.data_ptr() == b.data_ptr() and a.shape == b.shape for a, b in zip(own, given, strict=True))
    return pattern if same else None


def capturing(device: torch.device) -> bool:
    """Return True while a CUDA graph is captured; tensors made meanwhile are filled only when it runs."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def refuse_capture(tensor: Tensor) -> None:
    """Raise ``ImplementationError`` while a CUDA graph is being captured."""
    if capturing(tensor.device):
        raise ImplementationError(
            "the pattern has no launch lists yet: call the attention once before capturing a CUDA graph"
        )


def _make_lists(pattern: BlockPattern) -> Lists:
    stated = pattern.plans.get(ROW_LENGTHS)
    row_ptr = pattern.row_ptr[0]
    if pattern.heads > 1:
        row_ptr = torch.cat([pattern.row_ptr[:, :-1].flatten(), pattern.row_ptr[-1:, -1]])
    lengths = stated if isinstance(stated, Tensor) else pattern.row_lengths().flatten().cpu().long()
    columns, mask = pattern.columns, pattern.partial
    full_end = row_ptr[1:]
    unmasked = len(pattern.token_masks) == 0 and pattern.key_length % pattern.block_size == 0
    if not unmasked:
        head, row, _ = pattern.coordinates()
        full = (mask == FULL) & ((columns + 1) * pattern.block_size <= pattern.key_length)
        order = torch.argsort((head * pattern.block_rows + row) * 2 + ~full, stable=True)
        columns, mask, full = columns[order].contiguous(), mask[order].contiguous(), full[order]
        # Blocks that only cross the end of the keys use the last mask, which is all True.
        mask = torch.where(~full & (mask == FULL), len(pattern.token_masks), mask)
        # Full blocks before each block; the difference over a row is its number of full blocks.
        before = torch.nn.functional.pad(full.long().cumsum(0), (1, 0))
        full_end = row_ptr[:-1] + (before[row_ptr[1:].long()] - before[row_ptr[:-1].long()]).int()
    if len(pattern.token_masks):
        masks = torch.nn.functional.pad(pattern.token_masks, (0, 0, 0, 0, 0, 1), value=True)
        bits = _bits(masks)
    else:
        masks, bits = _full_mask(pattern.block_size, pattern.device)
    equal = len(lengths) == 0 or int(lengths.min()) == int(lengths.max())
    return Lists(
        row_ptr.contiguous(),
        full_end.contiguous(),
        columns,
        mask,
        masks,
        bits,
        lengths,
        equal,
        unmasked,
        pattern.heads,
        pattern.block_rows,
        pattern.block_size,
        {},
        {},
    )


_full_masks: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}


def _full_mask(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a mask that is all True, and its bits; cached, but not if a CUDA graph is captured meanwhile."""
    found = _full_masks.get((size, device))
    if found is None:
        masks = torch.ones((1, size, size), dtype=torch.bool, device=device)
        found = masks, _bits(masks)
        if not capturing(device):
            _full_masks[size, device] = found
    return found


def _bits(masks: Tensor) -> Tensor:
    words = -(-masks.shape[2] // 32)
    padded = torch.nn.functional.pad(masks, (0, 32 * words - masks.shape[2])).long()
    weights = 1 << torch.arange(32, device=masks.device)
    packed = (padded.reshape(*masks.shape[:2], words, 32) * weights).sum(dim=3)
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).int()


@cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
