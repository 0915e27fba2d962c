"""Triton kernels that begin while the one before them ends: programmatic dependent launch, from Hopper on.

A kernel that is launched so is set up, and its code fetched, while its predecessor still runs. Before it
touches what another launch may write or still reads, it waits until all memory that was written before is
visible; until then it may read what no launch writes, or what was complete when its predecessor began. It may
let its own successor begin early in turn. In a chain of kernels of a few microseconds each that saves some
0.3 us a kernel.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def wait_for_launch(DEPENDENT: tl.constexpr):
    """Wait for all that was launched before: every program of every kernel that is launched so must."""
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()


@triton.jit
def begin_next(DEPENDENT: tl.constexpr):
    """Let the next kernel be set up; not too early, because what waits takes the place of what runs."""
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()


def launch(kernel: Any, programs: int | tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel; tests count launches, or compile instead, by putting another function in its place."""
    kernel[programs if isinstance(programs, tuple) else (programs,)](*arguments, **options)


def dependent(tensor: Tensor) -> dict[str, bool]:
    """Arguments of a launch: ``DEPENDENT`` for the kernel, and what Triton needs to know.

    Args:
        tensor: one that the kernel works on, for its device.
    """
    if tensor.is_cuda and _runs_on(tensor.device):
        return {"DEPENDENT": True, "launch_pdl": True}
    return {"DEPENDENT": False}


@cache
def _runs_on(device: torch.device) -> bool:
    if torch.cuda.get_device_capability(device)[0] < 9 or not hasattr(tl.extra.cuda, "gdc_wait"):
        return False
    from triton.backends.nvidia.compiler import CUDAOptions

    return any(field.name == "launch_pdl" for field in fields(CUDAOptions))
