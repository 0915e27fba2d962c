"""2:4 checkpoints of llm-compressor and vLLM: the format ``sparse-24-bitmask`` of compressed-tensors.

A weight is stored as ``<layer>.compressed`` (out, in / 2), its kept values; ``<layer>.bitmask`` (out, in / 8
rounded up) uint8, one bit per column, lowest bit first; and ``<layer>.shape`` (2, 1) int64. All other tensors
have their names in the state dict. A folder may hold several files, and a ``config.json`` whose
``quantization_config`` names the format.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparse_core.common.files import write_file, write_tensors
from sparse_core.nm.packing.block_weight import BlockWeight
from sparse_core.nm.packing.coding import FLOATS
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.model import CompressedModel, LayerSettings
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import TWO_FOUR

BITMASK_FORMAT = "sparse-24-bitmask"
_PARTS = ("shape", "compressed", "bitmask")
_FILE = "model.safetensors"
_CONFIG = "config.json"


def is_bitmask_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Return True for a folder, or for a safetensors file with weights of this format."""
    from safetensors import SafetensorError, safe_open

    place = Path(path)
    if place.is_dir():
        return True
    try:
        with safe_open(str(place), framework="pt") as stored:
            return any(name.endswith(".bitmask") for name in stored.keys())  # noqa: SIM118
    except (SafetensorError, OSError, ValueError):
        return False


def read_bitmask(path: str | os.PathLike[str]) -> CompressedModel:
    """Read a checkpoint: a safetensors file, or a folder with all files of a model.

    Raises:
        FileNotFoundError: no such file, or a folder without safetensors files.
        ValueError: damaged, quantized, or without 2:4 weights; names the file or the layer.
    """
    place = Path(path)
    tensors = _tensors(place)
    names = [name.removesuffix(".bitmask") for name in tensors if name.endswith(".bitmask")]
    if not names:
        raise ValueError(f"{place}: no tensor is named *.bitmask, so it has no weight in {BITMASK_FORMAT}")
    weights: dict[str, CompressedWeight | BlockWeight] = {}
    settings: dict[str, LayerSettings] = {}
    for name in names:
        try:
            packed = _packed(*(tensors.pop(f"{name}.{part}", None) for part in _PARTS))
            if f"{name}.weight_scale" in tensors:
                raise ValueError(
                    "the weight is quantized; decompress the checkpoint with compressed-tensors first"
                )
        except ValueError as error:
            raise ValueError(f"{place}: layer {name}: {error}") from error
        weights[name] = CompressedWeight.from_packed(packed)
        settings[name] = LayerSettings("nm", str(packed.dtype))
    return CompressedModel(weights, tensors, settings=settings)


def write_bitmask(
    model: CompressedModel, folder: str | os.PathLike[str], *, dense_layers: Iterable[str] = ()
) -> Path:
    """Write ``model.safetensors``, and name the format in ``config.json``, whose other fields stay.

    Args:
        model: 2:4 weights in floating point.
        folder: existing folder, for example with the configuration and the tokenizer of a transformer.
        dense_layers: names of the Linear layers that are not sparse.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: a weight that is not 2:4 or has other values, shared weights, or a damaged
            ``config.json``.
    """
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(f"{place}: no such folder; create it first")
    shared = sorted(name for name, source in model.tied.items() if source not in model.other)
    if shared:
        raise ValueError(f"{BITMASK_FORMAT} cannot store {shared[0]}, which shares the weight of a layer")
    tensors = dict(model.other)
    for name, weight in model.weights.items():
        if not isinstance(weight, CompressedWeight) or weight.pattern != TWO_FOUR:
            raise ValueError(f"{BITMASK_FORMAT} stores 2:4 weights only; layer {name} has another pattern")
        if weight.coding.kind not in FLOATS:
            raise ValueError(
                f"{BITMASK_FORMAT} stores floating-point values; layer {name} has {weight.coding}"
            )
        parts = zip(_PARTS, _parts(weight), strict=True)
        tensors.update({f"{name}.{part}": tensor for part, tensor in parts})
    config = _config(place / _CONFIG)
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "sparsity_config": {
            "format": BITMASK_FORMAT,
            "sparsity_structure": "2:4",
            "global_sparsity": _share_of_zeros(model),
            "targets": ["Linear"],
            "ignore": sorted(dense_layers),
        },
    }
    write_tensors(place / _FILE, tensors, kind="pt", version="1")
    write_file(place / _CONFIG, json.dumps(config, indent=2) + "\n")
    return place


def _tensors(place: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    if not files or not files[0].is_file():
        found = "no .safetensors file in this folder" if place.is_dir() else "no such file"
        raise FileNotFoundError(f"{place}: {found}")
    found_tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            found_tensors.update(load_file(file))
        except (SafetensorError, OSError, ValueError) as error:
            raise ValueError(f"{file}: damaged, or not a safetensors file ({error})") from error
    return found_tensors


def _packed(shape: Tensor | None, values: Tensor | None, bitmask: Tensor | None) -> PackedNM:
    if shape is None or values is None or bitmask is None:
        missing = [
            part for part, found in zip(_PARTS, (shape, values, bitmask), strict=True) if found is None
        ]
        raise ValueError(f"{' and '.join(missing)} missing")
    if values.dtype not in FLOATS.values():
        raise ValueError(f"values of type {values.dtype} are not supported; decompress the checkpoint first")
    if shape.numel() != 2 or bitmask.dtype != torch.uint8:
        raise ValueError("shape must have two numbers, and the bitmask must be uint8")
    rows, columns = (int(size) for size in shape.flatten().tolist())
    sizes = (rows, columns // 2), (rows, -(-columns // 8))
    if columns % 4 or (tuple(values.shape), tuple(bitmask.shape)) != sizes:
        raise ValueError(
            f"a weight of {rows} x {columns} does not fit values of {tuple(values.shape)} and a bitmask of"
            f" {tuple(bitmask.shape)}"
        )
    bits = np.unpackbits(bitmask.numpy(), axis=1, count=columns, bitorder="little")
    mask = torch.from_numpy(bits).view(torch.bool)
    if bool((mask.view(rows, -1, 4).sum(2) != 2).any()):
        raise ValueError("the bitmask does not keep 2 of every 4 columns: damaged")
    dense = values.new_zeros(rows, columns)
    dense[mask] = values.flatten()
    return PackedNM.from_dense(dense, TWO_FOUR, mask)


def _parts(weight: CompressedWeight) -> tuple[Tensor, Tensor, Tensor]:
    """Return shape, values and bitmask of a 2:4 weight."""
    rows, columns = weight.matrix_shape
    mask = torch.zeros(rows, columns // 4, 4, dtype=torch.uint8)
    mask.scatter_(2, weight.positions().cpu().long(), 1)
    bits = np.packbits(mask.view(rows, columns).numpy(), axis=1, bitorder="little")
    return torch.tensor([[rows], [columns]]), weight.kept_values(), torch.from_numpy(bits)


def _config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file}: must be a JSON object")
    return found


def _share_of_zeros(model: CompressedModel) -> float:
    total = sum(math.prod(shape) for shape in model.shapes().values())
    dropped = sum(math.prod(weight.view.shape) // 2 for weight in model.weights.values())
    return round(dropped / max(total, 1), 4)
