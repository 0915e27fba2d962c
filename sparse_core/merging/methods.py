"""The ways to merge: their names, what they take, and what they assume when nothing is said."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["METHODS", "Method", "Sparsifier", "find_method", "nearest"]

Sparsifier = Literal["none", "largest", "random", "band"]


@dataclass(frozen=True)
class Method:
    """One way to merge.

    Attributes:
        name: as in recipes.
        sparsifier: what is dropped from each delta.
        elects: whether each position agrees on a sign first and leaves out those that differ (TIES).
        normalises: whether sums are divided by the weights that took part, unless the caller says.
        needs_base: whether deltas from a base are merged, not the models themselves.
        parameters: of a model; those of the whole merge are the same for all.
    """

    name: str
    sparsifier: Sparsifier = "none"
    elects: bool = False
    normalises: bool = False
    needs_base: bool = True
    parameters: tuple[str, ...] = ("weight",)


#: By name. Defaults follow mergekit's, so that its recipes mean the same here.
METHODS = {
    method.name: method
    for method in (
        Method("task_arithmetic"),
        Method("ties", "largest", True, True, parameters=("weight", "density")),
        Method("dare_linear", "random", parameters=("weight", "density")),
        Method("dare_ties", "random", True, parameters=("weight", "density")),
        Method("breadcrumbs", "band", parameters=("weight", "density", "gamma")),
        Method("breadcrumbs_ties", "band", True, parameters=("weight", "density", "gamma")),
        Method("linear", normalises=True, needs_base=False),
        Method("slerp", needs_base=True, parameters=()),
    )
}
_OTHER_NAMES = {"dare": "dare_linear", "average": "linear"}
_NOT_HERE = {
    *("arcee_fusion", "della", "della_linear", "karcher", "model_stock", "multislerp", "nearswap"),
    *("nuslerp", "passthrough", "ram", "ramplus_tl", "sce"),
}


def nearest(word: object, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for a misspelt word, or nothing."""
    found = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.5)
    return f" (did you mean {found[0]!r}?)" if found else ""


def find_method(name: str) -> Method:
    """A method by its name; ``dare`` is ``dare_linear``, ``average`` is ``linear``.

    Raises:
        ValueError: no such method; suggests the nearest name.
    """
    known = _OTHER_NAMES.get(name, name) if isinstance(name, str) else name
    if known in _NOT_HERE:
        raise ValueError(f"mergekit's {name} is not offered here; known are {', '.join(METHODS)}")
    if known not in METHODS:
        raise ValueError(
            f"unknown method {name!r}{nearest(name, [*METHODS, *_OTHER_NAMES])};"
            f" known are {', '.join(METHODS)}"
        )
    return METHODS[known]
