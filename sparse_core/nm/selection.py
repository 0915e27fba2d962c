"""Which layers of a model a pattern applies to, and why the others are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from sparse_core.nm.pattern import Block, NMPattern, Pattern
from sparse_core.nm.weights import outputs_first, weight_name

Select = Callable[[str, nn.Module], bool] | str | None
"""A function of dotted name and module, a regular expression for the name (``re.search``), or all layers."""

PRUNABLE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d)


@dataclass(frozen=True)
class Selection:
    """The result of :func:`selected_layers`, in the order of ``model.named_modules()``.

    Attributes:
        layers: the chosen modules by dotted name (``""`` where the model itself is the layer).
        skipped: why each other module with a weight of two or more dimensions is left out.
    """

    layers: dict[str, nn.Module]
    skipped: dict[str, str]


def selected_layers(
    model: nn.Module,
    pattern: Pattern | Mapping[str, Pattern | None],
    select: Select = None,
    types: tuple[type[nn.Module], ...] = PRUNABLE,
) -> Selection:
    """The layers of ``model`` whose weight can take ``pattern``.

    A module that has several names is taken once, under the first. A weight that several modules share is
    taken once too, and not at all where one of them is of another type, such as an embedding.

    Args:
        model: any module; it is not changed.
        pattern: n:m or blocks for all layers, or one for each name; a name that is missing or has ``None``
            stays dense.
        select: which layers, see :data:`Select`.
        types: classes to look for; subclasses count.

    Raises:
        TypeError: ``pattern`` is something else.
        ValueError: nothing is left, an unknown name in ``pattern``, or not a regular expression.
    """
    chosen = selector(select)
    owners = _owners(model)
    layers: dict[str, nn.Module] = {}
    skipped: dict[str, str] = {}
    for name, module in model.named_modules():
        if not isinstance(module, types):
            if _has_matrix(module):
                skipped[name] = _another_kind(module, types)
            continue
        wanted = pattern.get(name) if isinstance(pattern, Mapping) else pattern
        reason = (
            "not selected" if not chosen(name, module) else _obstacle(name, module, wanted, owners, types)
        )
        if reason is None:
            layers[name] = module
        else:
            skipped[name] = reason
    if isinstance(pattern, Mapping):
        _check_names(pattern, model)
    if not layers:
        raise ValueError(_nothing(skipped, pattern, select, types))
    return Selection(layers, skipped)


def weight_parameter(module: nn.Module) -> Tensor:
    """The tensor that is trained as the layer's weight, also where that is parametrised.

    That is ``module.weight``, or ``in_proj_weight`` of ``nn.MultiheadAttention``.

    Raises:
        ValueError: there is not one such tensor, as with weight normalisation.
    """
    found = _trained_weight(module)
    if found is None:
        raise ValueError(f"a {type(module).__name__} has no weight of its own: {_computed(module)}")
    return found


def weight_users(model: nn.Module) -> dict[int, list[str]]:
    """Names of the modules that hold each parameter, by its identity."""
    users: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                users.setdefault(id(parameter), []).append(name)
    return users


def is_parametrised(module: nn.Module) -> bool:
    """Whether ``torch.nn.utils.parametrize`` computes the layer's weight, so that it cannot be written to."""
    return torch.nn.utils.parametrize.is_parametrized(module, weight_name(module))


def parametrisations(module: nn.Module) -> torch.nn.utils.parametrize.ParametrizationList:
    """What computes the weight of a layer for which :func:`is_parametrised` holds."""
    return cast(
        torch.nn.utils.parametrize.ParametrizationList,
        getattr(module.parametrizations, weight_name(module)),
    )


def _trained_weight(module: nn.Module) -> Tensor | None:
    """``None`` where the weight is computed from several tensors, or by a hook before each call."""
    if is_parametrised(module):
        return getattr(parametrisations(module), "original", None)
    return module._parameters.get(weight_name(module))


def _computed(module: nn.Module) -> str:
    if is_parametrised(module):
        kinds = ", ".join(type(one).__name__.strip("_") for one in parametrisations(module))
        how = "torch.nn.utils.parametrize.remove_parametrizations"
        return f"its weight is computed from several tensors ({kinds}): {how} makes it one"
    if isinstance(module, nn.MultiheadAttention):
        return "its kdim or vdim differs: queries, keys and values have a matrix each (q_proj_weight, …)"
    return (
        "its weight is no parameter, but computed by a hook (weight_norm, spectral_norm or prune of"
        " torch.nn.utils): their remove functions make it one"
    )


