"""Compressed models in safetensors files.

The header holds ``format`` ("sparsight-compressed"), ``version`` ("1"), ``layers`` (JSON: shape, layout,
pattern, coding and checksum of each compressed weight, by layer name), ``extra`` (JSON: whatever the caller
wants to keep, such as a configuration) and, where there are any, ``tied`` (JSON: names of tensors that are
others, with the names of those). Parts of a weight are the tensors ``<layer>.weight@<part>``;
all other tensors have their names in the state dict.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparse_core.common.files import read_tensors, write_tensors
from sparse_core.compression.model import CompressedModel, MatrixView, weight_key
from sparse_core.nm.packing.coding import Coding
from sparse_core.nm.packing.compressed_weight import PARTS, CompressedWeight
from sparse_core.nm.pattern import NMPattern

FORMAT = "sparsight-compressed"
VERSION = "1"
_MARK = "@"


class CompressedFile(NamedTuple):
    """What :func:`load_compressed` reads.

    Attributes:
        model: weights and other tensors, on the CPU.
        extra: what the caller kept.
    """

    model: CompressedModel
    extra: dict[str, Any]


def save_compressed(
    model: CompressedModel, path: str | os.PathLike[str], *, extra: Mapping[str, Any] | None = None
) -> Path:
    """Write a compressed model; an existing file is replaced only once the new one is complete.

    Args:
        model: from :func:`compress_model`.
        path: of the file, usually ``*.safetensors``.
        extra: anything that ``json`` writes, kept in the header.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    tensors = dict(model.other)
    records = {}
    for name, weight in model.weights.items():
        parts = {part: tensor.detach().cpu().contiguous() for part, tensor in weight.parts().items()}
        tensors.update({_part_key(name, part): tensor for part, tensor in parts.items()})
        records[name] = {
            "shape": list(weight.view.shape),
            "layout": weight.view.layout,
            "n": weight.pattern.n,
            "m": weight.pattern.m,
            "coding": asdict(weight.coding),
            "index": weight.index_coding,
            "zero": weight.zero,
            "crc32": _checksum(parts),
        }
    header = {"layers": json.dumps(records), "extra": json.dumps(dict(extra or {}))}
    if model.tied:
        header["tied"] = json.dumps(model.tied)
    return write_tensors(path, tensors, kind=FORMAT, version=VERSION, **header)


def load_compressed(path: str | os.PathLike[str]) -> CompressedFile:
    """Read and check a file of :func:`save_compressed`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: damaged or cut off, not of this kind, of another version, or with parts that do not fit
            each other; names the file, the layer and the field.
    """
    file = Path(path)
    found = read_tensors(file, kind=FORMAT, version=VERSION, writer="save_compressed")
    tensors = found.tensors
    try:
        records, extra = found.object("layers"), found.object("extra")
        tied = found.object("tied") if "tied" in found.header else {}
    except ValueError as error:
        raise ValueError(f"{file}: the header is damaged: {error}") from error
    weights = {}
    for name, record in records.items():
        parts = {part: tensors.pop(_part_key(name, part), None) for part in PARTS}
        try:
            weights[name] = _weight(record, {part: held for part, held in parts.items() if held is not None})
        except (KeyError, TypeError, ValueError) as error:
            what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{file}: layer {name or '(model)'}: {what}; write the file again") from error
    stray = sorted(name for name in tensors if _MARK in name)
    if stray:
        raise ValueError(f"{file}: {stray[0]} belongs to no layer of the header; write the file again")
    stored = {*tensors, *(weight_key(name) for name in weights)}
    for name, source in tied.items():
        if name in stored or source not in stored:
            raise ValueError(f"{file}: tied: {name!r} is said to be {source!r}; write the file again")
    return CompressedFile(CompressedModel(weights, tensors, tied=tied), extra)


def _weight(record: Mapping[str, Any], parts: dict[Any, Tensor]) -> CompressedWeight:
    if not isinstance(record, Mapping):
        raise TypeError(f"the record must be a JSON object, got {type(record).__name__}")
    for name in ("values", "index"):
        if name not in parts:
            raise ValueError(f"the tensor of its {name} is missing")
    weight = CompressedWeight(
        MatrixView(tuple(int(size) for size in record["shape"]), record["layout"]),
        NMPattern(int(record["n"]), int(record["m"])),
        Coding(**record["coding"]),
        record["index"],
        zero=bool(record["zero"]),
        **parts,
    )
    if _checksum(parts) != record["crc32"]:
        raise ValueError("its checksum (crc32) is another: the data is damaged")
    weight.check()
    return weight


def _checksum(parts: Mapping[Any, Tensor]) -> int:
    """CRC-32 over the bytes of all parts in their order."""
    found = 0
    for name in PARTS:
        if name in parts and parts[name].numel():
            found = zlib.crc32(parts[name].reshape(-1).view(torch.uint8).numpy().data, found)
    return found


def _part_key(name: str, part: str) -> str:
    return f"{weight_key(name)}{_MARK}{part}"
