"""Models on disk, read tensor by tensor: a file, a folder of shards, a task vector, a model with a LoRA."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Protocol

from torch import Tensor

from sparse_core.merging.files.lora import LoraAdapter
from sparse_core.merging.files.tensor_files import TensorFileReader, TensorKind
from sparse_core.merging.files.vector_files import FORMAT, TaskVectorReader

INDEX_NAME = "model.safetensors.index.json"


class ModelOnDisk(Protocol):
    """Interface of a model for merging; ``places`` are all files and folders from which it is read."""

    path: Path
    places: tuple[Path, ...]
    tensors: dict[str, TensorKind]
    is_delta: bool

    def read(self, name: str) -> Tensor:
        """Return one tensor on the CPU."""


class FolderModel:
    """Weights in open safetensors files."""

    is_delta = False

    def __init__(self, path: Path, shards: dict[str, TensorFileReader]) -> None:
        self.path = path
        self.places: tuple[Path, ...] = (path,)
        self._shards = shards
        self.tensors = {name: shard.tensors[name].kind for name, shard in shards.items()}

    def read(self, name: str) -> Tensor:
        """Return one tensor, mapped from its file."""
        return self._shards[name].read(name)


class AdaptedModel:
    """A model with a LoRA adapter that is added as tensors are read."""

    is_delta = False

    def __init__(self, base: ModelOnDisk, adapter: LoraAdapter) -> None:
        if base.is_delta:
            raise ValueError(f"{base.path}: a LoRA is added to a whole model, not to a task vector file")
        adapter.check({name: kind.shape for name, kind in base.tensors.items()}, str(base.path))
        self.path = base.path
        self.places: tuple[Path, ...] = (*base.places, adapter.path)
        self.tensors = base.tensors
        self._base, self._adapter = base, adapter

    def read(self, name: str) -> Tensor:
        """Return one tensor; float32 if the LoRA is added to a narrower type."""
        return self._adapter.apply(name, self._base.read(name))


def open_model(path: str | os.PathLike[str]) -> ModelOnDisk:
    """Open a model's weights without reading them.

    Args:
        path: a ``.safetensors`` file, an index of shards, a task vector file, a folder with one of them, or
            ``MODEL+LORA`` with an adapter's folder, mergekit's syntax.
    """
    place = Path(path)
    if not place.exists() and "+" in str(path):
        base, _, adapter = str(path).rpartition("+")
        return AdaptedModel(open_model(base), LoraAdapter(Path(adapter)))
    if place.is_dir():
        return _open_folder(place)
    if not place.exists():
        raise FileNotFoundError(
            f"{place}: no such file or folder{'' if place.is_absolute() else f' in {Path.cwd()}'};"
            " models are read from disk, so download them first"
        )
    if place.name.endswith(".json"):
        return _open_index(place, place)
    if place.suffix in (".bin", ".pt", ".pth", ".ckpt"):
        raise ValueError(f"{place}: pickled weights are not supported: convert them to safetensors")
    reader = TensorFileReader(place)
    if reader.metadata.get("format") == FORMAT:
        return TaskVectorReader(place)
    return FolderModel(place, dict.fromkeys(reader.tensors, reader))


def _open_folder(folder: Path) -> ModelOnDisk:
    if (folder / INDEX_NAME).is_file():
        return _open_index(folder, folder / INDEX_NAME)
    files = sorted(folder.glob("*.safetensors"))
    preferred = folder / "model.safetensors"
    if preferred in files:
        files = [preferred]
    if not files:
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt"))
        hint = ": pickled weights are not read, save them as safetensors first" if pickled else ""
        raise FileNotFoundError(f"{folder}: no *.safetensors and no {INDEX_NAME} in this folder{hint}")
    shards: dict[str, TensorFileReader] = {}
    for file in files:
        reader = TensorFileReader(file)
        for name in reader.tensors:
            if name in shards:
                raise ValueError(
                    f"{folder}: tensor {name!r} is in {shards[name].path.name} and in {file.name};"
                    f" name one file, or add {INDEX_NAME}"
                )
            shards[name] = reader
    return FolderModel(folder, shards)


def _open_index(place: Path, index: Path) -> FolderModel:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        named = {str(name): str(file) for name, file in weight_map.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index}: weight_map is missing or damaged ({error!r})") from error
    readers: dict[str, TensorFileReader] = {}
    shards = {}
    for name, file in named.items():
        if Path(file).name != file:
            raise ValueError(f"{index}: weight_map: {file!r} is not a file in the index's folder")
        if file not in readers:
            readers[file] = TensorFileReader(index.parent / file)
        if name not in readers[file].tensors:
            raise ValueError(f"{index}: weight_map lists {name!r} in {file}, which lacks it")
        shards[name] = readers[file]
    return FolderModel(place, shards)
