"""Parameters of a recipe: numbers, gradients over the layers, and values by filters on tensors' names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

_LAYER = re.compile(r"(?:^|\.)(\d+)\.")


def layer_position(name: str, layers: int) -> float:
    """Where on a gradient a tensor is, from 0 in the first layer to 1 in the last; as in mergekit.

    Args:
        name: its first number between dots counts as the layer; tensors outside the layers (embeddings, last
            norm, head) lie at 0, a single layer at 1.
        layers: how many there are.
    """
    found = _LAYER.search(name)
    if found is None:
        return 0.0
    return int(found[1]) / (layers - 1) if layers > 1 else 1.0


def count_layers(names: Iterable[str]) -> int:
    """One more than the largest layer number among the names of tensors; 0 without layers."""
    return max((int(found[1]) + 1 for name in names if (found := _LAYER.search(name))), default=0)


@dataclass(frozen=True)
class Setting:
    """A parameter of a recipe.

    Attributes:
        choices: (filter, values) in their order; the first filter that is part of a tensor's name, or none,
            applies. Several values are interpolated over the layers.
    """

    choices: tuple[tuple[str | None, tuple[float, ...]], ...]

    def at(self, name: str, layers: int) -> float | None:
        """The value for a tensor; None when no filter fits."""
        for part, values in self.choices:
            if part is None or part in name:
                place = min(layer_position(name, layers), 1.0) * (len(values) - 1)
                first = min(int(place), len(values) - 1)
                last = min(first + 1, len(values) - 1)
                return values[first] + (place - first) * (values[last] - values[first])
        return None

    def before(self, later: Setting | None) -> Setting:
        """This setting, and ``later`` for tensors that no filter of it fits."""
        return self if later is None else Setting(self.choices + later.choices)

    @property
    def constant(self) -> float | None:
        """The number, where it is one for all tensors."""
        only = self.choices[0]
        return only[1][0] if only[0] is None and len(only[1]) == 1 else None

    def filters(self) -> list[str]:
        """Parts of names that values are restricted to."""
        return [part for part, _ in self.choices if part is not None]


class Limits(NamedTuple):
    """Numbers that a parameter may have.

    Attributes:
        words: for errors.
        allow: whether a finite number is one of them.
    """

    words: str
    allow: Callable[[float], bool]


def read_setting(value: Any, where: str, limits: Limits | None = None) -> Setting:
    """A setting from a recipe: a number, a list of them, or ``{filter, value}`` or a list of such.

    Args:
        value: as YAML gives it; text that reads as a number counts as one, as ``1e-3`` is text to YAML.
        where: the file and field, for errors.
        limits: of the numbers; any finite one without.

    Raises:
        ValueError: something else, or a number out of range; names the field.
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
