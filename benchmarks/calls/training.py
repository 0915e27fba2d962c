"""Attention with gradients in short sequences, called eagerly, compared with cuDNN's dense attention."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from benchmarks.calls.products import launch_plans
from benchmarks.calls.rows import beside, timed
from benchmarks.lib.timing import Summary, interleave
from sparse_core.attention import BlockPattern, local_window, random_blocks, sparse_attention

#: Batch, heads, length, dim.
_SHAPES = ((8, 16, 512, 64), (8, 16, 1024, 64), (2, 8, 512, 64), (2, 8, 1024, 64), (2, 16, 1024, 128))
#: Passes of a sample: one of them is too short for the clock.
_PASSES = 10
_BUDGET_S = 3.0


def training(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time forward and backward passes with plans, without them, and of dense attention, interleaved."""
    device = torch.device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    shapes = _SHAPES[:1] if options.quick else _SHAPES
    found = []
    for batch, heads, length, dim in shapes:
        if options.quick:
            batch, heads = 1, 1
        q, k, v = (
            torch.randn(batch, heads, length, dim, device=device, dtype=dtype).requires_grad_()
            for _ in range(3)
        )
        gradient = torch.randn_like(q)
        for name, make in _patterns(length).items():
            called = f"forward and backward, {batch} x {heads} x {length} x {dim}, {name}"
            found.append(_row(called, make, (q, k, v), gradient, options))
    return found


def _patterns(length: int) -> dict[str, Callable[[], BlockPattern]]:
    return {
        "window": lambda: local_window(length, window=length // 8, block_size=64),
        "random quarter": lambda: random_blocks(length, 0.25, 64),
    }


def _row(
    called: str,
    make: Callable[[], BlockPattern],
    operands: Sequence[Tensor],
    gradient: Tensor,
    options: argparse.Namespace,
) -> dict[str, Any]:
    device, (q, k, v) = gradient.device, operands

    def ours(switch: str) -> Callable[[], object]:
        pattern = make().to(device)

        def attend() -> Tensor:
            return sparse_attention(q, k, v, pattern)

        step = _passes(attend, operands, gradient)
        with launch_plans(switch):
            # The plan is made after some calls, or never.
            step()
        return step

    def dense() -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if device.type == "cuda" else SDPBackend.MATH):
            return functional.scaled_dot_product_attention(q, k, v)

    sides = {"plan": ours("1"), "ordinary": ours("0"), "dense": _passes(dense, operands, gradient)}
    samples = interleave(sides, device, rounds=options.rounds, warmup=2, budget_s=_BUDGET_S)
    pass_ms = {name: [one / _PASSES for one in taken] for name, taken in samples.items()}
    kernels = (
        {name: _kernels(side) / _PASSES for name, side in sides.items()} if device.type == "cuda" else {}
    )
    return timed(
        called,
        pass_ms["plan"],
        **beside("cuDNN, all blocks", pass_ms["dense"], pass_ms["plan"]),
        parts_ms={
            "without a plan": round(Summary.of(pass_ms["ordinary"]).median_ms, 4),
            "dense": round(Summary.of(pass_ms["dense"]).median_ms, 4),
            **{f"kernels of {name}": count for name, count in kernels.items()},
        },
    )


def _passes(
    attend: Callable[[], Tensor], operands: Sequence[Tensor], gradient: Tensor
) -> Callable[[], object]:
    def step() -> None:
        for _ in range(_PASSES):
            torch.autograd.grad(attend(), operands, gradient)

    return step


def _kernels(step: Callable[[], object]) -> int:
    """Return how many kernels the device runs in a step."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    events = [one.name for one in found.events() or [] if str(one.device_type).endswith("CUDA")]
    return sum(1 for name in events if not name.startswith("Mem"))