def selector(select: Select) -> Callable[[str, nn.Module], bool]:
    """``select`` as a function of dotted name and module.

    Raises:
        TypeError: something else than :data:`Select`.
        ValueError: not a regular expression.
    """
    if select is None:
        return lambda name, module: True
    if isinstance(select, str):
        try:
            expression = re.compile(select)
        except re.error as error:
            raise ValueError(f"select={select!r} is not a regular expression: {error}") from error
        return lambda name, module: expression.search(name) is not None
    if not callable(select):
        raise TypeError(
            f"select must be None, a regular expression or a function of name and module, got {select!r}"
        )
    return lambda name, module: bool(select(name, module))


def _obstacle(
    name: str,
    module: nn.Module,
    pattern: Pattern | None,
    owners: Mapping[int, list[tuple[str, nn.Module]]],
    types: tuple[type[nn.Module], ...],
) -> str | None:
    """Why this layer cannot take the pattern; ``None`` where it can."""
    if pattern is None:
        return "the pattern leaves it dense"
    if not isinstance(pattern, NMPattern | Block):
        raise TypeError(f"pattern must be NMPattern, Block or a dictionary of them, got {pattern!r}")
    weight = _trained_weight(module)
    if weight is None:
        return _computed(module)
    if torch.nn.parameter.is_lazy(weight):
        return "its weight has no shape yet: run the model once"
    if not weight.is_floating_point():
        return f"its weight has type {weight.dtype}"
    rows = outputs_first(module, weight)
    columns = rows[0].numel() if rows.shape[0] else 0
    if not columns:
        return f"its weight of shape {tuple(weight.shape)} is empty"
    if isinstance(pattern, NMPattern) and columns % pattern.m:
        return f"its input dimension {columns} is not divisible by m={pattern.m}"
    sharing = owners[id(weight)]
    for other, owner in sharing:
        if not isinstance(owner, types):
            return f"tied: its weight is also that of {other!r} ({type(owner).__name__})"
    if sharing[0][0] != name:
        return f"tied: its weight is that of {sharing[0][0]!r}"
    return None


def _owners(model: nn.Module) -> dict[int, list[tuple[str, nn.Module]]]:
    """Modules that hold each parameter, by its identity; a parametrised weight belongs to its layer."""
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.utils.parametrize.ParametrizationList):
            continue
        for parameter in _parameters(module):
            owners.setdefault(id(parameter), []).append((name, module))
    return owners


def _parameters(module: nn.Module) -> Iterator[Tensor]:
    for parameter in module._parameters.values():
        if parameter is not None:
            yield parameter
    if is_parametrised(module):
        computed = parametrisations(module)._parameters.values()
        yield from (tensor for tensor in computed if tensor is not None)


def _another_kind(module: nn.Module, types: tuple[type[nn.Module], ...]) -> str:
    """Why a module with matrices is left out; names the matrices where there is not just one ``weight``."""
    reason = f"{type(module).__name__} is not among {_names(types)}"
    matrices = {
        name: tuple(value.shape)
        for name, value in module._parameters.items()
        if value is not None and not torch.nn.parameter.is_lazy(value) and value.ndim >= 2
    }
    if not set(matrices) - {"weight"}:
        return reason
    shown = [f"{name} {shape}" for name, shape in list(matrices.items())[:4]]
    more = f" and {len(matrices) - 4} more" if len(matrices) > 4 else ""
    return f"{reason}; its matrices stay dense: {', '.join(shown)}{more}"


def _has_matrix(module: nn.Module) -> bool:
    if isinstance(module, torch.nn.utils.parametrize.ParametrizationList):
        return False
    return any(
        torch.nn.parameter.is_lazy(parameter) or parameter.ndim >= 2 for parameter in _parameters(module)
    )


def _check_names(pattern: Mapping[str, Pattern | None], model: nn.Module) -> None:
    known = {name for name, _ in model.named_modules(remove_duplicate=False)}
    unknown = [name for name in pattern if name not in known]
    if unknown:
        raise ValueError(f"pattern names layers that the model does not have: {', '.join(unknown)}")


def _nothing(
    skipped: Mapping[str, str],
    pattern: Pattern | Mapping[str, Pattern | None],
    select: Select,
    types: tuple[type[nn.Module], ...],
) -> str:
    wanted = "the patterns given" if isinstance(pattern, Mapping) else str(pattern)
    # What callers ask for that only want a selection.
    wanted = "any pattern" if pattern == NMPattern(1, 1) else wanted
    filtered = "" if select is None else f" and select={select!r}"
    if not skipped:
        return f"no layer matches {wanted}{filtered}: the model has no {_names(types)}"
    shown = [f"{name or '(the model)'}: {reason}" for name, reason in list(skipped.items())[:8]]
    more = f"; and {len(skipped) - 8} more" if len(skipped) > 8 else ""
    return f"no layer matches {wanted}{filtered}. The model has {'; '.join(shown)}{more}"


def _names(types: tuple[type[nn.Module], ...]) -> str:
    return ", ".join(kind.__name__ for kind in types)
