"""Models with packed layers in safetensors files.

The file holds the state dict, tied tensors once, and in its header ``format`` ("sparsight-nm"), ``version``
("1"), ``layers`` (JSON: what each packed layer is, by name) and ``tied`` (JSON: name of a tensor that is not
stored, name of the one that it shares).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from sparse_core.common.files import read_tensors, write_tensors
from sparse_core.common.surgery import replace_modules, shapes_of, state_difference
from sparse_core.nm.layers.conversion import PackedModule, require_packed_layers
from sparse_core.nm.layers.encoder import call_packed_layers
from sparse_core.nm.layers.int8_linear import SparseLinearInt8
from sparse_core.nm.packing.state_files import LayerRecord, record_of
from sparse_core.nm.pruning.selection import as_linear

FORMAT = "sparsight-nm"
VERSION = "1"


def save_packed(model: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Write a converted model; an existing file is replaced only once the new one is complete.

    Args:
        model: a model with packed layers; the other tensors of its state dict are written as they are.
        path: of the file, usually ``*.safetensors``.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: no packed layer, or a state dict that holds more than tensors.
    """
    layers = {name: record_of(layer).to_json() for name, layer in require_packed_layers(model).items()}
    stored, tied = split_tied(model.state_dict())
    fields = {"layers": json.dumps(layers), "tied": json.dumps(tied)}
    return write_tensors(path, stored, kind=FORMAT, version=VERSION, **fields)


def load_packed(path: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """Read a file of :func:`save_packed` into a model.

    The layers that are packed in the file take the place of the ``nn.Linear`` layers of those names, on
    their device and in their floating-point type; a model that is converted already is only loaded.
    Nothing is changed when the file does not fit.

    Args:
        path: of the file.
        model: built like the one that was saved; its weights are overwritten.

    Returns:
        The model, or the new layer where the model was one layer.

    Raises:
        FileNotFoundError: no such file.
        ValueError: damaged, not of this kind, of another version, or not made from such a model; the message
            names the file and what does not fit.
    """
    file = Path(path)
    contents = read_packed(file)
    new = _new_layers(contents, model)
    _check_tensors(contents, model, new)
    for name, layer in new.items():
        prefix = f"{name}." if name else ""
        try:
            layer.load_state_dict({key: contents.tensors[prefix + key] for key in layer.state_dict()})
        except ValueError as error:
            raise ValueError(f"{file}: layer {name or '(model)'}: {error}") from error
    modules = dict(model.named_modules())
    model = replace_modules(model, {modules[name]: layer for name, layer in new.items()})
    model.load_state_dict(contents.tensors)
    call_packed_layers(model)
    return model


class PackedContents(NamedTuple):
    """What a file holds.

    Attributes:
        file: where it was read from.
        layers: packed layers by name.
        tensors: the state dict; tied tensors appear under all their names.
        tied: for each tensor that is not stored itself, the name of the one that it shares.
    """

    file: Path
    layers: dict[str, LayerRecord]
    tensors: dict[str, Tensor]
    tied: dict[str, str]


def read_packed(path: str | os.PathLike[str]) -> PackedContents:
    """Read and check a file of :func:`save_packed`, on the CPU.

    Raises:
        FileNotFoundError: no such file.
        ValueError: damaged, not of this kind, or of another version; names the file and the field.
    """
    file = Path(path)
    found = read_tensors(file, kind=FORMAT, version=VERSION, writer="save_packed")
    tensors = found.tensors
    try:
        layers = {name: LayerRecord.from_json(record) for name, record in found.object("layers").items()}
        tied = found.object("tied")
        for name, source in tied.items():
            if source not in tensors or name in tensors:
                raise ValueError(f"tied: {name!r} is said to share {source!r}")
    except ValueError as error:
        raise ValueError(f"{file}: the header is damaged: {error}") from error
    tensors.update({name: tensors[source] for name, source in tied.items()})
    return PackedContents(file, layers, tensors, tied)


def _new_layers(contents: PackedContents, model: nn.Module) -> dict[str, PackedModule]:
    """Empty layers of the kinds in the file, beside the layers of the model that they are to replace."""
    modules = dict(model.named_modules())
    new = {}
    for name, record in contents.layers.items():
        where = f"{contents.file}: layer {name or '(model)'}"
        there = modules.get(name)
        old = None if there is None else as_linear(there)
        if not isinstance(old, nn.Linear | PackedModule):
            found = "is missing from" if old is None else f"is {type(old).__name__} in"
            raise ValueError(f"{where} {found} the model; the file has it as {record.pattern}")
        shape = (old.out_features, old.in_features)
        if shape != record.shape or (old.bias is not None) != record.bias:
            raise ValueError(
                f"{where} is {record.shape} {_with(record.bias)} in the file"
                f" but {shape} {_with(old.bias is not None)} in the model"
            )
        sample = old.weight
        layer = record.empty_layer(sample.dtype, sample.device).train(old.training)
        if not isinstance(layer, SparseLinearInt8):
            layer.values.requires_grad_(sample.requires_grad)
        new[name] = layer
    return new


def _with(bias: bool) -> str:
    return "with bias" if bias else "without bias"


def _check_tensors(contents: PackedContents, model: nn.Module, new: dict[str, PackedModule]) -> None:
    """Names and shapes that the converted model would have, against those of the file."""
    modules = dict(model.named_modules(remove_duplicate=False))
    replaced = {modules[name]: layer for name, layer in new.items()}
    expected = shapes_of(model.state_dict())
    for name, module in modules.items():
        if module not in replaced:
            continue
        prefix = f"{name}." if name else ""
        for key in module.state_dict():
            expected.pop(prefix + key, None)
        layer_state = shapes_of(replaced[module].state_dict())
        expected.update({prefix + key: shape for key, shape in layer_state.items()})
    difference = state_difference(expected, shapes_of(contents.tensors))
    if difference is not None:
        raise ValueError(f"{contents.file}: not made from such a model: {difference}")


def split_tied(state: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a state dict to store, and for each that shares its memory with one the name of that.

    Raises:
        ValueError: an entry is no tensor.
    """
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    names: dict[Any, str] = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} of the state dict is {type(value).__name__}: a file holds tensors only")
        key = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if value.numel() and key in names:
            tied[name] = names[key]
            continue
        names[key] = name
        stored[name] = value.detach()
    return stored, tied
