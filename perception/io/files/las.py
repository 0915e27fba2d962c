"""LAS and LAZ, the ASPRS survey formats, read by laspy and lazrs (extra ``las``)."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from perception.errors import DataError
from perception.io.bounded import BoundedReader
from perception.io.raw import RawCloud, as_float32, check_near_origin
from perception.types import FloatArray

_INSTALL = "pip install 'sparsight[las]'"
#: Header fields: minor version, header size, offset of points, number of records before them, bytes per
#: point,
#: number of points. Version 1.4 adds offset and number of the records after the points, and their number.
_HEADER = struct.Struct("<25xB68xHII1xHI")
_LONG_HEADER = struct.Struct("<124xQIQ")
#: Smallest sizes of these records.
_RECORD_BYTES, _LONG_RECORD_BYTES = 54, 60
#: Points to unpack at a time.
_PIECE = 1_000_000


def read_las(path: Path) -> RawCloud:
    """Read x, y, z, with the file's scale and offset, and intensity.

    Coordinates are metres around the sensor; the file's coordinate system is ignored.

    Raises:
        DataError: the file is damaged, truncated, not LAS, or in map coordinates.
        ImportError: laspy, or lazrs for LAZ, is missing; the message has the pip command.
    """
    try:
        import laspy
    except ImportError as error:
        raise ImportError(f"reading LAS and LAZ files needs laspy: {_INSTALL}") from error
    with (
        _damage(path),
        BoundedReader(io.FileIO(path)) as stream,
        _checked(path, stream),
        laspy.open(stream, closefd=False) as file,
    ):
        packed = file.header.are_points_compressed
        if packed and not laspy.LazBackend.detect_available():
            raise ImportError(f"reading LAZ files needs lazrs: {_INSTALL}")
        coordinates: list[FloatArray] = []
        bright = []
        for piece in file.chunk_iterator(_PIECE):
            xyz = np.column_stack([piece.x, piece.y, piece.z]).astype(np.float64, copy=False)
            if not coordinates:
                check_near_origin(path, xyz)
            coordinates.append(as_float32(xyz))
            bright.append(np.asarray(piece.intensity))
        promised = file.header.point_count
    count = sum(map(len, coordinates))
    if count != promised:
        raise DataError(f"{path}: truncated, {count} of {promised} points are there. Copy the file again.")
    if not count:
        return RawCloud(np.zeros((0, 3), np.float32), None)
    intensity = np.concatenate(bright)
    # The field exists even if the sensor did not measure intensity.
    return RawCloud(np.concatenate(coordinates), intensity if intensity.any() else None)


@contextmanager
def _checked(path: Path, stream: BinaryIO) -> Iterator[None]:
    """Refuse counts in the header (ASPRS LAS 1.4, table 3) that do not fit the file's size.

    laspy would loop for hours over wrong counts, and lazrs would abort the process.
    """
    head = stream.read(_HEADER.size + _LONG_HEADER.size)
    size = os.fstat(stream.fileno()).st_size
    if len(head) < _HEADER.size or not head.startswith(b"LASF"):
        raise DataError(f"{path}: not a LAS file, as it does not begin with LASF. Export it again.")
    minor, head_bytes, start, records, length, points = _HEADER.unpack_from(head)
    records_bytes = records * _RECORD_BYTES
    packed = bool(head[104] & 0x80)
    if minor >= 4 and len(head) >= _HEADER.size + _LONG_HEADER.size:
        at, more, points = _LONG_HEADER.unpack_from(head, _HEADER.size)
        records_bytes += 0 if at + more * _LONG_RECORD_BYTES <= size else size
    if not head_bytes + records_bytes <= start <= size:
        raise DataError(f"{path}: damaged, its header promises more than its {size} bytes. Copy it again.")
    if not packed and start + points * length > size:
        there = (size - start) // max(length, 1)
        raise DataError(f"{path}: truncated, {there} of {points} points are there. Copy the file again.")
    if packed and not _chunks(stream, start, size) * length <= size:
        raise DataError(f"{path}: damaged or cut off, its chunk table is wrong. Copy the file again.")
    stream.seek(0)
    yield


def _chunks(stream: BinaryIO, start: int, size: int) -> float:
    """Return the number of chunks that a LAZ file declares; infinite without a chunk table."""
    stream.seek(start)
    at = int.from_bytes(stream.read(8), "little", signed=True)
    if at == -1:
        # Writers that did not know the offset in advance write it at the end.
        stream.seek(max(size - 8, 0))
        at = int.from_bytes(stream.read(8), "little", signed=True)
    if not start + 8 <= at <= size - 8:
        return float("inf")
    stream.seek(at + 4)
    return int.from_bytes(stream.read(4), "little")


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Convert the libraries' errors to a ``DataError`` that names the file."""
    try:
        yield
    except (DataError, ImportError, KeyboardInterrupt, SystemExit):
        raise
    except OSError as error:
        raise DataError(f"{path}: reading failed ({error.strerror or error}). Check the path.") from error
    except BaseException as error:
        # The errors of laspy, lazrs and struct have no common base; a panic of Rust is not an Exception.
        reason = str(error)[:300] or type(error).__name__
        raise DataError(f"{path}: not a LAS file, damaged or cut off ({reason}). Copy it again.") from error
