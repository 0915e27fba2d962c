"""What is compiled beside its users gives what they do without, from whatever call on it is there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sparse_core.kernels.native import BackgroundLibrary

#: Whether it is there at each of some calls, over and over.
_TURNS = ([True, False], [False, True], [False, False, True])


def with_and_without(beside: BackgroundLibrary, function: Callable[[], Any]) -> tuple[Any, Any]:
    """What a function gives with the library and without, which must be the same when they take turns."""
    assert beside.ready()
    library = beside.library()
    assert library is not None
    quick = function()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(beside, "library", lambda: None)
        plain = function()
        for turns in _TURNS:
            there = itertools.cycle(turns)
            patched.setattr(beside, "library", lambda there=there: library if next(there) else None)
            assert same(function(), plain)
    return quick, plain


def same(one: Any, other: Any) -> bool:
    """Whether two results are the same to the bit, in type and shape too."""
    if isinstance(one, Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.is_floating_point():
            one, other = one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return same(torch.from_numpy(one), torch.from_numpy(other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if is_dataclass(one):
        return all(same(getattr(one, part.name), getattr(other, part.name)) for part in fields(one))
    return bool(one == other)
