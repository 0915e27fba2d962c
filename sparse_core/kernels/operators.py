"""Operators that ``torch.compile`` does not trace into.

``torch.library.custom_op`` adds checks to each call that cost more host time than a small product. The
operators here have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

_NAMESPACE = "sparsight"
#: Keeps the operators registered.
_LIBRARY = torch.library.Library(_NAMESPACE, "FRAGMENT")


def operator(name: str, *, gradient: bool = True) -> Callable[[Callable[..., Any]], OpOverload]:
    """Make an operator of an annotated function; ``torch.library`` registers its fake and its gradient.

    The function must not change its arguments, nor return them or a view of one; nothing checks this. With
    ``gradient=False``, asking for a gradient raises.
    """

    def refused(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            f"{name} has no autograd formula: it is the gradient of another, computed by kernels"
        )

    def made(function: Callable[..., Any]) -> OpOverload:
        schema = torch.library.infer_schema(function, mutates_args=())
        _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        overload: OpOverload = getattr(getattr(torch.ops, _NAMESPACE), name).default
        if not gradient:
            torch.library.register_autograd(overload, refused)
        return overload

    return made
