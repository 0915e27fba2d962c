"""Merge recipes: models, method and settings, in mergekit's YAML."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from sparse_core.merging.methods import Method, find_method
from sparse_core.merging.recipes.settings import Setting, check_fields, read_dtype, read_parameters, read_rule
from sparse_core.merging.rules import Rule

_TOP = ("merge_method", "base_model", "models", "slices", "parameters", "dtype", "out_dtype", "out")
#: Fields of mergekit without an effect here, with the reason that is reported.
_IGNORED_TOP = {
    "tokenizer_source": "tokenizer files are copied from the base",
    "tokenizer": "tokenizer files are copied from the base",
    "chat_template": "tokenizer files are copied from the base",
    "name": "nothing is called by it",
}


@dataclass(frozen=True)
class ModelEntry:
    """A model of a recipe: its path, and its own settings by name."""

    path: str
    parameters: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """Models to merge, method and settings.

    Attributes:
        rule: method, normalisation, scale, seed.
        models: models to merge, without the base if differences from it are merged.
        base: path of the base; None if the method has none.
        parameters: settings for all models.
        dtype: type of the result; None for the base's.
        out: output path; None if the caller gives it.
        notes: settings that are ignored, in words.
        layer_range: layers of a recipe with slices, to be checked against the models.
    """

    rule: Rule
    models: tuple[ModelEntry, ...]
    base: str | None
    parameters: Mapping[str, Setting]
    dtype: torch.dtype | None = None
    out: str | None = None
    notes: tuple[str, ...] = ()
    layer_range: tuple[int, int] | None = None

    @property
    def method(self) -> Method:
        """The merge method."""
        return self.rule.method

    def setting(self, entry: ModelEntry, parameter: str, name: str, layers: int, default: float) -> float:
        """Return a parameter of a model for a tensor: the model's own, the recipe's, or the default."""
        for parameters in (entry.parameters, self.parameters):
            if parameter in parameters:
                found = parameters[parameter].at(name, layers)
                if found is not None:
                    return found
        return default

    def rule_for(self, name: str, layers: int) -> Rule:
        """Return the rule for a tensor, with its own scale if the recipe's lambda varies over tensors."""
        if "lambda" not in self.parameters:
            return self.rule
        found = self.parameters["lambda"].at(name, layers)
        return replace(self.rule, scale=1.0 if found is None else found)

    def unused(self, names: Collection[str]) -> list[str]:
        """Return, in words, which settings have no effect on these tensors, or skip some of them."""
        notes = []
        own = [(f"{entry.path}: parameters", entry.parameters) for entry in self.models]
        for label, parameters in (("parameters", self.parameters), *own):
            for parameter, setting in parameters.items():
                notes += [
                    f"{label}.{parameter}: filter {part!r} is part of no tensor's name"
                    for part in setting.filters()
                    if not any(part in name for name in names)
                ]
        for entry in self.models if self.method.parameters[:1] in (("weight",), ("t",)) else ():
            parameter = self.method.parameters[0]
            left = [name for name in names if math.isnan(self.setting(entry, parameter, name, 1, math.nan))]
            if left:
                notes.append(
                    f"{entry.path} has no part in {len(left)} of {len(names)} tensors (first: {left[0]!r}):"
                    f" no filter of its {parameter} fits them"
                )
        return notes


def load_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Read a recipe.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not YAML, or not a recipe; names the file, the field and the nearest valid name.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such recipe")
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not valid YAML: {error}") from error
    return parse_recipe(values, str(file))


def parse_recipe(values: Any, where: str = "recipe") -> Recipe:
    """Return a recipe from parsed YAML; errors call it ``where``, see :func:`load_recipe`."""
    if not isinstance(values, dict):
        found = "nothing: the file is empty" if values is None else type(values).__name__
        raise ValueError(f"{where}: expected a mapping with merge_method and models, got {found}")
    check_fields(values, {*_TOP, *_IGNORED_TOP}, where)
    notes = [
        f"{name} is ignored: {why}" for name, why in _IGNORED_TOP.items() if values.get(name) is not None
    ]
    if "merge_method" not in values:
        raise ValueError(f"{where}: merge_method is missing")
    try:
        method = find_method(values["merge_method"])
    except ValueError as error:
        raise ValueError(f"{where}: merge_method: {error}") from error
    listed, layer_range = _model_entries(values, where)
    settings, general = read_parameters(
        values.get("parameters"), method, f"{where}: parameters", notes, own=False
    )
    if layer_range is not None:
        closer = values["slices"][0].get("parameters")
        near, near_general = read_parameters(
            closer, method, f"{where}: slices[0].parameters", notes, own=False
        )
        settings = {**settings, **{name: value.before(settings.get(name)) for name, value in near.items()}}
        general = {**general, **near_general}
        if "lambda" in near_general:
            settings.pop("lambda", None)
    base = None if values.get("base_model") is None else _path(values["base_model"], f"{where}: base_model")
    models = _models(listed, method, base, where, notes)
    recipe = Recipe(
        read_rule(method, general, f"{where}: parameters"),
        models,
        base,
        settings,
        read_dtype(values, where, notes),
        None if values.get("out") is None else _path(values["out"], f"{where}: out"),
        tuple(dict.fromkeys(notes)),
        layer_range,
    )
    _require_parameters(recipe, where)
    return recipe


