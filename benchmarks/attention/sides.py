"""The sides of the attention benchmark: compared with each other, then timed."""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.attention.cells import PATTERNS, Cell
from benchmarks.attention.exact import TOLERANCE, error_of_rows, relative_error
from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.timing import paired_ratio
from sparse_core.attention import BlockPattern, sparse_attention

CUDNN, FLASH, TORCH = "cuDNN", "flash", "torch"
FLEX, FA4, OURS, TRITON = "FlexAttention", "FlashAttention-4", "ours", "ours, Triton"
DENSE_SIDES = (CUDNN, FLASH, TORCH)

Attend = Callable[[Tensor, Tensor, Tensor, BlockPattern], Tensor]
Step = Callable[[], tuple[Tensor, ...]]


def matches(key: str, patterns: Iterable[str]) -> bool:
    """Return True if one of the shell patterns fits."""
    return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def reason(error: Exception) -> str:
    """The beginning of an error's message, for a note."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:150]}"


def measure_cell(
    cell: Cell, device: torch.device, options: argparse.Namespace, notes: list[str]
) -> dict[str, Any]:
    """Compare all sides, then time them.

    Args:
        cell: what to measure.
        device: a GPU or the CPU.
        options: ``seed``, ``rounds``, ``cell_s`` (seconds of a cell) and ``flex_cells`` of the command line.
        notes: takes what could not run.
    """
    q, k, v, grad = operands(cell, device, options.seed)
    pattern = PATTERNS[cell.pattern](cell, q, k, options.seed)
    attends = _sides(cell, pattern, device, options.flex_cells)
    given = grad if cell.gradient else None
    runs: dict[str, Step] = {
        name: step(partial(attend, q, k, v, pattern), (q, k, v), given) for name, attend in attends.items()
    }
    errors, first_s = _check(cell, runs, q, k, v, given, pattern, notes)
    limit = TOLERANCE[cell.dtype] * (2 if cell.gradient else 1)
    eager = list(runs) if cell.gradient else [FLEX]
    times = call_microseconds(
        runs, device, rounds=options.rounds, budget_s=options.cell_s, seed=options.seed, eager=eager
    )
    dense = CUDNN if device.type == "cuda" else TORCH
    return {
        "key": cell.key,
        **cell._asdict(),
        "dtype": str(cell.dtype).removeprefix("torch."),
        "density": round(pattern.density, 6),
        "block_density": round(pattern.block_density, 6),
        "errors": {name: finite(error) for name, error in errors.items()},
        "agrees": all(error <= limit for error in errors.values()),
        "first_call_s": first_s,
        "microseconds": {name: microseconds(samples) for name, samples in times.items()},
        "tflop_s": {name: _tflop_s(cell, name, pattern, samples) for name, samples in times.items()},
        "over_dense": _ratio(times, dense, OURS),
        "over_flash": _ratio(times, FLASH, OURS),
        "over_flex": _ratio(times, FLEX, OURS),
        "over_fa4": _ratio(times, FA4, OURS),
        "triton_over_dense": _ratio(times, dense, TRITON),
    }


def operands(cell: Cell, device: torch.device, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v and a gradient of the output, normal; the first three take gradients where the cell does."""
    generator = torch.Generator(device=device).manual_seed(seed)
    shape = (cell.batch, cell.heads, cell.length, cell.dim)
    q, k, v, grad = (torch.randn(shape, device=device, generator=generator).to(cell.dtype) for _ in range(4))
    for tensor in (q, k, v):
        tensor.requires_grad_(cell.gradient)
    return q, k, v, grad


def step(form: Callable[[], Tensor], inputs: tuple[Tensor, ...], grad: Tensor | None) -> Step:
    """Gives what ``form`` gives, and with ``grad`` the gradients of the inputs.

    Args:
        form: computes a tensor from the inputs.
        inputs: what it is differentiated by.
        grad: gradient of the tensor; ``None`` for the tensor alone.
    """

    def run() -> tuple[Tensor, ...]:
        if grad is None:
            with torch.no_grad():
                return (form(),)
        out = form()
        return (out.detach(), *torch.autograd.grad(out, inputs, grad))

    return run


