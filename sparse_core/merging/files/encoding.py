"""Compact encoding of a sparse tensor's positions and values.

Positions use the smallest of three forms: a bitmap, or the gaps between them in four or eight bits, where the
largest number means "skip that many without an entry". At 10 % density four-bit gaps take about 0.51 bits per
number of the tensor; the entropy is 0.47.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

PositionCode = Literal["all", "bitmap", "gaps4", "gaps8"]
ValueCode = Literal["int4", "int8", "float16", "float32"]
VALUE_CODES: tuple[str, ...] = get_args(ValueCode)
_GAP_BITS = {"gaps4": 4, "gaps8": 8}
_LARGEST_INTEGER = {"int4": 7, "int8": 127}


class StoredValues(NamedTuple):
    """Encoded values.

    Attributes:
        data: uint8 (two int4 per byte, the first in the low half), int8, float16 or float32.
        scale: (groups,) float32 factors; empty for float32.
    """

    data: Tensor
    scale: Tensor


def encode_positions(positions: np.ndarray, count: int) -> tuple[PositionCode, np.ndarray]:
    """Return the smallest form of rising positions below ``count``, and its uint8 data; ``all`` has none."""
    if len(positions) == count:
        return "all", np.empty(0, np.uint8)
    gaps = np.diff(positions, prepend=-1) - 1
    sizes: dict[PositionCode, int] = {
        "bitmap": -(-count // 8),
        "gaps8": int((gaps // 255).sum()) + len(gaps),
        "gaps4": -(-(int((gaps // 15).sum()) + len(gaps)) // 2),
    }
    code = min(sizes, key=lambda found: sizes[found])
    if code == "bitmap":
        mask = np.zeros(count, dtype=bool)
        mask[positions] = True
        return code, np.packbits(mask, bitorder="little")
    skip = (1 << _GAP_BITS[code]) - 1
    places = np.cumsum(gaps // skip + 1) - 1
    stream: np.ndarray = np.full(int(places[-1]) + 1 if len(places) else 0, skip, dtype=np.uint8)
    stream[places] = gaps % skip
    if code == "gaps4":
        stream = np.append(stream, np.uint8(skip)) if len(stream) % 2 else stream
        stream = stream[0::2] | (stream[1::2] << 4)
    return code, stream


def decode_positions(code: str, data: np.ndarray, entries: int, count: int) -> np.ndarray:
    """Undo :func:`encode_positions`; returns int64 positions."""
    if code == "all":
        found = np.arange(count)
    elif code == "bitmap":
        if len(data) != -(-count // 8):
            raise ValueError(f"the bitmap has {len(data)} bytes for {count} numbers")
        found = np.flatnonzero(np.unpackbits(data, count=count, bitorder="little"))
    elif code in _GAP_BITS:
        skip = (1 << _GAP_BITS[code]) - 1
        stream = data
        if code == "gaps4":
            stream = np.empty(2 * len(data), dtype=np.uint8)
            stream[0::2], stream[1::2] = data & 15, data >> 4
        entry = stream != skip
        found = np.cumsum(np.where(entry, stream + np.int64(1), skip), dtype=np.int64)[entry] - 1
    else:
        raise ValueError(f"unknown form of positions {code!r}")
    if len(found) != entries or (entries and found[-1] >= count):
        raise ValueError(f"{len(found)} positions for {entries} entries of a tensor with {count} numbers")
    return found


def encode_values(values: Tensor, code: ValueCode, group: int) -> StoredValues:
    """Encode finite floating-point values (N,) with one factor per ``group`` of them; zeros stay zero.

    int4 and int8 round to steps of the group's largest magnitude over 7 or 127. float16 divides by the
    group's largest magnitude first, so that small deltas keep their digits.
    """
    plain = values.float()
    if code == "float32":
        return StoredValues(plain, torch.empty(0, dtype=torch.float32))
    groups = -(-len(plain) // group)
    padded = torch.nn.functional.pad(plain, (0, groups * group - len(plain))).view(groups, group)
    scale = padded.abs().amax(dim=1) if groups else torch.empty(0, dtype=torch.float32)
    steps = _LARGEST_INTEGER.get(code, 1)
    # The smallest normal number keeps the quotient finite for groups of zeros or tiny numbers.
    scale = (scale / steps).clamp_min(torch.finfo(torch.float32).tiny)
    relative = (padded / scale[:, None]).flatten()[: len(plain)]
    if code == "float16":
        return StoredValues(relative.half(), scale)
    whole = relative.round_().clamp_(-steps, steps).to(torch.int8)
    if code == "int8":
        return StoredValues(whole, scale)
    nibbles = torch.nn.functional.pad(whole, (0, len(whole) % 2)).view(torch.uint8) & 15
    return StoredValues(nibbles[0::2] | (nibbles[1::2] << 4), scale)


def decode_values(stored: StoredValues, code: str, group: int, entries: int) -> Tensor:
    """Undo :func:`encode_values`; returns float32."""
    if code not in VALUE_CODES:
        raise ValueError(f"unknown form of values {code!r}")
    data = stored.data
    if code == "int4":
        low, high = data & 15, data >> 4
        data = torch.stack([low, high], dim=1).flatten()[:entries].view(torch.int8)
        data = data - ((data & 8) << 1)
    groups = 0 if code == "float32" else -(-entries // group)
    if len(data) != entries or len(stored.scale) != groups:
        raise ValueError(f"{len(data)} values and {len(stored.scale)} scales for {entries} entries")
    plain = data.float()
    if groups:
        plain *= stored.scale.repeat_interleave(group)[:entries]
    return plain
