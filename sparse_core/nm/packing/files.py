"""Safetensors files of models with coded weights, for ``save_compressed`` and ``save_packed``.

The header holds ``format`` ("sparsight-compressed"), ``version`` ("1") and JSON objects:

- ``layers``: shape, coding and checksum of each coded weight, and the settings of its layer, by layer name;
- ``extra``: data of the caller, such as a configuration;
- ``tied``, if there are any: names of tensors that are the same as others, with the names of those;
- ``twins``, if there are any: settings of layers whose weight is tied to another.

Parts of a weight are the tensors ``<layer>.weight@<part>``. All other tensors have their names in the state
dict.

Files of ``format`` "sparsight-nm", which earlier releases wrote for converted models, can be read too.
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

from sparse_core.common.files import TensorFile, read_tensors, write_tensors
from sparse_core.nm.packing.block_weight import BlockWeight
from sparse_core.nm.packing.coding import Coding
from sparse_core.nm.packing.compressed_weight import PARTS, CompressedWeight
from sparse_core.nm.packing.matrix_view import MatrixView
from sparse_core.nm.packing.model import CompressedModel, LayerSettings, weight_key
from sparse_core.nm.packing.state_files import OLD_FORMAT, OLD_VERSION, model_of_state
from sparse_core.nm.pattern import NMPattern

FORMAT = "sparsight-compressed"
VERSION = "1"
_MARK = "@"
_BLOCK_PARTS = ("values", "row_ptr", "col")


class CompressedFile(NamedTuple):
    """Result of :func:`load_compressed`.

    Attributes:
        model: weights and other tensors, on the CPU.
        extra: data of the caller.
    """

    model: CompressedModel
    extra: dict[str, Any]


def save_compressed(
    model: CompressedModel, path: str | os.PathLike[str], *, extra: Mapping[str, Any] | None = None
) -> Path:
    """Write a compressed model; an existing file is replaced only when the new one is complete.

    Args:
        model: from :func:`sparse_core.compression.compress_model`.
        path: file to write, usually ``*.safetensors``.
        extra: JSON-serialisable data for the header.

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
        records[name] = {**_record_of(weight), "crc32": _checksum(parts)}
        if name in model.settings:
            records[name]["layer"] = asdict(model.settings[name])
    header = {"layers": json.dumps(records), "extra": json.dumps(dict(extra or {}))}
    if model.tied:
        header["tied"] = json.dumps(model.tied)
    twins = {name: asdict(found) for name, found in model.settings.items() if name not in records}
    if twins:
        header["twins"] = json.dumps(twins)
    return write_tensors(path, tensors, kind=FORMAT, version=VERSION, **header)


def load_compressed(path: str | os.PathLike[str]) -> CompressedFile:
    """Read and check a file of :func:`save_compressed` or :func:`sparse_core.nm.save_packed`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: damaged or truncated, not of this kind, of another version, or with parts that do not fit
            each other; names the file, the layer and the field.
    """
    file = Path(path)
    found = read_tensors(
        file,
        kind=FORMAT,
        version=VERSION,
        writer="save_compressed or save_packed",
        older={OLD_FORMAT: OLD_VERSION},
    )
    if found.header["format"] == OLD_FORMAT:
        return CompressedFile(model_of_state(file, found), {})
    return _read(file, found)


def _read(file: Path, found: TensorFile) -> CompressedFile:
    tensors = found.tensors
    try:
        records, extra = found.object("layers"), found.object("extra")
        tied, twins = (found.object(field) if field in found.header else {} for field in ("tied", "twins"))
    except ValueError as error:
        raise ValueError(f"{file}: the header is damaged: {error}") from error
    weights: dict[str, CompressedWeight | BlockWeight] = {}
    settings = {}
    for name, record in {**records, **twins}.items():
        try:
            described = record if name in twins else record.get("layer")
            if described is not None:
                settings[name] = LayerSettings(**described)
            if name in records:
                names = _BLOCK_PARTS if "blocks" in record else PARTS
                parts = {part: tensors.pop(_part_key(name, part), None) for part in names}
                held = {part: tensor for part, tensor in parts.items() if tensor is not None}
                weights[name] = _weight(record, held)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{file}: layer {name or '(model)'}: {what}; write the file again") from error
    stray = sorted(name for name in tensors if _MARK in name)
    if stray:
        raise ValueError(f"{file}: {stray[0]} belongs to no layer of the header; write the file again")
    stored = {*tensors, *(weight_key(name) for name in weights)}
    for name, source in tied.items():
        if name in stored or source not in stored:
            raise ValueError(
                f"{file}: tied: {name!r} refers to {source!r}, which is missing; write the file again"
            )
    return CompressedFile(CompressedModel(weights, tensors, tied=tied, settings=settings), extra)


def _record_of(weight: CompressedWeight | BlockWeight) -> dict[str, Any]:
    """Return the fields of a weight that are not tensors."""
    shape = list(weight.view.shape)
    if isinstance(weight, BlockWeight):
        return {"shape": shape, "blocks": weight.block_size}
    return {
        "shape": shape,
        "layout": weight.view.layout,
        "n": weight.pattern.n,
        "m": weight.pattern.m,
        "coding": asdict(weight.coding),
        "index": weight.index_coding,
        "zero": weight.zero,
    }


def _weight(record: Mapping[str, Any], parts: dict[Any, Tensor]) -> CompressedWeight | BlockWeight:
    shape = tuple(int(size) for size in record["shape"])
    for name in ("values", "row_ptr", "col") if "blocks" in record else ("values", "index"):
        if name not in parts:
            raise ValueError(f"the tensor of its {name} is missing")
    weight: CompressedWeight | BlockWeight
    if "blocks" in record:
        weight = BlockWeight.from_parts(parts, shape, record["blocks"])
    else:
        weight = CompressedWeight(
            MatrixView(shape, record["layout"]),
            NMPattern(int(record["n"]), int(record["m"])),
            Coding(**record["coding"]),
            record["index"],
            zero=bool(record["zero"]),
            **parts,
        )
    if _checksum(parts) != record["crc32"]:
        raise ValueError("its checksum (crc32) is another: the data is damaged")
    if isinstance(weight, CompressedWeight):
        # Weights of layers are stored unchanged, even if training has made them infinite.
        weight.check(finite="layer" not in record)
    return weight


def _checksum(parts: Mapping[str, Tensor]) -> int:
    """Return the CRC-32 over the bytes of all parts in order."""
    found = 0
    for name in (*PARTS, "row_ptr", "col"):
        if name in parts and parts[name].numel():
            found = zlib.crc32(parts[name].reshape(-1).view(torch.uint8).numpy().data, found)
    return found


def _part_key(name: str, part: str) -> str:
    return f"{weight_key(name)}{_MARK}{part}"
