"""Merge methods: names, requirements and defaults."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Sparsifier = Literal["none", "largest", "random", "band", "ranked"]
Combine = Literal["sum", "slerp", "nuslerp", "model_stock", "karcher", "sce"]
Base = Literal["needed", "optional", "unused"]


@dataclass(frozen=True)
class Method:
    """One merge method.

    Attributes:
        name: name in recipes.
        sparsifier: how numbers of each delta are dropped.
        elects: True if each position elects a sign and drops values of the other sign (TIES).
        normalises: default for dividing sums by the weights that took part.
        combine: how the remaining values are combined.
        base: need of a base; ``"unused"`` if it is a model like the others.
        whole: True if models are merged even with a base, instead of their differences from it.
        parameters: settings per model and tensor.
        settings: settings of the whole merge.
        least: smallest number of models besides the base.
        most: largest number of models besides the base; ``None`` for any.
    """

    name: str
    sparsifier: Sparsifier = "none"
    elects: bool = False
    normalises: bool = False
    combine: Combine = "sum"
    base: Base = "needed"
    whole: bool = False
    parameters: tuple[str, ...] = ("weight",)
    settings: tuple[str, ...] = ("normalize", "lambda")
    least: int = 1
    most: int | None = None

    @property
    def takes_models(self) -> bool:
        """True if whole models are merged, with or without a base."""
        return self.whole or self.base == "unused"


def _sparse(
    name: str, sparsifier: Sparsifier, *more: str, elects: bool = False, normalises: bool = False
) -> Method:
    """Return a method that sums the remaining values of each delta."""
    settings = ["normalize", "lambda", "rescale"]
    settings += ["seed"] if sparsifier in ("random", "ranked") else []
    settings += ["consensus"] if elects else []
    parameters = ("weight", "density", *more)
    return Method(name, sparsifier, elects, normalises, parameters=parameters, settings=tuple(settings))


#: Methods by name, with mergekit's defaults, so that its recipes mean the same here.
METHODS = {
    method.name: method
    for method in (
        Method("task_arithmetic"),
        _sparse("ties", "largest", elects=True, normalises=True),
        _sparse("dare_linear", "random"),
        _sparse("dare_ties", "random", elects=True),
        _sparse("breadcrumbs", "band", "gamma"),
        _sparse("breadcrumbs_ties", "band", "gamma", elects=True),
        _sparse("della", "ranked", "epsilon", elects=True, normalises=True),
        _sparse("della_linear", "ranked", "epsilon"),
        Method("linear", normalises=True, base="unused", settings=("normalize",)),
        Method("slerp", combine="slerp", whole=True, parameters=("t",), settings=(), most=1),
        Method(
            "nuslerp",
            combine="nuslerp",
            base="optional",
            settings=("nuslerp_flatten", "nuslerp_row_wise"),
            least=2,
            most=2,
        ),
        Method("model_stock", combine="model_stock", parameters=(), settings=("filter_wise",), least=2),
        Method("karcher", combine="karcher", base="unused", parameters=(), settings=("max_iter", "tol")),
        Method("sce", combine="sce", parameters=(), settings=("select_topk",)),
        Method("passthrough", base="unused", parameters=("scale",), settings=(), most=1),
    )
}
_OTHER_NAMES = {"dare": "dare_linear", "average": "linear"}
_NOT_HERE = {"arcee_fusion", "multislerp", "nearswap", "ram", "ramplus_tl"}


def nearest(word: object, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for a misspelt word, or an empty string."""
    found = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.5)
    return f" (did you mean {found[0]!r}?)" if found else ""


def find_method(name: str) -> Method:
    """Return a method by its name; ``dare`` is ``dare_linear``, ``average`` is ``linear``."""
    known = _OTHER_NAMES.get(name, name) if isinstance(name, str) else name
    if isinstance(known, str) and known in _NOT_HERE:
        raise ValueError(f"mergekit's {name} is not supported; known methods: {', '.join(METHODS)}")
    if not isinstance(known, str) or known not in METHODS:
        raise ValueError(
            f"unknown method {name!r}{nearest(name, [*METHODS, *_OTHER_NAMES])};"
            f" known methods: {', '.join(METHODS)}"
        )
    return METHODS[known]