def _model_entries(values: dict[str, Any], where: str) -> tuple[list[Any], tuple[int, int] | None]:
    """Return the entries of ``models``, or of a single slice over whole models."""
    if ("models" in values) == ("slices" in values):
        raise ValueError(f"{where}: expected either models or slices with one entry")
    if "models" in values:
        models = values["models"]
        if not isinstance(models, list) or not models:
            raise ValueError(f"{where}: models: expected a list of entries such as '- model: path'")
        return models, None
    slices = values["slices"]
    if not isinstance(slices, list) or len(slices) != 1 or not isinstance(slices[0], dict):
        raise ValueError(f"{where}: slices: only one slice over whole models is supported")
    check_fields(slices[0], {"sources", "parameters"}, f"{where}: slices[0]")
    sources = slices[0].get("sources")
    if not isinstance(sources, list) or not sources:
        raise ValueError(f"{where}: slices[0].sources: expected a list of entries such as '- model: path'")
    ranges = {tuple(entry.get("layer_range") or ()) for entry in sources if isinstance(entry, dict)}
    found = next(iter(ranges), ())
    if len(ranges) != 1 or len(found) != 2 or not all(isinstance(place, int) for place in found):
        raise ValueError(f"{where}: slices[0].sources: every source needs the same layer_range [first, last]")
    plain = [
        {key: value for key, value in entry.items() if key != "layer_range"}
        if isinstance(entry, dict)
        else entry
        for entry in sources
    ]
    return plain, (found[0], found[1])


def _models(
    listed: list[Any], method: Method, base: str | None, where: str, notes: list[str]
) -> tuple[ModelEntry, ...]:
    models = []
    for index, entry in enumerate(listed):
        here = f"{where}: models[{index}]"
        if not isinstance(entry, dict):
            raise ValueError(f"{here}: expected a mapping with 'model', got {entry!r}")
        check_fields(entry, {"model", "parameters"}, here)
        if "model" not in entry:
            raise ValueError(f"{here}: model is missing")
        path = _path(entry["model"], f"{here}.model")
        settings, _ = read_parameters(entry.get("parameters"), method, f"{here}.parameters", notes, own=True)
        # mergekit lists the base among the models of a merge of deltas; its delta is zero.
        if path == base and method.base != "unused":
            notes += [f"{name} of {path} is ignored: it is the base" for name in settings if name != "t"]
        else:
            models.append(ModelEntry(path, settings))
    if method.base == "needed" and base is None:
        raise ValueError(f"{where}: base_model is missing: {method.name} needs one")
    if method.base == "unused" and base is not None and all(entry.path != base for entry in models):
        # mergekit treats the base as a model like the others here.
        models.append(ModelEntry(base))
    if not models:
        raise ValueError(f"{where}: models: no model to merge besides the base")
    extra = "" if method.base == "unused" else " besides the base"
    if len(models) < method.least or (method.most is not None and len(models) > method.most):
        wanted = f"{method.least}" if method.least == method.most else f"at least {method.least}"
        wanted = wanted if method.most != 1 else "one model"
        raise ValueError(f"{where}: models: {method.name} takes {wanted}{extra}, got {len(models)}")
    return tuple(models)


def _require_parameters(recipe: Recipe, where: str) -> None:
    if recipe.method.name == "slerp" and "t" not in recipe.parameters:
        raise ValueError(
            f"{where}: parameters.t is missing: slerp needs the position between base (0) and model (1)"
        )
    for index, entry in enumerate(recipe.models if "weight" in recipe.method.parameters else ()):
        if "weight" not in entry.parameters and "weight" not in recipe.parameters:
            raise ValueError(
                f"{where}: models[{index}].parameters.weight is missing ({entry.path})"
                + (": base_model takes part like the others" if entry.path == recipe.base else "")
            )


def _path(value: Any, where: str) -> str:
    """Return a path from text or mergekit's ``{path: …}`` and ``{model: {path: …}, lora: {path: …}}``."""
    if isinstance(value, dict) and "model" in value:
        check_fields(value, {"model", "lora"}, where)
        lora = value.get("lora")
        return _path(value["model"], where) + ("" if lora is None else f"+{_path(lora, where)}")
    if isinstance(value, dict):
        check_fields(value, {"path"}, where)
        value = value.get("path")
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}: expected a path, got {value!r}")
    return value
