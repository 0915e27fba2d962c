"""Merge models on disk tensor by tensor, so that none of them has to fit into memory."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from sparse_core.common.files import replacing, replacing_folder
from sparse_core.common.table import Report, Table
from sparse_core.merging.arithmetic.pieces import Delta
from sparse_core.merging.arithmetic.sums import Share
from sparse_core.merging.arithmetic.tensor import merge_one
from sparse_core.merging.files.encoding import ValueCode
from sparse_core.merging.files.models import INDEX_NAME, ModelOnDisk, open_model
from sparse_core.merging.files.tensor_files import TensorFileWriter, TensorKind
from sparse_core.merging.files.vector_files import VectorFileReport, write_task_vector
from sparse_core.merging.recipes.recipe import Recipe
from sparse_core.merging.recipes.settings import count_layers
from sparse_core.merging.task_vector import TaskVector, check_same_tensors

#: Companion files of a model's weights, copied from the base's folder.
_COMPANIONS = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    "merges.txt",
    "tokenizer*",
    "vocab*",
    "chat_template*",
    "*.tiktoken",
)


def plan_shards(kinds: dict[str, TensorKind], place: Path, most: int) -> dict[str, list[str]]:
    """Return the tensor names of each file, wider types first, as the format's alignment requires."""
    groups: list[list[str]] = [[]]
    filled = 0
    for name, kind in kinds.items():
        if place.suffix != ".safetensors" and groups[-1] and filled + kind.nbytes > most:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += kind.nbytes
    sorted_groups = [sorted(group, key=lambda name: -kinds[name].dtype.itemsize) for group in groups]
    if place.suffix == ".safetensors":
        return {place.name: sorted_groups[0]}
    if len(groups) == 1:
        return {"model.safetensors": sorted_groups[0]}
    total = len(groups)
    return {
        f"model-{number:05d}-of-{total:05d}.safetensors": group
        for number, group in enumerate(sorted_groups, start=1)
    }


def write_index(folder: Path, shards: dict[str, list[str]], nbytes: int) -> None:
    """Write the index of shards: the file of each tensor."""
    weight_map = {name: file for file, shard in shards.items() for name in shard}
    index = {"metadata": {"total_size": nbytes}, "weight_map": weight_map}
    (folder / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def copy_companions(source: Path, folder: Path) -> None:
    """Copy configuration and tokenizer files if the source is a folder."""
    if source.is_dir():
        for pattern in _COMPANIONS:
            for file in source.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, folder / file.name)


@dataclass(frozen=True)
class MergeReport(Report):
    """Result of a merge or a dry run.

    Attributes:
        out: file or folder written.
        method: name of the method.
        base: path of the base, if any.
        models: paths of the merged models.
        tensors: number of tensors.
        parameters: number of merged parameters.
        copied: number of integer tensors copied from the base.
        nbytes: bytes of the tensors written.
        files: names of the weight files.
        layers: number of layers over which gradients run.
        notes: settings of the recipe that have no effect.
        written: False for a dry run.
    """

    out: str
    method: str
    base: str | None
    models: list[str]
    tensors: int
    parameters: int
    copied: int
    nbytes: int
    files: list[str]
    layers: int
    notes: list[str]
    written: bool

    def tables(self) -> list[Table | str]:
        """Return the result as lines of text."""
        rows = [
            ["method", self.method],
            ["base", self.base or "-"],
            *(["model", path] for path in self.models),
            ["tensors", f"{self.tensors:,} ({self.copied:,} integer tensors copied unchanged)"],
            ["parameters", f"{self.parameters:,}"],
            [
                "out" if self.written else "would write",
                f"{self.out}, {self.nbytes:,} bytes, {len(self.files)} file(s)",
            ],
            *(["note", note] for note in self.notes),
        ]
        return [Table(("merge", ""), rows)]


class _Models(NamedTuple):
    """The open models: the one that sets names and shapes, the base if any, and the others."""

    pattern: ModelOnDisk
    base: ModelOnDisk | None
    others: list[ModelOnDisk]


