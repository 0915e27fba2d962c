"""Launch of Triton kernels: recording for launch plans, and programmatic dependent launch.

A launch plan (:mod:`sparse_core.kernels.launch_plan`) needs the kernels of a call in order, with their
arguments. So products launch kernels through :func:`launch`, which also records them within :func:`record`.
Memory that one launch of a product writes and the next one reads comes from :func:`scratch`, because a plan
must know that nobody else uses it. Kernels of other ops may be launched directly: nothing records them.
Tests count launches by replacing :func:`launch`.

With programmatic dependent launch (Hopper and later), the GPU sets up a kernel and fetches its code while
its predecessor still runs. The kernel must wait until all earlier writes are visible before it touches
memory that another launch may write or still read. Before that, it may read only memory that no launch
writes, or that was complete when its predecessor started. A kernel can let its successor start early, too.

It saves about 0.3 us per kernel,
in a chain of kernels that take a few microseconds each.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from threading import local
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


@dataclass(frozen=True, eq=False)
class RecordedLaunch:
    """A launched kernel; ``compiled`` is None in the interpreter."""

    kernel: Any
    compiled: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def without(self, places: tuple[int, ...]) -> RecordedLaunch:
        """Return the launch with None in these places, to release tensors that change."""
        rest = tuple(None if at in places else one for at, one in enumerate(self.arguments))
        return replace(self, arguments=rest)


@dataclass(frozen=True, eq=False)
class Record:
    """Launches within a block, and the memory from :func:`scratch` that they used."""

    launches: list[RecordedLaunch] = field(default_factory=list)
    scratch: list[Tensor] = field(default_factory=list)


class _Recorder(local):
    record: Record | None = None


_recorder = _Recorder()


def launch(kernel: Any, programs: int | tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel. Tests replace this function to count launches or to compile only."""
    grid = programs if isinstance(programs, tuple) else (programs,)
    compiled = kernel[grid](*arguments, **options)
    if _recorder.record is not None:
        _recorder.record.launches.append(RecordedLaunch(kernel, compiled, grid, arguments, options))


def scratch(shape: int | tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return memory that one launch of a product writes and a later one reads."""
    made = torch.empty(shape, dtype=dtype, device=device)
    if _recorder.record is not None:
        _recorder.record.scratch.append(made)
    return made


@contextmanager
def record() -> Iterator[Record]:
    """Record the kernels that this thread launches through :func:`launch` within the block."""
    before, _recorder.record = _recorder.record, Record()
    try:
        yield _recorder.record
    finally:
        _recorder.record = before


def dependent(tensor: Tensor) -> dict[str, bool]:
    """Return the launch arguments for programmatic dependent launch on the device of ``tensor``."""
    if tensor.is_cuda and _runs_on(tensor.device):
        return {"DEPENDENT": True, "launch_pdl": True}
    return {"DEPENDENT": False}


@cache
def _runs_on(device: torch.device) -> bool:
    if torch.cuda.get_device_capability(device)[0] < 9 or not hasattr(tl.extra.cuda, "gdc_wait"):
        return False
    from triton.backends.nvidia.compiler import CUDAOptions

    return any(option.name == "launch_pdl" for option in fields(CUDAOptions))
