"""Memory that torch leaves uninitialised, filled so that reading it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_ALLOCATORS = ((torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (Tensor, "new_empty"))


def _poisoning(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def allocated(*args: Any, **kwargs: Any) -> Tensor:
        made = allocate(*args, **kwargs)
        if made.dtype == torch.bool or made.is_quantized or made.requires_grad:
            return made
        with torch.no_grad():
            if made.is_floating_point() or made.is_complex():
                return made.fill_(float("nan"))
            limits = torch.iinfo(made.dtype)
            return made.fill_(limits.min if limits.min < 0 else limits.max)

    return allocated


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill what torch leaves uninitialised with NaN or a huge negative number."""
    originals = [getattr(owner, name) for owner, name in _ALLOCATORS]
    try:
        for (owner, name), original in zip(_ALLOCATORS, originals, strict=True):
            setattr(owner, name, _poisoning(original))
        yield
    finally:
        for (owner, name), original in zip(_ALLOCATORS, originals, strict=True):
            setattr(owner, name, original)