@torch.no_grad()
def merge_files(
    recipe: Recipe,
    out: str | os.PathLike[str] | None = None,
    *,
    max_shard_bytes: int = 5_000_000_000,
    overwrite: bool = False,
    dry_run: bool = False,
    progress: bool = False,
) -> MergeReport:
    """Merge models on disk by a recipe.

    One tensor of each model is mapped at a time, and each merged tensor is written at once: memory holds only
    the largest tensor of the result. ``out`` appears only when it is complete.

    Args:
        recipe: from :func:`~sparse_core.merging.recipes.recipe.load_recipe`.
        out: a ``*.safetensors`` file or a folder; by default the recipe's. A folder gets shards with an index
            if one file would exceed ``max_shard_bytes``, and the base's configuration and tokenizer files.
        max_shard_bytes: largest size of a file, unless one tensor is larger.
        overwrite: replace an existing ``out``.
        dry_run: check the recipe and the models' headers without writing.
        progress: show a progress bar on standard error.

    Raises:
        FileNotFoundError: a model does not exist.
        FileExistsError: ``out`` exists and ``overwrite`` is not set.
        ValueError: models with other tensors or shapes, damaged files, NaN or infinity, settings that do not
            fit.
    """
    target = out if out is not None else recipe.out
    if target is None:
        raise ValueError("no output path: pass out (--out of the command), or set 'out' in the recipe")
    place = Path(target)
    models = _open(recipe)
    names = list(models.pattern.tensors)
    layers = count_layers(names)
    _check_layers(recipe, layers)
    _check_target(place, models, overwrite)
    kinds = {name: _result_kind(recipe, kind) for name, kind in models.pattern.tensors.items()}
    shards = plan_shards(kinds, place, max_shard_bytes)
    floating = [name for name in names if kinds[name].dtype.is_floating_point]
    report = MergeReport(
        str(place),
        recipe.method.name,
        recipe.base,
        [entry.path for entry in recipe.models],
        len(names),
        sum(math.prod(kinds[name].shape) for name in floating),
        len(names) - len(floating),
        sum(kind.nbytes for kind in kinds.values()),
        list(shards),
        layers,
        [*recipe.notes, *recipe.unused(floating)],
        not dry_run,
    )
    if dry_run:
        return report
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{place}: the folder {place.parent} does not exist (create it first)")
    with _bar(progress) as bar:
        task = bar.add_task("merging", total=len(names))

        def write(path: Path, shard: list[str]) -> None:
            with TensorFileWriter(path, shard) as writer:
                for name in shard:
                    writer.add(name, _merge_tensor(recipe, models, name, kinds[name], layers))
                    bar.advance(task)
                writer.close({"format": "pt"})

        if place.suffix == ".safetensors":
            with replacing(place) as temporary:
                write(temporary, next(iter(shards.values())))
        else:
            with replacing_folder(place) as folder:
                for file, shard in shards.items():
                    write(folder / file, shard)
                if len(shards) > 1:
                    write_index(folder, shards, report.nbytes)
                copy_companions(models.pattern.path, folder)
    return report


def make_task_vector(
    base: str | os.PathLike[str],
    tuned: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    density: float = 1.0,
    values: ValueCode = "int8",
    group: int = 128,
    progress: bool = False,
) -> VectorFileReport:
    """Write the difference of a tuned model from its base as a task vector file, tensor by tensor.

    Args:
        base: model on disk.
        tuned: model on disk, tuned from it.
        out: file to write.
        density: share of the largest magnitudes of each tensor to keep, in (0, 1].
        values: see :func:`~sparse_core.merging.files.vector_files.save_task_vector`.
        group: numbers per scale.
        progress: show a progress bar on standard error.
    """
    before, after = open_model(base), open_model(tuned)
    check_same_tensors(_shapes(before), _shapes(after), str(tuned), str(base))
    names = [name for name, kind in before.tensors.items() if kind.dtype.is_floating_point]

    def delta(name: str) -> Tensor:
        made = TaskVector.between({name: before.read(name)}, {name: after.read(name)})
        return (made if density >= 1 else made.trim(density)).deltas[name]

    if not 0 < density <= 1:
        raise ValueError(f"density must be above 0 and at most 1, got {density}")
    with _bar(progress) as bar:
        task = bar.add_task("task vector", total=len(names))
        return write_task_vector(
            names, delta, out, values=values, group=group, done=lambda name: bar.advance(task)
        )


