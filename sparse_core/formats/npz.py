"""What an ``.npz`` claims, held against the bytes that it has."""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any, cast

import numpy as np

from sparse_core.formats.storage.claims import check_claim


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
