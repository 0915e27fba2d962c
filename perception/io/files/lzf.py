"""LZF decompression for ``DATA binary_compressed`` in PCD files (Marc Lehmann's liblzf format).

A loop in Python: a scan of 120k points takes a fraction of a second.
"""

from __future__ import annotations


def decompress_lzf(data: bytes, size: int) -> bytes:
    """Decompress LZF to ``size`` bytes.

    A control byte below 32 copies that many plus one literal bytes. Any other is a back reference:
    three bits of length (7: one more byte follows) and thirteen bits of distance.

    Raises:
        ValueError: the data are cut off, refer to bytes before their start, or give another size. Memory
            never exceeds ``size`` bytes and one token.
    """
    output = bytearray()
    position, end = 0, len(data)
    try:
        while position < end and len(output) <= size:
            control = data[position]
            position += 1
            if control < 32:
                literals = data[position : position + control + 1]
                position += control + 1
                output += literals
                continue
            length = control >> 5
            if length == 7:
                length += data[position]
                position += 1
            start = len(output) - ((control & 31) << 8) - data[position] - 1
            position += 1
            _copy_back(output, start, length + 2)
    except IndexError as error:
        raise ValueError("compressed data are cut off within a token") from error
    if position != end or len(output) != size:
        more = "more than " if position < end else ""
        raise ValueError(f"compressed data give {more}{len(output)} bytes instead of {size}")
    return bytes(output)


def _copy_back(output: bytearray, start: int, length: int) -> None:
    """Append ``length`` bytes from ``start``; they may overlap what is being written (a run)."""
    if start < 0:
        raise ValueError("compressed data refer to bytes before their start")
    available = output[start : start + length]
    repeats = -(-length // len(available))
    output += (available * repeats)[:length]
