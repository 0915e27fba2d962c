"""State dicts with torch's 2:4 semi-structured tensors, as torchao's and torch's conversions leave them.

A file is what ``torch.save(model.state_dict(), path)`` writes of a model whose weights are
``torch.sparse.to_sparse_semi_structured(weight)``. Files are read without running code from them.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.sparse import (
    SparseSemiStructuredTensor,
    SparseSemiStructuredTensorCUSPARSELT,
    SparseSemiStructuredTensorCUTLASS,
)

from sparse_core.common.files import save_torch
from sparse_core.nm.packing.block_weight import BlockWeight
from sparse_core.nm.packing.coding import FLOATS
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.model import CompressedModel, LayerSettings, split_tied, weight_key
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import TWO_FOUR

_CLASSES: list[Any] = [SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS]
#: The first bytes of a file of torch.save: a ZIP archive.
_START = b"PK\x03\x04"


def is_torch_file(path: str | os.PathLike[str]) -> bool:
    """Return True for a file of ``torch.save``."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_START)) == _START
    except OSError:
        return False


def read_torch_file(path: str | os.PathLike[str]) -> CompressedModel:
    """Read a file of ``torch.save`` with a state dict.

    Raises:
        ValueError: damaged, no state dict, without semi-structured tensors, or with tensors of cuSPARSELt on
            a machine without a GPU.
    """
    device = None if torch.cuda.is_available() else "cpu"
    try:
        with torch.serialization.safe_globals(_CLASSES):
            state = torch.load(path, map_location=device, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"{path}: damaged, or not a state dict: {str(error).splitlines()[0]}") from error
    if not isinstance(state, Mapping):
        raise ValueError(f"{path}: a {type(state).__name__}; save model.state_dict()")
    try:
        return read_state(state)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_state(state: Mapping[str, Any]) -> CompressedModel:
    """Return the model of a state dict: semi-structured weights are packed, other tensors stay.

    Raises:
        ValueError: no semi-structured tensor, an entry that is not a tensor, or a weight that cannot be read.
    """
    weights: dict[str, CompressedWeight | BlockWeight] = {}
    settings: dict[str, LayerSettings] = {}
    others: dict[str, Tensor] = {}
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{key} is a {type(value).__name__}, not a tensor")
        if not isinstance(value, SparseSemiStructuredTensor):
            others[key] = value
            continue
        name = key.removesuffix("weight").removesuffix(".")
        if weight_key(name) != key:
            raise ValueError(f"{key}: only the weights of Linear layers can be semi-structured")
        packed = _packed(key, value)
        weights[name] = CompressedWeight.from_packed(packed)
        settings[name] = LayerSettings("nm", str(packed.dtype))
    if not weights:
        raise ValueError("no tensor is semi-structured; load the file with model.load_state_dict")
    stored, tied = split_tied(others)
    return CompressedModel(weights, stored, tied=tied, settings=settings)


def write_torch_file(model: CompressedModel, path: str | os.PathLike[str]) -> Path:
    """Write a state dict with semi-structured tensors, which torch makes on a GPU only.

    Raises:
        ValueError: a weight that is not 2:4, has other values, or is not on a GPU.
    """
    state = dict(model.other)
    for name, weight in model.weights.items():
        if not isinstance(weight, CompressedWeight) or weight.pattern != TWO_FOUR:
            raise ValueError(f"torch's tensors are 2:4 only; layer {name} has another pattern")
        if weight.coding.kind not in FLOATS:
            raise ValueError(f"torch's tensors hold floating-point values; layer {name} has {weight.coding}")
        try:
            state[weight_key(name)] = weight.to_packed(FLOATS[weight.coding.kind]).to_torch()
        except ValueError as error:
            raise ValueError(f"layer {name}: {error}; move the model first: model.to('cuda')") from error
    state.update({name: state[source] for name, source in model.tied.items()})
    save_torch(Path(path), state)
    return Path(path)


def _packed(key: str, tensor: SparseSemiStructuredTensor) -> PackedNM:
    if isinstance(tensor, SparseSemiStructuredTensorCUSPARSELT) and not torch.cuda.is_available():
        raise ValueError(f"{key}: torch reads tensors of cuSPARSELt on a GPU only; load the file on one")
    try:
        return PackedNM.from_torch(tensor)
    except TypeError as error:
        raise ValueError(f"{key}: {error}") from error
