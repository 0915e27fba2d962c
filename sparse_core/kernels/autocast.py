"""Disable autocast inside sparse products and solvers: they compute in the type of their operands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_DEVICES = ("cpu", "cuda")


def without_autocast(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the function with autocast off inside it, forward and backward.

    Autocast would round dense products inside, for example sums of residuals, and MKL has no sparse product
    in half precision. For half precision, pass operands of that type.
    """

    @functools.wraps(function)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        enabled = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
        if not enabled:
            return function(*args, **kwargs)
        with ExitStack() as stack:
            for device in enabled:
                stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return wrapper
