"""Compare attention by training plans with ordinary calls, interpreted on a CPU; prints a JSON report.

Run on its own by test_attention_training_plans.py, because Triton decides at import whether it interprets. A
stand-in of the launcher takes addresses, as the real one does, and runs the recorded kernels on the memory
there.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sparse_core.attention import BlockPattern, local_window, random_blocks
from sparse_core.attention.gpu import attention, training_plans
from sparse_core.attention.gpu.plan import lists_of
from sparse_core.attention.gpu.training_plans import TrainingPlan
from sparse_core.attention.operands import AttentionOptions, AttentionShape
from sparse_core.kernels import launches, torch_internals
from sparse_core.kernels.triton_launches import BoundLaunch, bind_by_identity

ordinary: list[str] = []
planned: list[str] = []
layouts: list[list[tuple[torch.Size, tuple[int, ...], torch.dtype]]] = []


def launch(kernel: Any, programs: int, *arguments: Any, **options: Any) -> None:
    """Launch as the product does, and claim that the kernel was compiled."""
    kernel[(programs,)](*arguments, **options)
    ordinary.append(kernel.fn.__name__)
    found = launches._recorder.record
    if found is not None:
        found.launches.append(launches.RecordedLaunch(kernel, "compiled", (programs,), arguments, options))


def bind(recorded: Any, operands: Sequence[Tensor], fixed: Sequence[Tensor]) -> Any:
    """Bind as the product does, and note the layouts of the operands."""
    layouts.append([(one.shape, one.stride(), one.dtype) for one in operands])
    return bind_by_identity(recorded, operands, fixed)


def memory(address: int, shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a tensor at an address."""
    count = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(buffer, dtype=dtype).as_strided(shape, stride)


def make_launcher(steps: Sequence[BoundLaunch]) -> Callable[..., None]:
    """Return a function of a stream and addresses that runs the kernels."""
    layout = layouts[-1]

    def run(stream: int, *addresses: int) -> None:
        operands = [memory(address, *one) for address, one in zip(addresses, layout, strict=True)]
        for step in steps:
            arguments = list(step.launch.arguments)
            for place, (which, _) in zip(step.places, step.moving, strict=True):
                arguments[place] = operands[which]
            step.launch.kernel[step.launch.grid](*arguments, **step.launch.options)
            planned.append(step.launch.kernel.fn.__name__)

    return run


def install() -> None:
    """Put the stand-ins in place."""
    launches.launch = launch
    training_plans.bind_by_identity = bind  # type: ignore[attr-defined]
    training_plans.make_steps = lambda bound: bound  # type: ignore[attr-defined]
    training_plans.make_launcher = make_launcher  # type: ignore[attr-defined]
    torch_internals.current_device = lambda: -1
    torch_internals.raw_stream = lambda index: 0


def operands(length: int, heads: int, key_heads: int, *, fused: bool, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if fused:
        found = list(torch.randn(2, length, 3, heads, 32, generator=generator).permute(2, 0, 3, 1, 4))
    else:
        counts = (heads, key_heads, key_heads)
        found = [torch.randn(2, count, length, 32, generator=generator) for count in counts]
    return [one.detach().requires_grad_() for one in found]


def compared(
    pattern: BlockPattern, heads: int, key_heads: int, *, fused: bool = False, of_keys: bool = True
) -> dict[str, object]:
    """Return if planned passes had the bits of ordinary ones, and the kernels that they launched."""
    lists, transposed = lists_of(pattern), lists_of(pattern.transposed()) if of_keys else None
    length, plan = pattern.query_length, None
    same = []
    ordinary.clear()
    planned.clear()
    for seed in range(4):
        q, k, v = operands(length, heads, key_heads, fused=fused, seed=seed)
        if not of_keys:
            k, v = k.detach(), v.detach()
        plan = plan or TrainingPlan.of(q, k, v, lists, transposed, 0.2)
        assert plan is not None
        # The last gradient has another layout, whose first backward pass is an ordinary one.
        gradient = torch.randn(q.shape, generator=torch.Generator().manual_seed(9))
        if seed == 3:
            gradient = gradient.transpose(1, 2).contiguous().transpose(1, 2)
        out = plan(q, k, v, lists, transposed)
        assert out is not None
        wanted = [one for one in (q, k, v) if one.requires_grad]
        found = [out, *torch.autograd.grad(out, wanted, gradient)]
        counts = len(ordinary)
        shape = AttentionShape(2, heads, key_heads, length, length, 32)
        options = AttentionOptions(0.2, impl="auto")
        with torch.no_grad():
            expected, lse = attention.forward(q, k, v, lists, shape, options)
            parts = attention.backward(
                gradient, None, q, k, v, expected, lse, lists, transposed, shape, options
            )
        del ordinary[counts:]
        theirs = [expected, *(one for one in parts if one is not None)]
        same.append(all(map(torch.equal, found, theirs)) and len(found) == len(theirs))
    return {"same": same, "ordinary": list(ordinary), "planned": list(planned)}


def main() -> None:
    install()
    window = local_window(50, 10, 32)
    report = {
        "window": compared(window, 2, 2),
        "grouped": compared(random_blocks(50, 0.5, 32), 4, 2),
        "one tensor": compared(window, 2, 2, fused=True),
        "queries": compared(window, 2, 2, of_keys=False),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
