"""Private functions of torch, used where no public one exists or where it is as slow as a small kernel.

Only this module reads ``torch._C``; ``tests/architecture`` checks that. Check this list for each new version
of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad


def _missing(*_: object) -> Any:
    raise RuntimeError("this build of PyTorch has no CUDA: install one with CUDA to run kernels on a GPU")


#: The current CUDA device; ``torch.cuda.current_device`` checks at each call if CUDA is initialised.
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", _missing)

#: The current stream of a device as an integer (``CUstream``); the public function creates a ``Stream``.
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _missing)

#: True under a transform of ``torch.func``.
transforms_active: Callable[[], bool] = torch._C._are_functorch_transforms_active

#: True if autocast is on for any type of device.
autocast_active: Callable[[], bool] = torch._C._is_any_autocast_enabled

#: A context in which subclasses of tensors do not intercept functions of torch.
ignore_subclasses = torch._C.DisableTorchFunctionSubclass


def outside_transforms(tensors: Iterable[Tensor]) -> AbstractContextManager[Any]:
    """Return a context in which transforms of ``torch.func`` do not follow results of ``tensors``.

    The context has no effect if a transform made one of the tensors.
    """
    if not transforms_active() or any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)):
        return nullcontext()
    context: AbstractContextManager[Any] = temporarily_clear_interpreter_stack()
    return context


def forward_mode_active() -> bool:
    """Return True inside forward-mode differentiation."""
    return bool(forward_ad._current_level >= 0)


def tracing() -> bool:
    """Return True under ``torch.jit.trace``."""
    return torch._C._get_tracing_state() is not None


def may_need_autograd(*tensors: Tensor) -> bool:
    """Return True if autograd, a transform of ``torch.func`` or a tangent may follow these tensors.

    Faster than :func:`sparse_core.kernels.gradients.needs_autograd`: False is certain, True is not.
    """
    if transforms_active() or forward_ad._current_level >= 0:
        return True
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor.requires_grad:
                return True
    return False
