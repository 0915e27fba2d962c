"""Task vectors on disk: only non-zero numbers, in a few bits each.

A safetensors file with the header fields ``format`` ("sparsight-task-vector"), ``version`` ("1") and
``tensors``. The latter is JSON by name: shape, dtype of the delta, coding of positions and values, entries,
and numbers per scale. For tensor ``x`` the file holds ``x.values``, ``x.scale`` and ``x.positions``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sparse_core.common.files import replacing
from sparse_core.merging.files.encoding import (
    VALUE_CODES,
    StoredValues,
    ValueCode,
    decode_positions,
    decode_values,
    encode_positions,
    encode_values,
)
from sparse_core.merging.files.tensor_files import TensorFileReader, TensorFileWriter, TensorKind
from sparse_core.merging.task_vector import TaskVector

FORMAT = "sparsight-task-vector"
VERSION = "1"
_RECORD = 300


class VectorFileReport(NamedTuple):
    """Size of a written task vector file.

    Attributes:
        path: the file.
        entries: number of stored numbers.
        numel: numbers of the dense vector.
        nbytes: bytes of the file.
        dense_float32: bytes of the dense vector in float32; half of that in float16 or bfloat16.
    """

    path: Path
    entries: int
    numel: int
    nbytes: int
    dense_float32: int


def save_task_vector(
    vector: TaskVector, path: str | os.PathLike[str], *, values: ValueCode = "int8", group: int = 128
) -> VectorFileReport:
    """Write a task vector; an existing file is replaced only when the new one is complete.

    Args:
        vector: usually trimmed first, because zeros take almost no room.
        path: file to write, usually ``*.safetensors``.
        values: storage of the numbers; only ``float32`` is exact.
        group: numbers per scale.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: unknown ``values``, or NaN or infinity.
    """
    return write_task_vector(list(vector.deltas), vector.deltas.__getitem__, path, values=values, group=group)


def write_task_vector(
    names: Iterable[str],
    delta: Callable[[str], Tensor],
    path: str | os.PathLike[str],
    *,
    values: ValueCode = "int8",
    group: int = 128,
    done: Callable[[str], object] = lambda name: None,
) -> VectorFileReport:
    """Write a task vector whose ``delta(name)`` is computed one at a time, so it may exceed memory.

    ``values`` and ``group`` are those of :func:`save_task_vector`. ``done`` is called with each written name.
    """
    file, order = Path(path), list(names)
    if values not in VALUE_CODES:
        raise ValueError(f"values must be one of {', '.join(VALUE_CODES)}, got {values!r}")
    if group < 1:
        raise ValueError(f"group must be at least 1, got {group}")
    records: dict[str, Any] = {}
    keys = [f"{name}.{part}" for name in order for part in ("scale", "values", "positions")]
    room = 200 + sum(len(json.dumps(name)) + _RECORD for name in order)
    entries = numel = 0
    with replacing(file) as temporary, TensorFileWriter(temporary, keys, metadata_room=room) as writer:
        for name in order:
            records[name] = _write(writer, name, delta(name), values, group)
            entries += records[name]["entries"]
            numel += math.prod(records[name]["shape"])
            done(name)
        writer.close(
            {"format": FORMAT, "version": VERSION, "tensors": json.dumps(records, separators=(",", ":"))}
        )
    return VectorFileReport(file, entries, numel, file.stat().st_size, 4 * numel)


def _write(
    writer: TensorFileWriter, name: str, delta: Tensor, values: ValueCode, group: int
) -> dict[str, Any]:
    flat = delta.detach().cpu().reshape(-1)
    if not bool(torch.isfinite(flat).all()):
        raise ValueError(f"tensor {name!r} of the task vector holds NaN or infinity")
    positions = np.flatnonzero(flat.numpy() if flat.dtype != torch.bfloat16 else flat.float().numpy())
    stored = encode_values(flat[torch.from_numpy(positions)], values, group)
    form, placed = encode_positions(positions, flat.numel())
    # Everything is stored as bytes, because the format wants several types sorted by width.
    for part, data in (("scale", stored.scale), ("values", stored.data), ("positions", placed)):
        plain = data if isinstance(data, Tensor) else torch.from_numpy(data)
        writer.add(f"{name}.{part}", plain.contiguous().view(torch.uint8))
    return {
        "shape": list(delta.shape),
        "dtype": str(delta.dtype).removeprefix("torch."),
        "positions": form,
        "values": values,
        "entries": len(positions),
        "group": group,
    }


class TaskVectorReader:
    """A task vector file with the interface of a model; its deltas are decoded one at a time."""

    is_delta = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.places: tuple[Path, ...] = (self.path,)
        self._file = TensorFileReader(path)
        header = self._file.metadata
        if header.get("format") != FORMAT:
            raise ValueError(
                f"{path}: format is {header.get('format')!r}, not {FORMAT!r}: not a task vector file"
            )
        if header.get("version") != VERSION:
            raise ValueError(f"{path}: version is {header.get('version')!r}, this release reads {VERSION!r}")
        try:
            records = json.loads(header["tensors"])
            self.tensors = {
                name: TensorKind(getattr(torch, entry["dtype"]), tuple(int(size) for size in entry["shape"]))
                for name, entry in records.items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}: header field 'tensors' is missing or damaged ({error})") from error
        self._records = records

    def read(self, name: str) -> Tensor:
        """Return one dense delta on the CPU; ``ValueError`` if its stored parts do not match."""
        record, (dtype, shape) = self._records[name], self.tensors[name]
        try:
            code, entries = record["values"], int(record["entries"])
            width = {"int8": torch.int8, "float16": torch.float16, "float32": torch.float32}
            raw = _typed(self._file.read(f"{name}.values"), width.get(code, torch.uint8))
            scale = _typed(self._file.read(f"{name}.scale"), torch.float32)
            values = decode_values(StoredValues(raw, scale), code, int(record["group"]), entries)
            placed = self._file.read(f"{name}.positions").numpy()
            count = math.prod(shape)
            positions = decode_positions(record["positions"], placed, entries, count)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{self.path}: tensor {name!r} is damaged ({error}); write it again") from error
        dense = torch.zeros(count, dtype=dtype)
        dense[torch.from_numpy(positions)] = values.to(dtype)
        return dense.view(shape)


def _typed(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """View bytes as numbers; copies them if they are not aligned."""
    return (raw.clone() if raw.data_ptr() % dtype.itemsize else raw).view(dtype)


def load_task_vector(path: str | os.PathLike[str]) -> TaskVector:
    """Read a whole task vector file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: damaged, not of this kind, or of another version; names the file and the field.
    """
    reader = TaskVectorReader(path)
    return TaskVector({name: reader.read(name) for name in reader.tensors})
