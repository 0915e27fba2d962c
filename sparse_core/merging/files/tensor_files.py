"""Safetensors files read and written one tensor at a time.

The safetensors library holds or maps whole files. Here a tensor is mapped while it is used and written when
it is made, so models may exceed memory. The format is eight bytes with the length of a header, the header in
JSON, and the tensors' bytes (https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

_NAMES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_CODES = {dtype: name for name, dtype in _NAMES.items()}
_LARGEST_HEADER = 100_000_000
#: Most characters of a header entry besides its name: type, shape, offsets.
_ENTRY = 200
#: If the header needs less room, tensors of up to this many bytes are moved up to it.
_MOVED = 1 << 26
_CHUNK = 1 << 20


def dtype_named(dtype: torch.dtype) -> str:
    """Return the format's name of a type, for example ``BF16``; ``ValueError`` if there is none."""
    if dtype not in _CODES:
        raise ValueError(f"safetensors files do not support {str(dtype).removeprefix('torch.')}")
    return _CODES[dtype]


class TensorKind(NamedTuple):
    """Type and shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


class TensorInfo(NamedTuple):
    """Header entry of a tensor: its kind, and the offset of its first byte."""

    kind: TensorKind
    offset: int


class TensorFileReader:
    """A safetensors file whose tensors are mapped into memory one at a time.

    The header and the file's size are checked at once, so a truncated file fails early.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no such file")
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                raise ValueError(
                    f"{self.path}: truncated, or not a safetensors file: its header needs {length:,} bytes"
                    f" and the file has {size:,}"
                )
            raw = file.read(length)
        self.metadata: dict[str, str] = {}
        self.tensors: dict[str, TensorInfo] = {}
        try:
            header = json.loads(raw)
            if not isinstance(header, dict):
                raise ValueError("the header is not a JSON object")
            self.metadata = dict(header.pop("__metadata__", None) or {})
            for name, entry in header.items():
                self.tensors[name] = _info(name, entry, 8 + length)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{self.path}: damaged header: {error}; write or download the file again"
            ) from error
        end = max((info.offset + info.kind.nbytes for info in self.tensors.values()), default=8 + length)
        if end > size:
            raise ValueError(
                f"{self.path}: truncated: the header describes {end:,} bytes, the file has {size:,};"
                " write or download it again"
            )

    def read(self, name: str) -> Tensor:
        """Map a tensor from the file; changes stay in memory. The map ends with the last reference."""
        kind, offset = self.tensors[name]
        if kind.nbytes == 0:
            return torch.empty(kind.shape, dtype=kind.dtype)
        raw: np.ndarray = np.memmap(self.path, dtype=np.uint8, mode="c", offset=offset, shape=(kind.nbytes,))
        if offset % kind.dtype.itemsize:  # other writers may not align
            raw = np.array(raw)
        return torch.from_numpy(raw).view(kind.dtype).reshape(kind.shape)


def _info(name: str, entry: Any, data_start: int) -> TensorInfo:
    try:
        kind = TensorKind(_NAMES[entry["dtype"]], tuple(int(size) for size in entry["shape"]))
        begin, end = (int(place) for place in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"tensor {name!r}: dtype, shape or data_offsets missing or unknown ({error})"
        ) from error
    if min(kind.shape, default=0) < 0 or begin < 0 or end - begin != kind.nbytes:
        raise ValueError(
            f"tensor {name!r}: data_offsets {begin} to {end} do not fit shape {list(kind.shape)}"
        )
    return TensorInfo(kind, data_start + begin)


class TensorFileWriter:
    """A safetensors file to which tensors are added one after the other.

    Room for the header is left at the front and filled at the end. Until then the file is invalid, so write
    to a temporary file and rename it (:func:`sparse_core.common.files.replacing`).
    """

    def __init__(self, path: Path, names: list[str], *, metadata_room: int = 1000) -> None:
        room = 2 * metadata_room + sum(len(json.dumps(name)) + _ENTRY for name in names)
        self._room = -(-room // 8) * 8
        self._entries: dict[str, Any] = {}
        self._position = 0
        self._file = path.open("w+b")
        self._file.seek(8 + self._room)

    def add(self, name: str, tensor: Tensor) -> None:
        """Write a tensor; it may be freed afterwards."""
        if name in self._entries:
            raise ValueError(f"tensor {name!r} was written already")
        plain = tensor.detach().cpu().contiguous()
        code = dtype_named(plain.dtype)
        padding = -self._position % plain.dtype.itemsize
        if padding:
            # The format allows no gaps, so callers add wider types first.
            raise ValueError(f"tensor {name!r} of {code} must be written before narrower ones")
        if plain.numel():
            self._file.write(plain.reshape(-1).view(torch.uint8).numpy().data)
        offsets = [self._position, self._position + plain.nbytes]
        self._position = offsets[1]
        self._entries[name] = {"dtype": code, "shape": list(plain.shape), "data_offsets": offsets}

    def close(self, metadata: Mapping[str, str]) -> None:
        """Write the header, which makes the file valid."""
        header = json.dumps({"__metadata__": dict(metadata), **self._entries}, separators=(",", ":")).encode()
        if len(header) > self._room:
            self._file.close()
            raise ValueError(f"the header needs {len(header)} bytes, but only {self._room} are reserved")
        least = -(-len(header) // 8) * 8
        if least < self._room and self._position <= _MOVED:
            for start in range(0, self._position, _CHUNK):
                self._file.seek(8 + self._room + start)
                chunk = self._file.read(_CHUNK)
                self._file.seek(8 + least + start)
                self._file.write(chunk)
            self._room = least
        self._file.seek(0)
        self._file.write(self._room.to_bytes(8, "little") + header.ljust(self._room))
        self._file.truncate(8 + self._room + self._position)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> TensorFileWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()
