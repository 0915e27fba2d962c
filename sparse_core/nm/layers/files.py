"""Files of converted models."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from torch import nn

from sparse_core.nm.layers.assembly import coded_model, compressed_layers
from sparse_core.nm.packing.bitmask_files import is_bitmask_checkpoint, read_bitmask, write_bitmask
from sparse_core.nm.packing.files import load_compressed, save_compressed
from sparse_core.nm.packing.model import CompressedModel, split_tied
from sparse_core.nm.packing.torch_files import is_torch_file, read_torch_file, write_torch_file

FileFormat = Literal["sparsight", "sparse-24-bitmask", "torch"]
"""``"sparsight"``: one file. ``"sparse-24-bitmask"``: a folder in the format of compressed-tensors.
``"torch"``: a state dict with torch's semi-structured tensors.
"""


def save_packed(model: nn.Module, path: str | os.PathLike[str], *, format: FileFormat = "sparsight") -> Path:
    """Write a converted model; an existing file is replaced only when the new one is complete.

    Args:
        model: a model with packed layers; the other tensors of its state dict are written unchanged.
        path: file to write, usually ``*.safetensors``. For ``"sparse-24-bitmask"`` an existing folder, such
            as that of a transformer: ``model.safetensors`` is written, and ``config.json`` names the format.
        format: format of the file. ``"sparse-24-bitmask"`` and ``"torch"`` store 2:4 layers of floating-point
            values; ``"torch"`` needs a model on a GPU, where torch makes such tensors.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: no packed layer, a state dict that holds more than tensors, or a layer that the format
            cannot store.
    """
    coded = coded_model(model)
    if format == "sparsight":
        return save_compressed(coded, path)
    if format == "torch":
        return write_torch_file(coded, path)
    if format != "sparse-24-bitmask":
        raise ValueError(f"format must be 'sparsight', 'sparse-24-bitmask' or 'torch', got {format!r}")
    dense = [name for name, module in model.named_modules() if type(module) is nn.Linear]
    return write_bitmask(coded, path, dense_layers=dense)


def load_packed(path: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """Read a file of :func:`save_packed`, or a 2:4 checkpoint of other libraries, into a model.

    Packed layers replace the ``nn.Linear`` or packed layers of the same names, on their device and in their
    floating-point type. The model does not change if the file does not fit.

    Args:
        path: file to read; folder of a checkpoint in compressed-tensors' format ``sparse-24-bitmask``; or a
            file of ``torch.save`` with a state dict that holds torch's semi-structured tensors.
        model: built like the saved one; its weights are overwritten.

    Returns:
        The model, or the new layer if the model was one layer.

    Raises:
        FileNotFoundError: no such file.
        TypeError: a model in the place of the path.
        ValueError: damaged, not of this kind, of another version, or not made from such a model; the message
            names the file and what does not fit.
    """
    if isinstance(path, nn.Module):
        raise TypeError("the path comes first: load_packed(path, model)")
    if is_bitmask_checkpoint(path):
        compressed = _with_ties(read_bitmask(path), model)
    elif is_torch_file(path):
        compressed = _with_ties(read_torch_file(path), model)
    else:
        compressed = load_compressed(path).model
    try:
        return compressed_layers(model, compressed)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _with_ties(compressed: CompressedModel, model: nn.Module) -> CompressedModel:
    """Add tensors that the checkpoint leaves out because the model shares them, such as embeddings."""
    _, shared = split_tied(model.state_dict())
    known = compressed.shapes()
    tied = {name: source for name, source in shared.items() if name not in known and source in known}
    return replace(compressed, tied=tied)
