"""Select the layers for a pattern and find their weight matrices.

``nn.Linear`` and ``nn.Conv2d`` have ``weight`` with outputs first. ``nn.MultiheadAttention`` stacks the
projections of queries, keys and values in ``in_proj_weight``. ``Conv1D`` of the package transformers (GPT-2
and its relatives) is a linear layer whose ``weight`` is (in, out).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import (
    Rule,
    Select,
    Selection,
    check_names,
    choose_layers,
    own_weight,
    weight_parameter,
)
from sparse_core.nm.masks import pattern_mask
from sparse_core.nm.pattern import TWO_FOUR, Block, NMPattern, Pattern


def _conv1d_class(module: nn.Module) -> type[nn.Module] | None:
    """Return the class named Conv1D that ``module`` is or derives from, as parametrised layers do."""
    return next((kind for kind in type(module).__mro__ if kind.__name__ == "Conv1D"), None)


class _ByStructure(type):
    """``isinstance`` by a module's structure, so that its package need not be installed."""

    def __instancecheck__(cls, module: object) -> bool:
        if not isinstance(module, nn.Module) or _conv1d_class(module) is None:
            return False
        weight = getattr(module, "weight", None)
        width = getattr(module, "nf", None)
        return isinstance(weight, Tensor) and weight.ndim == 2 and weight.shape[1] == width


class Conv1D(nn.Module, metaclass=_ByStructure):
    """Stands for ``Conv1D`` of transformers in ``isinstance``: that name, ``nf`` outputs, weight (in, nf)."""


#: Layers that ``prune`` supports and that may have masks.
MASKABLE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d, Conv1D, nn.MultiheadAttention)


def outputs_first(module: nn.Module, tensor: Tensor) -> Tensor:
    """Return a view of ``tensor``, of the shape of the layer's weight, with outputs first; or the reverse."""
    return tensor.T if isinstance(module, Conv1D) else tensor


def is_plain_linear(module: nn.Module) -> bool:
    """Return True if a layer computes what Linear or Conv1D does; derived classes may not."""
    kind = nn.Linear if isinstance(module, nn.Linear) else _conv1d_class(module)
    return kind is not None and type(module).forward is kind.forward


def as_linear(module: nn.Module) -> nn.Module:
    """Return an ``nn.Linear`` with the weight and bias of a ``Conv1D``; any other module itself."""
    if not isinstance(module, Conv1D):
        return module
    weight = own_weight(module)
    bias = cast("Tensor | None", getattr(module, "bias", None))
    linear = nn.Linear(weight.shape[0], weight.shape[1], bias=bias is not None, device="meta")
    with torch.no_grad():
        linear.weight = nn.Parameter(weight.T.contiguous(), weight.requires_grad)
    if isinstance(bias, nn.Parameter):
        linear.bias = bias
    return linear.train(module.training)


PRUNABLE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d)


def selected_layers(
    model: nn.Module,
    pattern: Pattern | Mapping[str, Pattern | None],
    select: Select = None,
    types: tuple[type[nn.Module], ...] = PRUNABLE,
    *,
    rule: Rule | None = None,
    replacing: bool = False,
    nothing: str = "",
) -> Selection:
    """Return the layers of ``model`` whose weight fits ``pattern``.

    Args:
        model: any module; it does not change.
        pattern: n:m or blocks for all layers, or one by name; a missing name or ``None`` stays dense.
        select: layers to consider, see :data:`sparse_core.common.surgery.Select`.
        types: classes to look for, with subclasses.
        rule, replacing: see :func:`sparse_core.common.surgery.choose_layers`.
        nothing: start of the error if there is none.

    Raises:
        TypeError: ``pattern`` is something else.
        ValueError: no layer is left, an unknown name in ``pattern``, or an invalid regular expression.
    """
    check_names(model, pattern, "pattern")

    def obstacle(name: str, module: nn.Module) -> str | None:
        wanted = pattern.get(name) if isinstance(pattern, Mapping) else pattern
        if wanted is None:
            return "the pattern leaves it dense"
        if not isinstance(wanted, NMPattern | Block):
            raise TypeError(f"pattern must be NMPattern, Block or a dictionary of them, got {wanted!r}")
        columns = outputs_first(module, weight_parameter(module))[0].numel()
        if isinstance(wanted, NMPattern) and columns % wanted.m:
            return f"its input dimension {columns} is not divisible by m={wanted.m}"
        return None if rule is None else rule(name, module)

    given = "the patterns given" if isinstance(pattern, Mapping) else str(pattern)
    return choose_layers(
        model, types, select, rule=obstacle, replacing=replacing, nothing=f"{nothing}no layer matches {given}"
    )


def magnitude_masks(
    model: nn.Module, pattern: Pattern | Mapping[str, Pattern | None] = TWO_FOUR, *, select: Select = None
) -> dict[str, Tensor]:
    """Return masks of the largest weights for every selected layer; the model does not change.

    Args:
        model: any module.
        pattern: n:m or blocks for all layers, or one by name.
        select: layers to mask, see :data:`sparse_core.common.surgery.Select`.

    Returns:
        Bool masks by dotted name, for :func:`sparse_core.nm.training.attach_masks`.

    Raises:
        ValueError: no layer matches, or a weight is NaN.
    """
    layers = selected_layers(model, pattern, select).layers
    wanted = pattern if isinstance(pattern, Mapping) else dict.fromkeys(layers, pattern)
    return {name: pattern_mask(weight_parameter(module), wanted[name]) for name, module in layers.items()}
