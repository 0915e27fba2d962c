"""LZF decompression against a straightforward compressor and known streams."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perception.io.files.lzf import decompress_lzf


def compress_lzf(data: bytes) -> bytes:
    """Greedy LZF: the longest match at the nearest of the last places of each three bytes."""
    output, literals, places, position = bytearray(), bytearray(), {}, 0

    def flush() -> None:
        for start in range(0, len(literals), 32):
            chunk = literals[start : start + 32]
            output.append(len(chunk) - 1)
            output.extend(chunk)
        literals.clear()

    while position < len(data):
        key = data[position : position + 3]
        start = places.get(key)
        places[key] = position
        if len(key) < 3 or start is None or position - start > 8192:
            literals.append(data[position])
            position += 1
            continue
        length = 3
        while (
            length < 264 and position + length < len(data) and data[start + length] == data[position + length]
        ):
            length += 1
        flush()
        distance, code = position - start - 1, length - 2
        if code < 7:
            output.append((code << 5) | (distance >> 8))
        else:
            output.extend(((7 << 5) | (distance >> 8), code - 7))
        output.append(distance & 255)
        position += length
    flush()
    return bytes(output)


@given(st.lists(st.binary(min_size=1, max_size=6), max_size=60).map(lambda parts: b"".join(parts * 3)))
def test_round_trip(data: bytes) -> None:
    assert decompress_lzf(compress_lzf(data), len(data)) == data


def test_long_runs_and_long_distances() -> None:
    data = bytes(1000) + bytes(range(256)) * 20 + b"end" * 100
    packed = compress_lzf(data)
    assert len(packed) < len(data) / 4
    assert decompress_lzf(packed, len(data)) == data


def test_no_more_than_promised_is_held() -> None:
    # 300 KB that would become 26 MB, of which 160 bytes were promised.
    packed = b"\x00a" + b"\xe0\xff\x00" * 100_000
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than 265 bytes instead of 160"):
        decompress_lzf(packed, 160)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("packed", "size", "message"),
    [
        (b"\x05abc", 6, "instead of"),
        (b"\x00a", 2, "instead of"),
        (b"\x00a\x20\x05", 4, "before their start"),
        (b"\x00a\xe0", 4, "a token"),
        (b"\x00a\x20", 4, "a token"),
    ],
)
def test_damaged_streams(packed: bytes, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decompress_lzf(packed, size)
