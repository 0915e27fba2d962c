"""LAS and LAZ, the ASPRS formats of surveyors, by laspy (extra ``las``); LAZ is unpacked by lazrs."""

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
#: Of the header: minor version, its size, first byte of the points, records before them, bytes a point and
#: points; and what version 1.4 adds: first byte and number of records behind the points, and points.
_HEADER = struct.Struct("<25xB68xHII1xHI")
_LONG_HEADER = struct.Struct("<124xQIQ")
#: Least bytes of such a record.
_RECORD_BYTES, _LONG_RECORD_BYTES = 54, 60
#: Points that are unpacked at a time.
_PIECE = 1_000_000


def read_las(path: Path) -> RawCloud:
    """Read x, y, z, with the file's own scale and offset, and intensity.

    A coordinate system that the file names is not read: coordinates are taken as metres around the sensor.

    Raises:
        DataError: damaged, truncated, no LAS file, or map coordinates.
        ImportError: laspy, or for LAZ lazrs, is missing; the message names the extra.
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
        raise DataError(f"{path}: truncated, {count} of {promised} promised points are there; copy it again")
    if not count:
        return RawCloud(np.zeros((0, 3), np.float32), None)
    intensity = np.concatenate(bright)
    # The format has the field whether or not the sensor measured it.
    return RawCloud(np.concatenate(coordinates), intensity if intensity.any() else None)


@contextmanager
def _checked(path: Path, stream: BinaryIO) -> Iterator[None]:
    """Refuse counts in the header (ASPRS' LAS 1.4, table 3) that the file is too small for.

    laspy would first believe them, for hours; and lazrs, which ends the process where memory does not do.
    """
    head = stream.read(_HEADER.size + _LONG_HEADER.size)
    size = os.fstat(stream.fileno()).st_size
    if len(head) < _HEADER.size or not head.startswith(b"LASF"):
        raise DataError(f"{path}: no LAS file: it does not begin with LASF; export it again")
    minor, head_bytes, start, records, length, points = _HEADER.unpack_from(head)
    records_bytes = records * _RECORD_BYTES
    packed = bool(head[104] & 0x80)
    if minor >= 4 and len(head) >= _HEADER.size + _LONG_HEADER.size:
        at, more, points = _LONG_HEADER.unpack_from(head, _HEADER.size)
        records_bytes += 0 if at + more * _LONG_RECORD_BYTES <= size else size
    if not head_bytes + records_bytes <= start <= size:
        raise DataError(f"{path}: damaged: its header promises more than its {size} bytes; copy it again")
    if not packed and start + points * length > size:
        there = (size - start) // max(length, 1)
        raise DataError(f"{path}: truncated, {there} of {points} promised points are there; copy it again")
    if packed and not _chunks(stream, start, size) * length <= size:
        raise DataError(f"{path}: damaged or cut off: its table of chunks is wrong; copy it again")
    stream.seek(0)
    yield


def _chunks(stream: BinaryIO, start: int, size: int) -> float:
    """How many chunks a LAZ file says it has, each with one point at least; infinite without a table."""
    stream.seek(start)
    at = int.from_bytes(stream.read(8), "little", signed=True)
    if at == -1:
        # Its place was not known when the file was begun: it stands at the end.
        stream.seek(max(size - 8, 0))
        at = int.from_bytes(stream.read(8), "little", signed=True)
    if not start + 8 <= at <= size - 8:
        return float("inf")
    stream.seek(at + 4)
    return int.from_bytes(stream.read(4), "little")


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Whatever the libraries raise for damaged bytes, as a ``DataError`` that names the file."""
    try:
        yield
    except (DataError, ImportError, KeyboardInterrupt, SystemExit):
        raise
    except OSError as error:
        raise DataError(
            f"{path}: cannot read the file ({error.strerror or error}); check the path"
        ) from error
    except BaseException as error:
        # They have no common base: laspy's own, struct.error, ValueError, lazrs' own, and a panic of Rust,
        # which is no Exception.
        said = str(error)[:300] or type(error).__name__
        raise DataError(f"{path}: no LAS file, damaged or cut off ({said}); copy it again") from error
