"""Changes of a model: choose layers, replace modules, compare states.

A module with several names is taken once, under the first, and replaced under all of them. A weight shared by
several modules is changed in place once, under the first. If a replacement cannot share a tied weight
(:func:`share_weight`), the layer is skipped and reported; weights are never untied silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

Select = Callable[[str, nn.Module], bool] | str | None
"""A function of dotted name and module, a regular expression for the name (``re.search``), or all layers."""

Rule = Callable[[str, nn.Module], str | None]
"""Returns why a layer of this dotted name is skipped; ``None`` if it is chosen."""


@dataclass(frozen=True)
class Selection:
    """Layers in the order of ``model.named_modules()``.

    Attributes:
        layers: the chosen modules by dotted name (``""`` if the model itself is the layer).
        skipped: reason for each other module with a weight of two or more dimensions.
    """

    layers: dict[str, nn.Module]
    skipped: dict[str, str]


class Owner(NamedTuple):
    """A module that holds a parameter.

    Attributes:
        name: dotted name of the module, or of the layer whose parametrisation holds the parameter.
        module: that module.
        key: the parameter's name in it.
    """

    name: str
    module: nn.Module
    key: str


def choose_layers(
    model: nn.Module,
    types: tuple[type[nn.Module], ...],
    select: Select = None,
    *,
    rule: Rule | None = None,
    replacing: bool = False,
    nothing: str = "no layer matches any pattern",
) -> Selection:
    """Choose the layers of a model with a floating-point weight that can be changed.

    A module with several names is taken once, under the first. A weight shared by several modules is taken
    once too, but not if one of them has another type, such as an embedding.

    Args:
        model: any module; it is not changed.
        types: classes to choose; subclasses count.
        select: which layers, see :data:`Select`.
        rule: further condition for layers whose weight has a shape.
        replacing: the layers will be replaced, which would lose hooks and untie weights.
        nothing: start of the error if no layer is chosen.

    Raises:
        TypeError: ``select`` has another type.
        ValueError: no layer is chosen, or not a regular expression.
    """
    chosen = selector(select)
    held = owners(model)
    layers: dict[str, nn.Module] = {}
    skipped: dict[str, str] = {}
    for name, module in model.named_modules():
        if not isinstance(module, types):
            if _has_matrix(module):
                skipped[name] = _why_other_type(module, types)
            continue
        if not chosen(name, module):
            reason: str | None = "not selected"
        else:
            reason = (
                _why_no_weight(module)
                or (rule(name, module) if rule is not None else None)
                or _why_tied(name, held[id(weight_parameter(module))], types, replacing)
                or (_why_hooked(module) if replacing else None)
            )
        if reason is None:
            layers[name] = module
        else:
            skipped[name] = reason
    if not layers:
        filtered = "" if select is None else f" and select={select!r}"
        raise ValueError(f"{nothing}{filtered}{_reasons(skipped, types)}")
    return Selection(layers, skipped)


def selector(select: Select) -> Callable[[str, nn.Module], bool]:
    """Return ``select`` as a function of dotted name and module.

    Raises:
        TypeError: not a :data:`Select`.
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


def check_names(model: nn.Module, given: object, what: str) -> None:
    """Raise ``ValueError`` if a mapping (named ``what`` in the error) has a layer that the model lacks."""
    if isinstance(given, Mapping):
        names = {name for name, _ in model.named_modules(remove_duplicate=False)}
        unknown = [str(name) for name in given if name not in names]
        if unknown:
            raise ValueError(f"{what} names layers that the model does not have: {', '.join(unknown)}")


def weight_name(module: nn.Module) -> str:
    """Return the attribute that holds the weight matrix of a layer."""
    return "in_proj_weight" if isinstance(module, nn.MultiheadAttention) else "weight"


def own_weight(module: nn.Module) -> Tensor:
    """Return the weight attribute of the module."""
    return cast(Tensor, getattr(module, weight_name(module)))


def weight_parameter(module: nn.Module) -> Tensor:
    """Return the trained tensor of the layer's weight, also if it is parametrised.

    Raises:
        ValueError: there is not exactly one such tensor, as with weight normalisation.
    """
    found = _trained_weight(module)
    if found is None:
        raise ValueError(f"{type(module).__name__} has no weight parameter: {_why_computed(module)}")
    return found


def is_parametrised(module: nn.Module) -> bool:
    """True if ``torch.nn.utils.parametrize`` computes the layer's weight, which is then read-only."""
    return parametrize.is_parametrized(module, weight_name(module))


def parametrisations(module: nn.Module) -> parametrize.ParametrizationList:
    """Return the parametrisations of a layer's weight, see :func:`is_parametrised`."""
    return cast(parametrize.ParametrizationList, getattr(module.parametrizations, weight_name(module)))


