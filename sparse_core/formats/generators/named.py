"""Generators by name, for command lines and benchmarks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sparse_core.formats.base import SparseMatrix
from sparse_core.formats.generators.random_rows import block_sparse, power_law, random_uniform
from sparse_core.formats.generators.stencils import (
    banded,
    convection_diffusion,
    diagonal,
    poisson_2d,
    poisson_3d,
    stencil_27,
)

_GENERATORS: dict[str, Callable[..., SparseMatrix]] = {
    "poisson-2d": poisson_2d,
    "poisson-3d": poisson_3d,
    "stencil-27": stencil_27,
    "convection-diffusion": convection_diffusion,
    "random-uniform": random_uniform,
    "power-law": power_law,
    "block-sparse": block_sparse,
    "banded": banded,
    "diagonal": diagonal,
}


def names() -> list[str]:
    """Return the names that :func:`generate` accepts."""
    return list(_GENERATORS)


def generate(name: str, **options: Any) -> SparseMatrix:
    """Make a matrix by name.

    Args:
        name: a generator and its sizes, ``"poisson-2d:512"`` or ``"poisson-2d:512x256"``, with further
            arguments after commas, ``"power-law:100000,alpha=2.1,seed=3"``.
        options: more arguments of the generator; they override those in the name.

    Raises:
        ValueError: an unknown name or invalid arguments; the message lists valid ones.
    """
    kind, _, rest = name.partition(":")
    if kind not in _GENERATORS:
        raise ValueError(f"no generator {kind!r}; use one of {', '.join(_GENERATORS)} (e.g. poisson-2d:512)")
    make = _GENERATORS[kind]
    parameters = list(inspect.signature(make).parameters)
    sizes: list[Any] = []
    named: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        if equals:
            named[key.strip()] = _number(name, value)
        else:
            sizes += [_number(name, size) for size in part.split("x")]
    try:
        inspect.signature(make).bind(*sizes, **{**named, **options})
    except TypeError as error:
        raise ValueError(f"{name!r}: {error}; {kind} takes {', '.join(parameters)}") from None
    return make(*sizes, **{**named, **options})


def _number(name: str, text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ValueError(
        f"{name!r}: {text.strip()!r} is not a number (write e.g. poisson-2d:512x256 or name:100,seed=3)"
    )
