"""Index files: named arrays that are mapped into memory instead of read.

The layout is that of safetensors: eight bytes with the length of a JSON header, the header, the arrays. The
header's metadata hold ``format``, ``version``, ``kind``, ``generation``, ``identity`` and ``crc32``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from sparse_core.common.files import replacing

FORMAT = "sparsight-vector-index"
VERSION = "3"
#: Placeholder while the checksum is computed.
_NO_SUM = "00000000"
_TYPES: dict[str, Any] = {
    "F16": np.float16,
    "F32": np.float32,
    "I32": np.int32,
    "I64": np.int64,
    "U8": np.uint8,
    "U16": np.uint16,
    "U64": np.uint64,
}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}
_ALIGNMENT = 64
_HEADER_LIMIT = 1 << 24


class IndexFile(NamedTuple):
    """Content of an index file.

    Attributes:
        header: numbers and words by name.
        arrays: read-only mapped arrays by name.
    """

    header: dict[str, str]
    arrays: dict[str, NDArray[Any]]

    def number(self, name: str) -> int:
        """Return a number of the header, or raise ``ValueError``."""
        value = self.header.get(name, "")
        if not value.isdecimal():
            raise ValueError(f"{name} is {value!r}, not a number. Delete the file; it is built again")
        return int(value)

    def word(self, name: str, choices: Sequence[str]) -> str:
        """Return a word of the header that is one of the choices, or raise ``ValueError``."""
        value = self.header.get(name, "")
        if value not in choices:
            raise ValueError(f"{name} is {value!r}. Delete the file; it is built again")
        return value

    def array(self, name: str, dtype: Any, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """Return an array of this type and shape (``None``: any length), or raise ``ValueError``."""
        if name not in self.arrays:
            raise ValueError(f"{name} is missing. Delete the file; it is built again")
        array = self.arrays[name]
        fits = len(array.shape) == len(shape) and all(
            want is None or want == got for want, got in zip(shape, array.shape, strict=True)
        )
        if array.dtype != np.dtype(dtype) or not fits:
            raise ValueError(
                f"{name} is {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}."
                " Delete the file; it is built again"
            )
        return array


def save_arrays(
    path: str | os.PathLike[str],
    kind: str,
    header: Mapping[str, str | int],
    arrays: Mapping[str, NDArray[Any]],
) -> Path:
    """Write an index file; it replaces an existing one only once it is complete and on the disk.

    Args:
        arrays: arrays of the format's types.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    file = Path(path)
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{file}: the folder {file.parent} does not exist. Create it first")
    entries: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "version": VERSION, "kind": kind}
        | {name: str(value) for name, value in header.items()}
        | {"crc32": _NO_SUM}
    }
    offset = 0
    for name, array in arrays.items():
        stop = offset + array.nbytes
        entries[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, stop],
        }
        offset = stop
    text = json.dumps(entries).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    whole = crc32(text)
    for array in arrays.values():
        whole = crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, whole)
    text = text.replace(_sum_entry(_NO_SUM), _sum_entry(f"{whole:08x}"))
    with replacing(file) as temporary, open(temporary, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        stream.flush()
        os.fsync(stream.fileno())
    return file


def load_arrays(path: str | os.PathLike[str], kind: str) -> IndexFile:
    """Map an index file.

    Args:
        kind: expected kind of index.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: damaged, of another kind or of another version.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    try:
        with open(file, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 0 < length <= _HEADER_LIMIT:
                raise ValueError("no header")
            text = stream.read(length)
        entries = json.loads(text)
        header = entries.pop("__metadata__")
        for name, want in (("format", FORMAT), ("version", VERSION), ("kind", kind)):
            if header.get(name) != want:
                raise ValueError(f"{name} is {header.get(name)!r}, not {want!r}")
        whole = np.memmap(file, np.uint8, "r")[8 + length :]
        checksum = str(header.get("crc32"))
        text = text.replace(_sum_entry(checksum), _sum_entry(_NO_SUM))
        if f"{crc32(whole.data, crc32(text)):08x}" != checksum:
            raise ValueError("the checksum does not match")
        arrays = {name: _map_array(whole, entry) for name, entry in entries.items()}
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file}: damaged or not an index file ({error}). Delete it; it is built again"
        ) from error
    return IndexFile(header, arrays)


def _sum_entry(checksum: str) -> bytes:
    """Return the header's entry of the checksum."""
    return f'"crc32": "{checksum}"'.encode()


def _map_array(whole: NDArray[np.uint8], entry: dict[str, Any]) -> NDArray[Any]:
    """Return one array of the file."""
    start, stop = entry["data_offsets"]
    dtype = np.dtype(_TYPES[entry["dtype"]])
    if not 0 <= start <= stop <= len(whole) or stop - start != dtype.itemsize * math.prod(entry["shape"]):
        raise ValueError(f"bytes {start} to {stop} of {len(whole)} do not hold {entry}")
    # The order of the arrays keeps each aligned to its element size; files of other writers are copied.
    flat = np.asarray(whole[start:stop])
    if start % dtype.itemsize:
        flat = flat.copy()
    array: NDArray[Any] = flat.view(dtype).reshape(entry["shape"])
    return array
