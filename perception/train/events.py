"""Scalars over steps in TensorBoard's file format, written without TensorBoard.

An event file is a sequence of records (TFRecord: length, checksum, bytes, checksum), each a protocol buffer
``Event``: https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto and
summary.proto. Scalars need few of its fields, while TensorBoard's own writer depends on gRPC.
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from sparse_core.common.files import GrowingFile

#: Subfolder of the run's folder.
FOLDER = "tensorboard"
#: Fields of Event: wall_time (double), step (int64), file_version, summary, session_log.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7
#: Wire types of protocol buffers.
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5


class EventFile:
    """A new event file of a run; it invalidates later steps of earlier files.

    Args:
        folder: of the run; the file goes into its subfolder ``tensorboard``.
        step: from which the run resumes.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, folder: Path, step: int) -> None:
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        # TensorBoard reads event files in name order.
        name = f"events.out.tfevents.{time.time_ns():020d}.{os.getpid()}"
        self._stream = GrowingFile(folder / FOLDER / name)
        self._write(_field(_FILE_VERSION, _BYTES, b"brain.Event:2"))
        # SessionLog{status: START}: readers drop this step and all later ones of earlier files.
        self._write(_field(_STEP, _VARINT, step + 1) + _field(_SESSION_LOG, _BYTES, _field(1, _VARINT, 1)))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write the scalars of a step by tag; NaN values are skipped."""
        summary = b"".join(
            _field(1, _BYTES, _field(1, _BYTES, tag.encode()) + _field(2, _FLOAT, value))
            for tag, value in values.items()
            if not math.isnan(value)
        )
        self._write(_field(_STEP, _VARINT, step) + _field(_SUMMARY, _BYTES, summary))

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _write(self, event: bytes) -> None:
        event = _field(_WALL_TIME, _DOUBLE, time.time()) + event
        length = struct.pack("<Q", len(event))
        self._stream.write(length + _checksum(length) + event + _checksum(event))


def _field(number: int, wire_type: int, value: float | bytes) -> bytes:
    head = _varint(number << 3 | wire_type)
    if isinstance(value, bytes):
        return head + _varint(len(value)) + value
    if wire_type == _VARINT:
        return head + _varint(int(value))
    return head + struct.pack("<d" if wire_type == _DOUBLE else "<f", value)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _table() -> tuple[int, ...]:
    """Return the CRC-32C (Castagnoli) remainder of each byte."""
    found = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return tuple(found)


_REMAINDERS = _table()


def _checksum(data: bytes) -> bytes:
    """Return the CRC-32C, masked as in TFRecord."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _REMAINDERS[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
