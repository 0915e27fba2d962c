"""Recipe parameters: numbers, gradients over the layers, and values by tensor-name filters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from sparse_core.merging.methods import METHODS, Method, nearest
from sparse_core.merging.rules import OPTIONS, Rule, read_options, read_rescale

_LAYER = re.compile(r"(?:^|\.)(\d+)\.")


def layer_position(name: str, layers: int) -> float:
    """Return mergekit's position of a tensor on a gradient, 0 in the first layer to 1 in the last.

    The first number between dots in ``name`` is its layer. Tensors outside the ``layers`` (embeddings, last
    norm, head) are at 0, a single layer is at 1.
    """
    found = _LAYER.search(name)
    if found is None:
        return 0.0
    return int(found[1]) / (layers - 1) if layers > 1 else 1.0


def count_layers(names: Iterable[str]) -> int:
    """Return the largest layer number among the names of tensors plus one; 0 without layers."""
    return max((int(found[1]) + 1 for name in names if (found := _LAYER.search(name))), default=0)


@dataclass(frozen=True)
class Setting:
    """A parameter of a recipe: (filter, values) choices in order.

    The first filter that is part of a tensor's name, or None, applies. Several values are interpolated over
    the layers.
    """

    choices: tuple[tuple[str | None, tuple[float, ...]], ...]

    def at(self, name: str, layers: int) -> float | None:
        """Return the value for a tensor; None if no filter fits."""
        for part, values in self.choices:
            if part is None or part in name:
                place = min(layer_position(name, layers), 1.0) * (len(values) - 1)
                first = min(int(place), len(values) - 1)
                last = min(first + 1, len(values) - 1)
                return values[first] + (place - first) * (values[last] - values[first])
        return None

    def before(self, later: Setting | None) -> Setting:
        """Return this setting, with ``later`` for tensors that no filter of it fits."""
        return self if later is None else Setting(self.choices + later.choices)

    @property
    def constant(self) -> float | None:
        """The number, if it is the same for all tensors."""
        only = self.choices[0]
        return only[1][0] if only[0] is None and len(only[1]) == 1 else None

    def filters(self) -> list[str]:
        """Name parts to which values are restricted."""
        return [part for part, _ in self.choices if part is not None]


class Limits(NamedTuple):
    """Valid numbers of a parameter: words for errors, and a test of finite numbers."""

    words: str
    allow: Callable[[float], bool]


def read_setting(value: Any, where: str, limits: Limits | None = None) -> Setting:
    """Parse a setting: a number, a list of them, or ``{filter, value}`` or a list of such.

    Numeric text such as ``1e-3``, which YAML reads as text, is a number. ``where`` names file and field in
    errors.
    """
    if isinstance(value, dict):
        value = [value]
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        choices = []
        for index, entry in enumerate(value):
            here = f"{where}[{index}]"
            unknown = set(entry) - {"filter", "value"}
            if unknown or "value" not in entry:
                what = f"unknown field {sorted(map(str, unknown))[0]!r}" if unknown else "no 'value'"
                raise ValueError(f"{here}: {what}; expected filter and value")
            part = entry.get("filter")
            choices.append(
                (
                    None if part in (None, "*") else str(part),
                    _numbers(entry["value"], f"{here}.value", limits),
                )
            )
        return Setting(tuple(choices))
    return Setting(((None, _numbers(value, where, limits)),))


def _numbers(value: Any, where: str, limits: Limits | None) -> tuple[float, ...]:
    listed = value if isinstance(value, list) else [value]
    if not listed:
        raise ValueError(f"{where}: expected a number or a list of numbers, got an empty list")
    return tuple(_number(entry, where, limits) for entry in listed)


def _number(value: Any, where: str, limits: Limits | None) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        found = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{where}: expected a number or a list of numbers, got {value!r}") from None
    if not math.isfinite(found):
        raise ValueError(f"{where}: expected a finite number, got {value}")
    if limits is not None and not limits.allow(found):
        raise ValueError(f"{where}: expected a number {limits.words}, got {value}")
    return found


_IGNORED = {"int8_mask": "masks never take up memory here"}
_TENSOR = {name for method in METHODS.values() for name in method.parameters}
_GLOBAL = {name for method in METHODS.values() for name in method.settings}
#: Unsupported parameters of mergekit's methods.
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
    """Return the settings per tensor, and the values for the whole merge.

    ``own`` is True for a model's own parameters. ``notes`` receives ignored parameters, ``where`` is for
    errors.
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
                # mergekit ignores parameters that a method does not take; recipes rely on it.
                notes.append(f"{name} is ignored: {method.name} has no such parameter")
                continue
            raise ValueError(
                f"{where}: unknown parameter {name!r}{nearest(name, {*_TENSOR, *_GLOBAL, *allowed})}"
            )
        elif name in _TENSOR:
            settings[name] = read_setting(value, f"{where}.{name}", _LIMITS.get(name))
        elif name == "lambda" and not own:
            # A single number is part of the rule; values that vary over tensors are a setting.
            found = read_setting(value, f"{where}.{name}")
            if found.constant is None:
                settings[name] = found
            else:
                general[name] = found.constant
        elif own:
            raise ValueError(
                f"{where}: {name!r} applies to the whole merge: move it to the recipe's parameters"
            )
        else:
            general[name] = value
    return settings, general


def read_rule(method: Method, general: dict[str, Any], where: str) -> Rule:
    """Return the rule that all tensors share, from the values for the whole merge.

    ``rescale`` is mergekit's: kept values are scaled to the sum of magnitudes of the whole delta. It is on by
    default if numbers are drawn at random.
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
    """Return the type of the result; None if the recipe leaves it to the base."""
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
    """Raise ``ValueError`` for an unknown field; suggests the nearest name."""
    for name in values:
        if name not in known:
            raise ValueError(f"{where}: unknown field {name!r}{nearest(name, known)}")
