"""The n of m positions that a group keeps, as one number of ⌈log2 C(m, n)⌉ bits.

The number of a choice p0 < p1 < … is Σ C(pi, i + 1), its rank in the combinatorial number system (Knuth, The
Art of Computer Programming, volume 4A, section 7.2.1.3). For 2:4, six choices take 3 bits; two slots of two
bits each take 4.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor

from sparse_core.nm.packing.bits import MOST_BITS, pack_bits, packed_bytes, unpack_bits
from sparse_core.nm.pattern import NMPattern

IndexCoding = Literal["combinatorial", "slots"]
"""``"combinatorial"``: ⌈log2 C(m, n)⌉ bits per group. ``"slots"``: ⌈log2 m⌉ bits per kept value, the layout
of :class:`sparse_core.nm.PackedNM` and, for 2:4, of sparse tensor cores."""


def index_bits(pattern: NMPattern, coding: IndexCoding) -> int:
    """Return the bits per group."""
    if coding not in get_args(IndexCoding):
        raise ValueError(f"index must be one of {', '.join(get_args(IndexCoding))}, got {coding!r}")
    if coding == "slots":
        return pattern.n * slot_bits(pattern)
    if pattern.index_bits > MOST_BITS:
        raise ValueError(
            f"{pattern} has 2^{pattern.entropy_bits:.0f} choices per group, more than {MOST_BITS} bits can"
            " encode: use index='slots', or smaller groups"
        )
    return pattern.index_bits


def index_row_bytes(groups: int, pattern: NMPattern, coding: IndexCoding) -> int:
    """Return the bytes of the positions of a row of ``groups`` groups."""
    return packed_bytes(groups, index_bits(pattern, coding))


def pack_positions(index: Tensor, pattern: NMPattern, coding: IndexCoding = "combinatorial") -> Tensor:
    """Pack positions (rows, groups, n) uint8, rising within a group, into (rows, bytes) uint8."""
    bits = index_bits(pattern, coding)
    if index.ndim != 3 or index.shape[2] != pattern.n:
        raise ValueError(f"index must have shape (rows, groups, {pattern.n}), got {tuple(index.shape)}")
    if not _are_choices(index, pattern):
        raise ValueError(f"positions must rise within each group and be below m={pattern.m}")
    if coding == "slots":
        return pack_index(index, pattern)
    return pack_bits(rank(index, pattern), bits)


def unpack_positions(
    packed: Tensor, groups: int, pattern: NMPattern, coding: IndexCoding, *, check: bool = True
) -> Tensor:
    """Undo :func:`pack_positions`: return (rows, groups, n) uint8. ``check`` waits for the device."""
    bits = index_bits(pattern, coding)
    if coding == "slots":
        slots = unpack_bits(packed, groups * pattern.n, slot_bits(pattern))
        index = slots.reshape(len(packed), groups, pattern.n)
        if check and not _are_choices(index, pattern):
            raise ValueError(f"the positions are not a choice of {pattern.n} of {pattern.m}: damaged")
        return index
    return unrank(unpack_bits(packed, groups, bits), pattern, check=check)


def _are_choices(index: Tensor, pattern: NMPattern) -> bool:
    rising = bool((index[..., 1:] > index[..., :-1]).all())
    return rising and not (index.numel() and int(index.max()) >= pattern.m)


def rank(index: Tensor, pattern: NMPattern) -> Tensor:
    """Return the numbers (...) int64 of positions (..., n)."""
    table = _binomials(pattern.n, pattern.m, index.device)
    slots = torch.arange(pattern.n, device=index.device)
    return table[slots, index.long()].sum(dim=-1)


def unrank(numbers: Tensor, pattern: NMPattern, *, check: bool = True) -> Tensor:
    """Return the positions (..., n) uint8 of numbers (...) below C(m, n)."""
    choices = math.comb(pattern.m, pattern.n)
    if check and numbers.numel() and int(numbers.max()) >= choices:
        raise ValueError(
            f"{pattern} has {choices} choices per group, got number {int(numbers.max())}: the data is damaged"
        )
    if choices <= 1 << 16:
        return _choices_on(pattern, numbers.device)[numbers.long()]
    table = _binomials(pattern.n, pattern.m, numbers.device)
    rest = numbers.long().contiguous()
    index = torch.empty((*numbers.shape, pattern.n), dtype=torch.uint8, device=numbers.device)
    for slot in reversed(range(pattern.n)):
        # The largest position whose binomial does not exceed the rest; binomials of a slot never fall.
        position = torch.searchsorted(table[slot], rest, right=True) - 1
        index[..., slot] = position.to(torch.uint8)
        rest = rest - table[slot][position]
    return index


@cache
def choices_of(pattern: NMPattern) -> Tensor:
    """Return all choices of n of m in the order of their numbers, (C(m, n), n) uint8."""
    choices = math.comb(pattern.m, pattern.n)
    if choices > 1 << 16:
        raise ValueError(f"{pattern} has {choices} choices, a table holds at most {1 << 16}")
    rows = sorted(itertools.combinations(range(pattern.m), pattern.n), key=lambda row: row[::-1])
    return torch.tensor(rows, dtype=torch.uint8)


@cache
def _choices_on(pattern: NMPattern, device: torch.device) -> Tensor:
    """Return :func:`choices_of` on a device; cached, because a copy waits for a GPU."""
    with torch.inference_mode(False):
        return choices_of(pattern).to(device)


@cache
def _binomials(n: int, m: int, device: torch.device) -> Tensor:
    """Return (n, m) int64, C(position, slot + 1), clipped at 2^62, above any rank within 62 bits."""
    largest = 1 << MOST_BITS
    rows = [[min(math.comb(p, slot + 1), largest) for p in range(m)] for slot in range(n)]
    with torch.inference_mode(False):
        return torch.tensor(rows, device=device)


def slot_bits(pattern: NMPattern) -> int:
    """Return the bits of one slot's position within its group."""
    return max(1, (pattern.m - 1).bit_length())


def pack_index(index: Tensor, pattern: NMPattern) -> Tensor:
    """Pack positions (out, groups, n) uint8 into (out, bytes) uint8."""
    return pack_bits(index.reshape(index.shape[0], index.shape[1] * pattern.n), slot_bits(pattern))