def _open(recipe: Recipe) -> _Models:
    base = None if recipe.base is None else open_model(recipe.base)
    if base is not None and base.is_delta:
        raise ValueError(f"{recipe.base}: base_model is a task vector file; it must be a whole model")
    others = [open_model(entry.path) for entry in recipe.models]
    for model in others:
        if model.is_delta and (recipe.method.takes_models or base is None):
            raise ValueError(f"{model.path}: {recipe.method.name} takes whole models, not task vector files")
    pattern = base if base is not None and recipe.method.base != "unused" else others[0]
    for entry, model in zip(recipe.models, others, strict=True):
        expected = _shapes(pattern)
        if model.is_delta:
            floating = {name for name, kind in pattern.tensors.items() if kind.dtype.is_floating_point}
            expected = {name: shape for name, shape in expected.items() if name in floating}
        check_same_tensors(expected, _shapes(model), entry.path, str(pattern.path))
        for name, kind in model.tensors.items():
            if kind.dtype.is_floating_point != pattern.tensors[name].dtype.is_floating_point:
                raise ValueError(
                    f"{entry.path}: tensor {name!r} is {kind.dtype}, {pattern.path} has another kind"
                )
    return _Models(pattern, base, others)


def _shapes(model: ModelOnDisk) -> dict[str, tuple[int, ...]]:
    return {name: kind.shape for name, kind in model.tensors.items()}


def _check_layers(recipe: Recipe, layers: int) -> None:
    if recipe.layer_range is not None and recipe.layer_range != (0, layers):
        first, last = recipe.layer_range
        raise ValueError(
            f"slices: layer_range [{first}, {last}] is not all of the {layers} layers:"
            " whole models are merged only"
        )


def _check_target(place: Path, models: _Models, overwrite: bool) -> None:
    if place.suffix in (".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx"):
        raise ValueError(f"{place}: models are written as safetensors: name a folder or a *.safetensors file")
    resolved = place.resolve()
    for path in [path for model in (models.pattern, *models.others) for path in model.places]:
        if resolved in (path.resolve(), *path.resolve().parents):
            raise ValueError(f"{place}: is or holds the model {path} that is read; choose another out")
    if place.suffix == ".safetensors" and place.is_dir():
        raise FileExistsError(f"{place}: is a folder")
    if place.exists() and not overwrite and not (place.is_dir() and not any(place.iterdir())):
        raise FileExistsError(f"{place}: exists; choose another out, or pass overwrite=True (--overwrite)")


def _result_kind(recipe: Recipe, kind: TensorKind) -> TensorKind:
    keep = recipe.dtype is None or not kind.dtype.is_floating_point
    return kind if keep else TensorKind(recipe.dtype or kind.dtype, kind.shape)


def _merge_tensor(recipe: Recipe, models: _Models, name: str, kind: TensorKind, layers: int) -> Tensor:
    """Return one tensor of the result; integer tensors come from the base."""
    if not kind.dtype.is_floating_point:
        return models.pattern.read(name)
    out = torch.empty(kind.shape, dtype=kind.dtype)
    with_base = models.base is not None and recipe.method.base != "unused"
    base = models.pattern.read(name) if with_base else None
    labels = [f"{entry.path}: tensor {name!r}" for entry in recipe.models]

    def number(index: int, parameter: str, default: float) -> float:
        return recipe.setting(recipe.models[index], parameter, name, layers, default)

    factor, default = _factor(recipe)
    shares = []
    for index, (model, label) in enumerate(zip(models.others, labels, strict=True)):
        values = model.read(name)
        alone = model.is_delta or recipe.method.takes_models
        delta = Delta(values, None if alone else base, label=label)
        # A model without a matching filter does not contribute to this tensor.
        shares.append(
            Share(
                delta,
                number(index, factor, default),
                number(index, "density", 1.0),
                number(index, "gamma", 0.01),
                number(index, "epsilon", 0.15),
                index,
            )
        )
    return merge_one(base, shares, recipe.rule_for(name, layers), name=name, out=out)


def _factor(recipe: Recipe) -> tuple[str, float]:
    """Return the name and default of the parameter that weighs a model."""
    if "scale" in recipe.method.parameters:
        return "scale", 1.0
    return ("t" if "t" in recipe.method.parameters else "weight"), 0.0


def _bar(progress: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not progress,
    )
