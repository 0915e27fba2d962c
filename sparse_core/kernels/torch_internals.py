"""Functions of torch that have no public name, or whose public name takes as long as a small kernel.

This is the only module that reads ``torch._C``; ``tests/architecture`` checks that. A new version of torch is
checked against this list alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def _missing(*_: object) -> Any:
    raise RuntimeError("this build of PyTorch has no CUDA: install one with CUDA to run kernels on a GPU")


#: The current CUDA device; ``torch.cuda.current_device`` checks the initialization of CUDA at each call.
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", _missing)

#: The current stream of a device as an integer (``CUstream``); the public name makes a ``Stream`` first.
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _missing)

#: True under a transform of ``torch.func``.
transforms_active: Callable[[], bool] = torch._C._are_functorch_transforms_active

#: True where autocast is on for any type of device.
autocast_active: Callable[[], bool] = torch._C._is_any_autocast_enabled

#: A context in which subclasses of tensors do not intercept functions of torch.
ignore_subclasses = torch._C.DisableTorchFunctionSubclass


def forward_mode_active() -> bool:
    """True where forward-mode derivatives are taken."""
    return bool(forward_ad._current_level >= 0)


def tracing() -> bool:
    """True under ``torch.jit.trace``."""
    return torch._C._get_tracing_state() is not None


def perhaps_followed(*tensors: Tensor) -> bool:
    """True if autograd, a transform of ``torch.func`` or a tangent may follow these tensors.

    Quicker than :func:`sparse_core.kernels.gradients.followed`: False is sure, True is not.
    """
    if transforms_active() or forward_ad._current_level >= 0:
        return True
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor.requires_grad:
                return True
    return False
