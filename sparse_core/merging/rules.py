"""Rule of a merge: its method and common settings, validated for recipes and calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from sparse_core.merging.methods import Method, nearest

Elect = Literal["mass", "count"]
Rescale = Literal["none", "probability", "l1"]


@dataclass(frozen=True)
class Rule:
    """Rule by which a tensor is merged, the same for all models.

    Attributes:
        method: the merge method.
        scale: factor of the merged delta (lambda).
        normalize: divide by the weights that took part; None for the method's default.
        elect: elect the sign of the larger mass of weighted deltas, or that of more models.
        rescale: divide kept values by their keep probability, or scale them to the sum of magnitudes of the
            whole delta.
        seed: seed of random shares.
        options: settings of one method only, see :data:`OPTIONS`.
    """

    method: Method
    scale: float = 1.0
    normalize: bool | None = None
    elect: Elect = "mass"
    rescale: Rescale = "none"
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def divides(self) -> bool:
        """True if sums are divided by the weights that took part."""
        return self.method.normalises if self.normalize is None else self.normalize

    def option(self, name: str) -> Any:
        """Return a setting of one method only, or its default."""
        return self.options.get(name, OPTIONS[name].default)


class _Option(NamedTuple):
    default: Any
    words: str
    allow: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_YES_OR_NO = ("true or false", lambda value: isinstance(value, bool))

#: Settings of one method only, by mergekit's names: default, description and check.
OPTIONS = {
    "filter_wise": _Option(False, *_YES_OR_NO),
    "nuslerp_flatten": _Option(True, *_YES_OR_NO),
    "nuslerp_row_wise": _Option(False, *_YES_OR_NO),
    "max_iter": _Option(
        10, "a whole number from 0", lambda value: _is_number(value) and value == int(value) and value >= 0
    ),
    "tol": _Option(1e-5, "a number above 0", lambda value: _is_number(value) and value > 0),
    "select_topk": _Option(1.0, "a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1),
}


def read_options(method: Method, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the validated settings of one method only."""
    known = [name for name in method.settings if name in OPTIONS]
    found = {
        name: _as_number(value, OPTIONS[name].default) for name, value in given.items() if name in OPTIONS
    }
    for name in given:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has no settings of its own"
            raise ValueError(f"{where}{name}: {method.name} has no such setting{nearest(name, known)}; {has}")
        if not OPTIONS[name].allow(found[name]):
            raise ValueError(f"{where}{name}: expected {OPTIONS[name].words}, got {given[name]!r}")
    return found


def _as_number(value: Any, default: Any) -> Any:
    """Return numeric text such as ``1e-6``, which YAML reads as text, as a number."""
    if isinstance(value, str) and not isinstance(default, bool):
        with suppress(ValueError):
            return float(value)
    return value


def read_rescale(method: Method, value: Any, where: str, *, on: Rescale, default: bool) -> Rescale:
    """Return how kept values are rescaled; ``True`` means ``on`` and ``None`` means ``default``."""
    if value is None:
        value = default
    if isinstance(value, bool):
        value = on if value else "none"
    if value not in get_args(Rescale):
        raise ValueError(
            f"{where}: expected true or false (or one of {', '.join(get_args(Rescale))}), got {value!r}"
        )
    if value == "probability" and method.sparsifier != "random":
        raise ValueError(
            f"{where}: {method.name} has no single keep probability: use 'l1', which"
            " restores the sum of magnitudes"
        )
    found: Rescale = value
    return found
