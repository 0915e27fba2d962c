"""Where each kind of layer keeps its weight matrix, and which way round.

``nn.Linear`` and ``nn.Conv2d`` have ``weight`` with outputs first. ``nn.MultiheadAttention`` has the
projections of queries, keys and values one below the other in ``in_proj_weight``. ``Conv1D`` of the package
transformers (GPT-2 and its relatives) is a linear layer whose ``weight`` is (in, out).
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import own_weight


def _conv1d_class(module: nn.Module) -> type[nn.Module] | None:
    """The class of that name that ``module`` is of or derived from, as parametrised layers are."""
    return next((kind for kind in type(module).__mro__ if kind.__name__ == "Conv1D"), None)


class _ByStructure(type):
    """``isinstance`` by what a module looks like: the package it comes from need not be installed."""

    def __instancecheck__(cls, module: object) -> bool:
        if not isinstance(module, nn.Module) or _conv1d_class(module) is None:
            return False
        weight = getattr(module, "weight", None)
        width = getattr(module, "nf", None)
        return isinstance(weight, Tensor) and weight.ndim == 2 and weight.shape[1] == width


class Conv1D(nn.Module, metaclass=_ByStructure):
    """``isinstance`` holds for a ``Conv1D`` of transformers: that name, ``nf`` outputs, weight (in, nf)."""


#: Layers that ``prune`` takes, and masks may be attached to.
MASKABLE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d, Conv1D, nn.MultiheadAttention)


def outputs_first(module: nn.Module, tensor: Tensor) -> Tensor:
    """A view of ``tensor`` with outputs first, given in the order of the layer's weight; and the way back.

    Args:
        module: the layer.
        tensor: of its weight's shape: the weight itself, a mask, scores.
    """
    return tensor.T if isinstance(module, Conv1D) else tensor


def is_plain_linear(module: nn.Module) -> bool:
    """Whether a Linear or Conv1D layer computes what its class does: a class derived from it may not."""
    kind = nn.Linear if isinstance(module, nn.Linear) else _conv1d_class(module)
    return kind is not None and type(module).forward is kind.forward


def as_linear(module: nn.Module) -> nn.Module:
    """The ``nn.Linear`` that computes what a ``Conv1D`` does, with its bias; any other module itself."""
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
