"""Launch plans of packed products, kept by a weight and by a layer for repeated input sizes.

A normal call checks operands and looks up the fastest method. A :class:`PlannedCall` skips that for a weight,
a :class:`LayerPlan` for a layer. Both use a :class:`sparse_core.kernels.launch_plan.LaunchPlan` for the
kernel for few rows and for cuSPARSELt; the dense product is a torch call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from sparse_core.kernels import torch_internals
from sparse_core.kernels.launch_plan import ALIGNMENT, Launcher, LaunchPlan, Scratch
from sparse_core.kernels.torch_internals import may_need_autograd

#: Calls before a plan is made, so that sizes that occur once have none.
_CALLS_BEFORE = 2

Call = Callable[[Tensor, "Tensor | None", "Tensor | None", "Tensor | None"], Tensor]
"""A product of given sizes: takes a contiguous input (rows, in), bias, dense weight and scale."""


class Launches(NamedTuple):
    """Parts of a launch plan for a product with a given bias; ``kept`` must live as long as the plan."""

    launcher: Launcher
    scratch: Scratch | None
    kept: object


class PlannedCall:
    """A product kept for later calls of the same sizes.

    ``launches`` returns the launches of the product for a bias. ``plan`` is None before the third call.
    """

    def __init__(
        self,
        call: Call,
        values: Tensor,
        launches: Callable[[Tensor | None], Launches | None] | None,
        *,
        is_dense: bool,
    ) -> None:
        self.call, self.is_dense, self._values, self._launches = call, is_dense, values, launches
        self._calls_left = -1 if launches is None else _CALLS_BEFORE
        self.plan: LaunchPlan | None = None

    @property
    def is_settled(self) -> bool:
        """True if later calls will not make a plan."""
        return self._calls_left < 0

    def __call__(self, x: Tensor, bias: Tensor | None, dense: Tensor | None, scale: Tensor | None) -> Tensor:
        """Return the product (rows, out) of a contiguous x (rows, in)."""
        if self.plan is not None:
            y = self.plan((x,), fixed_tensors(self._values, bias))
            return self.call(x, bias, dense, scale) if y is None else y
        y = self.call(x, bias, dense, scale)
        if self._calls_left >= 0 and not torch.cuda.is_current_stream_capturing():
            self._calls_left -= 1
            if self._calls_left < 0 and scale is None:
                self.plan = self._make_plan(bias, y)
        return y

    def _make_plan(self, bias: Tensor | None, y: Tensor) -> LaunchPlan | None:
        found = None if self._launches is None else self._launches(bias)
        if found is None:
            return None
        return LaunchPlan(found.launcher, y, fixed_tensors(self._values, bias), found.scratch, found.kept)


def fixed_tensors(values: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    """Return the tensors that launches read besides the input."""
    return (values,) if bias is None else (values, bias)


class LayerPlan:
    """A layer's product for an input of one shape; ``product`` is settled for these sizes."""

    def __init__(
        self,
        product: PlannedCall,
        x: Tensor,
        values: Tensor,
        bias: Tensor | None,
        dense: Tensor | None,
        activation: str | None,
    ) -> None:
        self._values, self._version, self._bias, self._dense = values, values._version, bias, dense
        self._fixed = fixed_tensors(values, bias)
        self._dtype, self._index, self._is_matrix = x.dtype, x.get_device(), x.ndim == 2
        self._shape = (*x.shape[:-1], values.shape[0])
        self._call = product.call
        self._plan = None if product.plan is None else product.plan.with_shape(self._shape)
        plain = product.is_dense and activation is None and x.dtype != torch.int8
        self._matrix = dense if plain and self._is_matrix else None

    def __call__(self, x: Tensor, values: Tensor, bias: Tensor | None) -> Tensor | None:
        """Return the layer's result; None if the guard fails and the call must run as usual."""
        if (
            values is not self._values
            or bias is not self._bias
            or x.dtype is not self._dtype
            or values._version != self._version
            or not x.is_contiguous()
            or torch_internals.autocast_active()
        ):
            return None
        if self._plan is not None:
            return self._plan((x,), self._fixed)
        if (
            x.get_device() != self._index
            or torch_internals.current_device() != self._index
            or may_need_autograd(x, *self._fixed)
        ):
            return None
        if self._matrix is not None:
            return linear(x, self._matrix, bias)
        if x.data_ptr() % ALIGNMENT or (
            bias is not None and (bias.data_ptr() % ALIGNMENT or not bias.is_contiguous())
        ):
            return None
        if self._is_matrix:
            return self._call(x, bias, self._dense, None)
        return self._call(x.view(-1, x.shape[-1]), bias, self._dense, None).view(self._shape)