def dense_attention(backend: SDPBackend | None) -> Attend:
    """torch's attention to every key by one of its backends; ``None`` leaves the choice to torch."""

    def attend(q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern) -> Tensor:
        if backend is None:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return attend


def _sides(
    cell: Cell, pattern: BlockPattern, device: torch.device, flex_cells: Sequence[str]
) -> dict[str, Attend]:
    if device.type == "cpu":
        return {OURS: _ours("auto"), TORCH: dense_attention(None)}
    sides = {
        OURS: _ours("auto"),
        CUDNN: dense_attention(SDPBackend.CUDNN_ATTENTION),
        FLASH: dense_attention(SDPBackend.FLASH_ATTENTION),
    }
    if not cell.gradient:
        sides[TRITON] = _ours("triton")
    if matches(cell.key, flex_cells):
        sides[FLEX] = _ours("vendor")
    if _fits_fa4(cell):
        sides[FA4] = _fa4
    return sides


def _fits_fa4(cell: Cell) -> bool:
    """Return True for random whole blocks of 128 in 16 bits, if the package ``flash-attn-4`` is installed."""
    fits = cell.pattern == "random" and cell.block_size == 128 and cell.dtype.itemsize == 2
    return fits and importlib.util.find_spec("flash_attn") is not None


def _fa4(q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern) -> Tensor:
    """FlashAttention-4 with its tables of blocks, or without any where every block is attended."""
    if pattern.density < 1.0:
        return sparse_attention(q, k, v, pattern, impl="fa4")
    from flash_attn.cute import flash_attn_func

    out: Tensor = flash_attn_func(*(part.transpose(1, 2) for part in (q, k, v)))[0]
    return out.transpose(1, 2)


def _ours(impl: Any) -> Attend:
    return lambda q, k, v, pattern: sparse_attention(q, k, v, pattern, impl=impl)


def _check(
    cell: Cell,
    runs: dict[str, Step],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor | None,
    pattern: BlockPattern,
    notes: list[str],
) -> tuple[dict[str, float], dict[str, float]]:
    """Errors by side, and seconds of the first call; sides that cannot run leave ``runs``.

    Ours and the dense sides are compared with float64 on some rows; where dense computes the same, and for
    all other sides, everything is compared with ours as well.
    """
    errors, first_s = {}, {}
    ours: tuple[Tensor, ...] = ()
    for name in list(runs):
        start = time.perf_counter()
        try:
            results = runs[name]()
            if q.is_cuda:
                torch.cuda.synchronize()
        except Exception as failure:  # compilers raise all kinds
            if name == OURS:
                raise
            notes.append(f"{name}, {cell.key}: {reason(failure)}")
            del runs[name]
            continue
        first_s[name] = round(time.perf_counter() - start, 2)
        ours = ours or results
        error = 0.0
        if name == OURS or name in DENSE_SIDES:
            attended = pattern if name == OURS else None
            error = error_of_rows(results, q, k, v, grad, attended, pattern.block_size)
        if name != OURS and (name not in DENSE_SIDES or pattern.density == 1.0):
            pairs = zip(results, ours, strict=True)
            error = max(error, *(relative_error(found, expected.float()) for found, expected in pairs))
        errors[name] = error
    return errors, first_s


def _tflop_s(cell: Cell, side: str, pattern: BlockPattern, samples: Sequence[float]) -> float:
    """Count operations of the allowed pairs: 4 per pair and dimension, 2.5 times as many backward."""
    share = 1.0 if side in DENSE_SIDES else pattern.density
    work = 4 * cell.dim * share * cell.length**2 * cell.heads * cell.batch * (3.5 if cell.gradient else 1)
    return round(work / microseconds(samples)["median"] / 1e6, 3)


def _ratio(times: dict[str, list[float]], numerator: str, denominator: str) -> dict[str, float] | None:
    if numerator not in times or denominator not in times:
        return None
    return paired_ratio(times[numerator], times[denominator])


def finite(error: float) -> float | None:
    """For JSON, which has no infinity."""
    return round(error, 7) if math.isfinite(error) else None
