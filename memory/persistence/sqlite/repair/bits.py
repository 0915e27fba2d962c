"""Where the one bit is that makes a checksum wrong: CRC-32 tells it, and the bit is turned back.

What a flipped bit does to the checksum depends on its distance from the end alone, and differs for every
distance below 2**32 bits. More than one flipped bit looks like one in about a row of a hundred thousand.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from memory.persistence.checksums import HALF, Layout

#: Bytes of a row up to which it is looked at.
MOST_BYTES = 1 << 16
#: Bytes from the end, and bit, by the change of the checksum; grows with the rows that are asked for.
_places: dict[int, tuple[int, int]] = {}
_reached: list[int] = []


def repaired_row(layout: Layout, row: Sequence[Any]) -> list[Any] | None:
    """Return a selected row with the one bit turned back in which it differs from what was stored.

    ``None`` where no one bit explains its checksum.
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
    # Not that of the row, which may be where the bit is; a byte between texts that is wrong shows here.
    right.append(layout.sum(right[: layout.split], b"\0".join(right[layout.split :])))
    return right if right[-1] == row[-1] or found == packed + b"\0".join(texts) else None


def repaired_bytes(data: bytes, seed: int, told: int) -> bytes | None:
    """The data with the one bit turned that makes its checksum the one that is told.

    Args:
        data: as it was read.
        seed: that the checksum begins with.
        told: the checksum of what was written.

    Returns:
        The same data where the bit is one of the checksum itself; ``None`` where no one bit explains it.
    """
    if len(data) > MOST_BYTES:
        return None
    change = crc32(data, seed) ^ told
    if change.bit_count() == 1:
        return data
    _reach(len(data))
    from_end, bit = _places.get(change, (len(data), 0))
    at = len(data) - 1 - from_end
    if at < 0:
        return None
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def _reach(size: int) -> None:
    """Know the places of data of this size."""
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
    """What a byte makes of a checksum's register."""
    for _ in range(8):
        byte = byte >> 1 ^ (0xEDB88320 if byte & 1 else 0)
    return byte
