"""Integers of a few bits each, packed into bytes row by row.

Number i of a row takes bits ``i * bits`` to ``(i + 1) * bits - 1``, little-endian. Rows start at a byte, and
unused bits at their end are zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Wider numbers do not fit the signed integers to which they are unpacked.
MOST_BITS = 62


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of a row of ``count`` numbers."""
    return -(-count * bits // 8)


def pack_bits(numbers: Tensor, bits: int) -> Tensor:
    """Pack integers (rows, count) from 0 to 2^bits - 1 into (rows, bytes) uint8; ``bits`` is 0 to 62."""
    if numbers.ndim != 2:
        raise ValueError(f"numbers must have shape (rows, count), got {tuple(numbers.shape)}")
    _check(bits)
    if numbers.numel() and (int(numbers.min()) < 0 or int(numbers.max()) >> bits):
        raise ValueError(
            f"numbers of {bits} bits go from 0 to {2**bits - 1}, got {int(numbers.min())} to"
            f" {int(numbers.max())}"
        )
    rows, count = numbers.shape
    if not bits or not count:
        return torch.zeros((rows, 0), dtype=torch.uint8, device=numbers.device)
    if bits == 8:
        return numbers.to(torch.uint8).contiguous()
    if 8 % bits == 0:
        return _join(numbers.to(torch.uint8), bits)
    shifts = torch.arange(bits, device=numbers.device)
    stream = ((numbers.long()[..., None] >> shifts) & 1).to(torch.uint8)
    return _join(stream.reshape(rows, count * bits), 1)


def unpack_bits(packed: Tensor, count: int, bits: int) -> Tensor:
    """Undo :func:`pack_bits`: return (rows, count), uint8 up to 8 bits, else int64."""
    _check(bits)
    expected = packed_bytes(count, bits)
    if packed.dtype != torch.uint8 or packed.ndim != 2 or packed.shape[1] != expected:
        raise ValueError(
            f"{count} numbers of {bits} bits are uint8 rows of {expected} bytes, got {packed.dtype}"
            f" {tuple(packed.shape)}"
        )
    rows = packed.shape[0]
    if not bits:
        return torch.zeros((rows, count), dtype=torch.uint8, device=packed.device)
    if bits == 8:
        return packed
    if 8 % bits == 0:
        return _split(packed, bits)[:, :count]
    stream = _split(packed, 1)[:, : count * bits].reshape(rows, count, bits)
    if torch.compiler.is_exporting():
        factors = torch.tensor([2**place for place in range(bits)], device=packed.device)
        numbers = (stream.long() * factors).sum(dim=2)
        return numbers.to(torch.uint8) if bits < 8 else numbers
    if bits < 8:
        places = torch.arange(bits, device=packed.device, dtype=torch.uint8)
        return (stream << places).sum(dim=2, dtype=torch.uint8)
    return (stream.long() << torch.arange(bits, device=packed.device)).sum(dim=2)


def _join(numbers: Tensor, bits: int) -> Tensor:
    """Pack numbers of 1, 2 or 4 bits into bytes."""
    rows, count = numbers.shape
    each = 8 // bits
    padded = torch.nn.functional.pad(numbers, (0, -count % each)).reshape(rows, -(-count // each), each)
    shifts = torch.arange(0, 8, bits, device=numbers.device, dtype=torch.uint8)
    return (padded << shifts).sum(dim=2, dtype=torch.uint8)


def _split(packed: Tensor, bits: int) -> Tensor:
    """Unpack bytes into numbers of 1, 2 or 4 bits."""
    shifts = torch.arange(0, 8, bits, device=packed.device, dtype=torch.uint8)
    if torch.compiler.is_exporting():
        # torch's ONNX exporter treats shifted bytes as signed.
        factors = torch.tensor([2**shift for shift in range(0, 8, bits)], device=packed.device)
        numbers = (packed[..., None].long() // factors % 2**bits).to(torch.uint8)
    else:
        numbers = (packed[..., None] >> shifts) & (2**bits - 1)
    result: Tensor = numbers.reshape(len(packed), packed.shape[1] * (8 // bits))
    return result


def _check(bits: int) -> None:
    if not 0 <= bits <= MOST_BITS:
        raise ValueError(f"bits must be 0 to {MOST_BITS}, got {bits}")
