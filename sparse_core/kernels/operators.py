"""Operators that ``torch.compile`` keeps whole.

``torch.library.custom_op`` wraps each call in checks that cost more of the host than a small product: what a
compiled program calls is defined here without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

_NAMESPACE = "sparsight"
#: Operators live as long as it does.
_LIBRARY = torch.library.Library(_NAMESPACE, "FRAGMENT")


def operator(name: str, *, gradient: bool = True) -> Callable[[Callable[..., Any]], OpOverload]:
    """Make an operator of an annotated function; ``torch.library`` registers its fake and its gradient.

    The function changes none of its arguments and returns none of them, nor a view of one: nothing checks it.

    Args:
        name: within the namespace ``sparsight``.
        gradient: whether one is registered; else asking for it is an error.
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
