"""The part of Protocol Buffers' wire format that Foxglove's messages need.

Follows "Encoding" of the Protocol Buffers documentation: a message is a list of (number, kind, value).
"""

from __future__ import annotations

import struct

Value = int | bytes
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def read_message(data: bytes | memoryview) -> dict[int, list[Value]]:
    """Return values by field number: integers, or the bytes of other types.

    Raises:
        ValueError: the bytes are not a message.
    """
    data = memoryview(data)
    found: dict[int, list[Value]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: Value
        if key & 7 == _VARINT:
            value, at = _varint(data, at)
        else:
            if key & 7 == _BYTES:
                length, at = _varint(data, at)
            else:
                length = {_EIGHT: 8, _FOUR: 4}.get(key & 7, -1)
            if length < 0 or at + length > len(data):
                raise ValueError(f"field {key >> 3} at byte {at} is cut off or of an unknown kind")
            value, at = bytes(data[at : at + length]), at + length
        found.setdefault(key >> 3, []).append(value)
    return found


def number(message: dict[int, list[Value]], field: int) -> int:
    """Return an integer field (varint or fixed32); the default is 0."""
    value = message.get(field, [0])[-1]
    return value if isinstance(value, int) else int.from_bytes(value, "little")


def double(message: dict[int, list[Value]], field: int) -> float:
    """Return a double field; the default is 0. Raise ``ValueError`` for another type."""
    value = message.get(field, [bytes(8)])[-1]
    if not isinstance(value, bytes) or len(value) != 8:
        raise ValueError(f"field {field} is no double")
    return float(struct.unpack("<d", value)[0])


def content(message: dict[int, list[Value]], field: int) -> bytes:
    """Return the bytes of a field; the default is empty. Raise ``ValueError`` for another type."""
    value = message.get(field, [b""])[-1]
    if not isinstance(value, bytes):
        raise ValueError(f"field {field} is a number")
    return value


def submessages(message: dict[int, list[Value]], field: int) -> list[dict[int, list[Value]]]:
    """Return the messages of a repeated field. Raise ``ValueError`` if one is invalid."""
    return [read_message(value) for value in message.get(field, []) if isinstance(value, bytes)]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("cut off within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number of more than ten bytes at byte {at}")
