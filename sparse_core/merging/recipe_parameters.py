"""Parameters, types and fields of recipes: what is known, and what errors say about the rest."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from sparse_core.merging.methods import METHODS, Method, nearest
from sparse_core.merging.rules import OPTIONS, Rule, read_options, read_rescale
from sparse_core.merging.settings import Limits, Setting, read_setting

_IGNORED = {"int8_mask": "masks never take up memory here"}
_TENSOR = {name for method in METHODS.values() for name in method.parameters}
_GLOBAL = {name for method in METHODS.values() for name in method.settings}
#: Parameters of mergekit's methods that are not offered here.
_OTHERS = {"normalize_weights", "eps"}
_DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "float16", "bfloat16")}
_LIMITS = {
    "density": Limits("above 0 and at most 1", lambda number: 0 < number <= 1),
    "gamma": Limits("from 0 to below 1", lambda number: 0 <= number < 1),
    "epsilon": Limits("from 0 to below 0.5", lambda number: 0 <= number < 0.5),
    "t": Limits("from 0 to 1", lambda number: 0 <= number <= 1),
}


def read_parameters(
    values: Any, method: Method, where: str, notes: list[str], *, own: bool
) -> tuple[dict[str, Setting], dict[str, Any]]:
    """Settings for each tensor, and values for the whole merge.

    Args:
        values: what the recipe has under ``parameters``.
        method: decides which are known.
        where: the file and field, for errors.
        notes: what is passed over is added here.
        own: whether these are a model's own.

    Raises:
        ValueError: unknown names, numbers out of range, or one for the whole merge among a model's own.
    """
    if values is None:
        return {}, {}
    if not isinstance(values, dict):
        raise ValueError(f"{where}: expected a mapping, got {values!r}")
    allowed = {*method.parameters, *method.settings}
    settings, general = {}, {}
    for name, value in values.items():
        if name in _IGNORED:
            notes.append(f"{name} is ignored: {_IGNORED[name]}")
        elif name not in allowed:
            if name in _TENSOR | _GLOBAL | _OTHERS:
                # mergekit passes over parameters that a method does not take; so do recipes written for
                # several.
                notes.append(f"{name} is ignored: {method.name} has no such parameter")
                continue
            raise ValueError(
                f"{where}: unknown parameter {name!r}{nearest(name, {*_TENSOR, *_GLOBAL, *allowed})}"
            )
        elif name in _TENSOR:
            settings[name] = read_setting(value, f"{where}.{name}", _LIMITS.get(name))
        elif name == "lambda" and not own:
            # One number is part of the rule; what differs from tensor to tensor is a setting.
            found = read_setting(value, f"{where}.{name}")
            if found.constant is None:
                settings[name] = found
            else:
                general[name] = found.constant
        elif own:
            raise ValueError(
                f"{where}: {name!r} is one value for the whole merge: put it under the recipe's parameters"
            )
        else:
            general[name] = value
    return settings, general


def read_rule(method: Method, general: dict[str, Any], where: str) -> Rule:
    """What all tensors share, from the values for the whole merge.

    ``rescale`` means what it means to mergekit: what is kept of a delta gets the sum of magnitudes of all. It
    is on by default where something is drawn at random.
    """
    if "normalize" in general and not isinstance(general["normalize"], bool):
        raise ValueError(f"{where}.normalize: expected true or false, got {general['normalize']!r}")
    seed = general.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"{where}.seed: expected a whole number from 0, got {seed!r}")
    elect = {"sum": "mass", "mass": "mass", "count": "count"}.get(str(general.get("consensus", "sum")))
    if elect is None:
        raise ValueError(
            f"{where}.consensus: expected sum (the larger mass) or count, got {general['consensus']!r}"
        )
    return Rule(
        method,
        general.get("lambda", 1.0),
        general.get("normalize"),
        "mass" if elect == "mass" else "count",
        read_rescale(
            method,
            general.get("rescale"),
            f"{where}.rescale",
            on="l1",
            default=method.sparsifier in ("random", "ranked"),
        ),
        seed,
        read_options(
            method, {name: value for name, value in general.items() if name in OPTIONS}, f"{where}."
        ),
    )


def read_dtype(values: dict[str, Any], where: str, notes: list[str]) -> torch.dtype | None:
    """The type of the result; None where the recipe leaves it to the base."""
    chosen = None
    for key in ("dtype", "out_dtype"):
        name = values.get(key)
        if name is None:
            continue
        if not isinstance(name, str) or name not in _DTYPES:
            raise ValueError(
                f"{where}: {key}: unknown type {name!r}{nearest(name, _DTYPES)}; known: {', '.join(_DTYPES)}"
            )
        chosen = _DTYPES[name]
    if values.get("dtype") is not None and values.get("out_dtype") is not None:
        notes.append(
            "dtype only names the type of the result: merging is done in float32 (out_dtype is written)"
        )
    return chosen


def check_fields(values: dict[str, Any], known: Collection[str], where: str) -> None:
    """Raise ``ValueError`` for a field that is not known, with the nearest that is."""
    for name in values:
        if name not in known:
            raise ValueError(f"{where}: unknown field {name!r}{nearest(name, known)}")
