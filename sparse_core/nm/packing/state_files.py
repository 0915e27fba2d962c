"""Files of converted models written by releases up to 0.1: the state dict of the packed layers.

The header holds ``format`` ("sparsight-nm"), ``version`` ("1") and two JSON objects. ``layers`` describes
each packed layer by name. ``tied`` maps the name of a tensor that is not stored to the name of its twin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparse_core.common.files import TensorFile
from sparse_core.nm.packing.block_weight import BlockWeight
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.model import CompressedModel, LayerSettings, weight_key
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import NMPattern

OLD_FORMAT = "sparsight-nm"
OLD_VERSION = "1"
_WEIGHT = ("values", "metadata", "weight_scale", "activation_scale", "row_ptr", "col", "_extra_state")


def model_of_state(file: Path, found: TensorFile) -> CompressedModel:
    """Return the model of such a file."""
    tensors = found.tensors
    try:
        records, tied = found.object("layers"), found.object("tied")
        for name, source in tied.items():
            if source not in tensors or name in tensors:
                raise ValueError(f"tied: {name!r} is said to share {source!r}")
    except ValueError as error:
        raise ValueError(f"{file}: the header is damaged: {error}") from error
    every = {**tensors, **{name: tensors[source] for name, source in tied.items()}}
    # Layers that share values: other names of a module, and layers that share a weight.
    twins = {
        owner: first
        for (owner, key), (first, _) in ((_split(name), _split(source)) for name, source in tied.items())
        if key == "values" and first in records
    }
    parts = {
        owner: {key: every.pop(_joined(owner, key)) for key in _WEIGHT if _joined(owner, key) in every}
        for owner in {**records, **twins}
    }
    weights: dict[str, CompressedWeight | BlockWeight] = {}
    settings: dict[str, LayerSettings] = {}
    for name, record in records.items():
        try:
            weight, settings[name] = _layer(record, parts[name])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{file}: layer {name or '(model)'}: {what}; save it again") from error
        if name not in twins:
            weights[name] = weight
    other = {name: tensor for name, tensor in every.items() if name not in tied}
    ties = {name: source for name, source in tied.items() if name in every}
    ties.update({weight_key(owner): weight_key(first) for owner, first in twins.items()})
    return CompressedModel(weights, other, tied=ties, settings=settings)


def _split(name: str) -> tuple[str, str]:
    """Split a tensor's name into layer and key."""
    owner, _, key = name.rpartition(".")
    return owner, key


def _joined(owner: str, key: str) -> str:
    return f"{owner}.{key}" if owner else key


def _layer(record: Any, parts: dict[str, Tensor]) -> tuple[CompressedWeight | BlockWeight, LayerSettings]:
    shape = tuple(int(size) for size in record["shape"])
    scale = parts.get("activation_scale")
    settings = LayerSettings(
        record["kind"], record["dtype"], record["activation"], None if scale is None else float(scale)
    )
    if settings.kind == "blocks":
        return BlockWeight.from_parts(parts, shape, record["block_size"]), settings
    pattern = NMPattern(record["n"], record["m"])
    expected = torch.tensor([1, pattern.n, pattern.m])
    if not torch.equal(parts["_extra_state"], expected):
        raise ValueError(f"_extra_state must be {expected.tolist()}, got {parts['_extra_state'].tolist()}")
    packed = PackedNM(parts["values"], parts["metadata"], (shape[0], shape[1]), pattern)
    packed.positions()
    scale = parts["weight_scale"] if settings.kind == "int8" else None
    return CompressedWeight.from_packed(packed, scale), settings
