"""Checks of the sizes that a file claims against the bytes that it has."""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any, cast

import numpy as np

#: Memory that any file may claim, in addition to a multiple of its own bytes.
FREE_BYTES = 1 << 26


def check_claim(what: str, claimed_bytes: int, held_bytes: int, *, growth: int) -> None:
    """Raise ``ValueError`` if a small file claims much memory.

    Args:
        what: object that needs the memory, for the message.
        held_bytes: bytes of the file, or of its unpacked contents.
        growth: allowed multiple of ``held_bytes`` beyond 64 MiB.
    """
    if claimed_bytes > FREE_BYTES + growth * held_bytes:
        raise ValueError(f"{what} would take {claimed_bytes} bytes, from a file that holds {held_bytes}")


def check_archive(stream: IO[bytes]) -> int:
    """Check the headers of all arrays in a zip archive before numpy allocates them.

    Returns:
        Unpacked bytes of the arrays.
    """
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        unpacked = sum(member.file_size for member in members)
        packed = sum(member.compress_size for member in members)
        check_claim("the arrays", unpacked, packed, growth=100)
        for member in members:
            with archive.open(member) as stream_of_member:
                _check_array(member, stream_of_member)
    return unpacked


def _check_array(member: zipfile.ZipInfo, opened: IO[bytes]) -> None:
    version = np.lib.format.read_magic(opened)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"{member.filename}: numpy format {version} is not supported")
    shape, _, dtype = cast(tuple[tuple[int, ...], bool, Any], read[version](opened))
    if dtype.hasobject:
        raise ValueError(f"{member.filename}: Python objects are not supported")
    claimed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or claimed > member.file_size:
        raise ValueError(f"{member.filename}: claims shape {shape} but has {member.file_size} bytes")
