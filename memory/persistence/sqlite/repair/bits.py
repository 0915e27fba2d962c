"""Repair of single flipped bits: CRC-32 locates the bit, which is flipped back.

The effect of a flipped bit on the checksum depends only on its distance from the end, and differs for all
distances below 2**32 bits. Several flipped bits look like one in about one row of a hundred thousand.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from memory.persistence.checksums import HALF, Layout

#: Largest row that is examined, in bytes.
MOST_BYTES = 1 << 16
#: Bytes from the end, and bit, by the change of the checksum; grows with the rows examined.
_places: dict[int, tuple[int, int]] = {}
_reached: list[int] = []


def repaired_row(layout: Layout, row: Sequence[Any]) -> list[Any] | None:
    """Return a selected row with its one flipped bit corrected.

    ``None`` if no single bit explains its checksum.
    """
    texts = row[layout.split : -1]
    try:
        packed = layout.pack(*row[: layout.split])
        found = repaired_bytes(packed + b"\0".join(texts), layout.seed, row[-1] + HALF)
    except (struct.error, TypeError):
        return None
    if found is None:
        return None
    right: list[Any] = list(layout.struct.unpack_from(found))
    at = len(packed)
    for text in texts:
        right.append(found[at : at + len(text)])
        at += len(text) + 1
    # Recompute the checksum, which may itself be wrong; this also detects a wrong separator.
    right.append(layout.sum(right[: layout.split], b"\0".join(right[layout.split :])))
    return right if right[-1] == row[-1] or found == packed + b"\0".join(texts) else None


def repaired_bytes(data: bytes, seed: int, checksum: int) -> bytes | None:
    """Return the data with the one bit flipped that makes its checksum match.

    Args:
        checksum: checksum of the bytes as written.

    Returns:
        The same data if the bit is in the checksum itself; ``None`` if no single bit explains it.
    """
    if len(data) > MOST_BYTES:
        return None
    change = crc32(data, seed) ^ checksum
    if change.bit_count() == 1:
        return data
    _reach(len(data))
    from_end, bit = _places.get(change, (len(data), 0))
    at = len(data) - 1 - from_end
    if at < 0:
        return None
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def _reach(size: int) -> None:
    """Compute the positions for data of this size."""
    table = [_step(byte) for byte in range(256)]
    if not _reached:
        _reached.extend(table[1 << bit] for bit in range(8))
        _places.update({change: (0, bit) for bit, change in enumerate(_reached)})
    known = len(_places) // 8
    for from_end in range(known, size):
        for bit, change in enumerate(_reached):
            _reached[bit] = change >> 8 ^ table[change & 0xFF]
            _places[_reached[bit]] = (from_end, bit)


def _step(byte: int) -> int:
    """Return the effect of a byte on the checksum's register."""
    for _ in range(8):
        byte = byte >> 1 ^ (0xEDB88320 if byte & 1 else 0)
    return byte