def owners(model: nn.Module) -> dict[int, list[Owner]]:
    """Return the modules that hold each parameter, by its id; a parametrised weight belongs to its layer."""
    found: dict[int, list[Owner]] = {}
    for name, module in model.named_modules():
        if not isinstance(module, parametrize.ParametrizationList):
            for key, parameter in _parameters(module):
                found.setdefault(id(parameter), []).append(Owner(name, module, key))
    return found


def replace_modules(model: nn.Module, replacements: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Replace modules under all their names; return the new root."""
    if model in replacements:
        return replacements[model]
    for parent in list(model.modules()):
        for key, child in list(parent._modules.items()):
            if child is not None and child in replacements:
                setattr(parent, key, replacements[child])
    return model


def share_weight(layer: nn.Module, first: nn.Module) -> None:
    """Make a layer share the parameters and buffers of another of its class, except the bias."""
    for key, value in [*first._parameters.items(), *first._buffers.items()]:
        if key != "bias":
            setattr(layer, key, value)


def state_difference(
    expected: Mapping[str, Sequence[int]], found: Mapping[str, Sequence[int]], *, owner: str = "the model"
) -> str | None:
    """Describe the difference between the names and shapes of two states; None if they match.

    Args:
        expected: shapes by name, see :func:`shapes_of`.
        owner: of the expected state, for the text.
    """
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or extra:
        return (
            f"{len(missing)} tensors missing{_first(missing)},"
            f" {len(extra)} that {owner} does not have{_first(extra)}"
        )
    for name, shape in expected.items():
        if tuple(found[name]) != tuple(shape):
            return f"tensor {name!r} has shape {tuple(found[name])}, {owner} has {tuple(shape)}"
    return None


def shapes_of(state: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a state dict, by name."""
    return {name: tuple(value.shape) for name, value in state.items() if isinstance(value, Tensor)}


def _first(names: list[str]) -> str:
    return f" (first: {names[0]!r})" if names else ""


def _why_no_weight(module: nn.Module) -> str | None:
    """Return why a layer has no weight that can be changed."""
    weight = _trained_weight(module)
    if weight is None:
        return _why_computed(module)
    if torch.nn.parameter.is_lazy(weight):
        return "its weight has no shape yet: run the model once"
    if not weight.is_floating_point():
        return f"its weight has type {weight.dtype}"
    return None if weight.numel() else f"its weight of shape {tuple(weight.shape)} is empty"


def _why_tied(
    name: str, sharing: Sequence[Owner], types: tuple[type[nn.Module], ...], replacing: bool
) -> str | None:
    for other in sharing:
        if not isinstance(other.module, types):
            return f"tied: its weight is also that of {other.name!r} ({type(other.module).__name__})"
    if sharing[0].name != name:
        return f"tied: its weight is that of {sharing[0].name!r}"
    return f"tied: its weight is also that of {sharing[1].name!r}" if replacing and sharing[1:] else None


def _why_hooked(module: nn.Module) -> str | None:
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    return "it has hooks, which would be lost: remove them first" if hooks else None


def _trained_weight(module: nn.Module) -> Tensor | None:
    """Return the trained weight; None if several tensors, or a hook before each call, compute it."""
    if is_parametrised(module):
        return getattr(parametrisations(module), "original", None)
    return module._parameters.get(weight_name(module))


def _why_computed(module: nn.Module) -> str:
    if is_parametrised(module):
        kinds = ", ".join(type(one).__name__.strip("_") for one in parametrisations(module))
        how = "torch.nn.utils.parametrize.remove_parametrizations"
        return f"its weight is computed from several tensors ({kinds}): merge them with {how}"
    if isinstance(module, nn.MultiheadAttention):
        return "its kdim or vdim differs: queries, keys and values have a matrix each (q_proj_weight, …)"
    return (
        "a hook computes its weight (weight_norm, spectral_norm or prune of torch.nn.utils): call the hook's"
        " remove function"
    )


def _parameters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    parameters = dict(module._parameters)
    if is_parametrised(module):
        parameters.update(parametrisations(module)._parameters)
    return ((key, parameter) for key, parameter in parameters.items() if parameter is not None)


def _has_matrix(module: nn.Module) -> bool:
    return not isinstance(module, parametrize.ParametrizationList) and any(
        torch.nn.parameter.is_lazy(parameter) or parameter.ndim >= 2 for _, parameter in _parameters(module)
    )


def _why_other_type(module: nn.Module, types: tuple[type[nn.Module], ...]) -> str:
    """Return why a module with matrices is skipped; names matrices other than ``weight``."""
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


def _reasons(skipped: Mapping[str, str], types: tuple[type[nn.Module], ...]) -> str:
    if not skipped:
        return f": the model has no {_names(types)}"
    shown = [f"{name or '(the model)'}: {reason}" for name, reason in list(skipped.items())[:8]]
    more = f"; and {len(skipped) - 8} more" if len(skipped) > 8 else ""
    return f". The model has {'; '.join(shown)}{more}"


def _names(types: tuple[type[nn.Module], ...]) -> str:
    return ", ".join(kind.__name__ for kind in types)
