"""What a file claims, held against the bytes that it has."""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any, cast

import numpy as np

#: Memory that any file may ask for, besides a multiple of its own bytes.
FREE_BYTES = 1 << 26


def check_claim(what: str, claimed_bytes: int, held_bytes: int, *, growth: int) -> None:
    """Raise ``ValueError`` where a few bytes ask for much memory.

    Args:
        what: what takes the memory, for the message.
        claimed_bytes: memory that reading on would take.
        held_bytes: bytes of the file, or of what it unpacks to.
        growth: times ``held_bytes`` that may be taken besides 64 MiB.
    """
    if claimed_bytes > FREE_BYTES + growth * held_bytes:
        raise ValueError(f"{what} would take {claimed_bytes} bytes, from a file that holds {held_bytes}")


def check_archive(stream: IO[bytes]) -> int:
    """Look at the headers of all arrays before numpy allocates what they claim.

    Args:
        stream: a zip archive.

    Returns:
        Bytes of the arrays, unpacked.

    Raises:
        ValueError: objects, a shape that the member is too short for, or an archive that would unpack to
            more than 64 MiB and a hundred times its own bytes.
        Exception: what zipfile and numpy raise at damaged bytes.
    """
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        unpacked = sum(member.file_size for member in members)
        packed = sum(member.compress_size for member in members)
        check_claim("the arrays", unpacked, packed, growth=100)
        for member in members:
            with archive.open(member) as opened:
                _check_array(member, opened)
    return unpacked


def _check_array(member: zipfile.ZipInfo, opened: IO[bytes]) -> None:
    version = np.lib.format.read_magic(opened)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"{member.filename}: numpy format {version} is not read")
    shape, _, dtype = cast(tuple[tuple[int, ...], bool, Any], read[version](opened))
    if dtype.hasobject:
        raise ValueError(f"{member.filename}: Python objects are not read")
    claimed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or claimed > member.file_size:
        raise ValueError(f"{member.filename}: claims shape {shape} but has {member.file_size} bytes")
