"""Attention that first finds what to read, and attention by lists of keys."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from benchmarks.attention.cells import TOKENS, Cell
from benchmarks.attention.exact import TOLERANCE, error_of_rows, relative_error
from benchmarks.attention.sides import (
    CUDNN,
    OURS,
    TORCH,
    Step,
    dense_attention,
    finite,
    operands,
    reason,
    step,
)
from benchmarks.lib.graphs import call_microseconds, can_capture, microseconds
from benchmarks.lib.timing import Side, interleave, paired_ratio
from sparse_core.attention import BlockPattern, gathered_attention, sparse_attention, top_k_blocks

SELECTED, SELECTION, FIXED = "selection and attention", "selection", "attention"
REFERENCE, MASKED, UNMASKED = "plain torch", "dense, masked", "dense, no mask"


def selection_cells(device: str, *, quick: bool) -> list[Cell]:
    """Lengths and shares that are kept; the target of a cell is the share."""
    if device == "cpu":
        lengths = [512, 1024] if quick else [512, 1024, 2048, 4096]
        return [Cell("selection", 0.1, length, 64, 1, 2, 64, torch.float32) for length in lengths]
    lengths = [1024, 4096] if quick else [4096, 2048, 1024, 8192, 16384]
    return [
        Cell("selection", keep, length, 64, TOKENS // length, 16)
        for keep in ((0.1,) if quick else (0.1, 0.05, 0.25))
        for length in lengths
    ]


def measure_selection(cell: Cell, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    """A fresh pattern in every call, against dense: by the device's clock, and called eagerly by the wall's.

    The former in a CUDA graph, where the calls can be captured.
    """
    q, k, v, _ = operands(cell, device, options.seed)

    def select() -> BlockPattern:
        return top_k_blocks(q, k, cell.target, block_size=cell.block_size)

    pattern = select()
    dense = CUDNN if device.type == "cuda" else TORCH
    attend = dense_attention(SDPBackend.CUDNN_ATTENTION if device.type == "cuda" else None)
    runs: dict[str, Side] = {
        dense: lambda: attend(q, k, v, pattern),
        SELECTED: lambda: sparse_attention(q, k, v, select()),
        SELECTION: select,
        FIXED: lambda: sparse_attention(q, k, v, pattern),
    }
    with torch.no_grad():
        error = error_of_rows([sparse_attention(q, k, v, select())], q, k, v, None, pattern, cell.block_size)
        eager = [] if device.type == "cpu" else [n for n in (SELECTED, SELECTION) if not can_capture(runs[n])]
        times = call_microseconds(
            runs, device, rounds=options.rounds, budget_s=options.cell_s, seed=options.seed, eager=eager
        )
        called = {name: runs[name] for name in (dense, SELECTED)}
        wall = interleave(
            called, device, rounds=options.rounds, budget_s=options.cell_s / 2, seed=options.seed
        )
    return {
        "key": cell.key,
        **cell._asdict(),
        "dtype": str(cell.dtype).removeprefix("torch."),
        "density": round(pattern.density, 6),
        "captured": not eager and device.type == "cuda",
        "error": finite(error),
        "agrees": error <= TOLERANCE[cell.dtype],
        "microseconds": {name: microseconds(samples) for name, samples in times.items()},
        "over_dense": paired_ratio(times[dense], times[SELECTED]),
        "wall_microseconds": {
            name: microseconds([value * 1e3 for value in samples]) for name, samples in wall.items()
        },
        "wall_over_dense": paired_ratio(wall[dense], wall[SELECTED]),
    }


class Lists(NamedTuple):
    """Operands of attention by lists of keys.

    Attributes:
        q: (1, heads, queries, dim).
        k, v: (1, heads, keys, dim).
        grad: of the output.
        listing: (1, heads or 1, queries, listed) int32, no key twice.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    listing: Tensor


def measure_gathered(
    shared: bool, gradient: bool, device: torch.device, options: argparse.Namespace, notes: list[str]
) -> dict[str, Any]:
    """Reading a long memory by lists of keys, against plain torch and against dense attention with a mask.

    Args:
        shared: one list for all heads, not one each.
        gradient: forward and backward, not forward alone.
        device, options: as of a cell.
        notes: takes what could not run.
    """
    given = _lists(shared, gradient, device, options)
    runs = {
        name: step(form, (given.q, given.k, given.v), given.grad if gradient else None)
        for name, form in _forms(given).items()
    }
    errors = _errors(runs, notes)
    times = call_microseconds(
        runs,
        device,
        rounds=options.rounds,
        budget_s=options.cell_s,
        seed=options.seed,
        eager=list(runs) if gradient else [REFERENCE],
    )
    limit = TOLERANCE[given.q.dtype] * (2 if gradient else 1)
    return {
        "heads": given.q.shape[1],
        "queries": given.q.shape[2],
        "keys": given.k.shape[2],
        "listed": given.listing.shape[3],
        "dim": given.q.shape[3],
        "dtype": str(given.q.dtype).removeprefix("torch."),
        "shared": shared,
        "gradient": gradient,
        "errors": errors,
        "agrees": all(error is not None and error <= limit for error in errors.values()),
        "microseconds": {name: microseconds(samples) for name, samples in times.items()},
        "over": {name: paired_ratio(times[name], times[OURS]) for name in times if name != OURS},
    }


def _lists(shared: bool, gradient: bool, device: torch.device, options: argparse.Namespace) -> Lists:
    small = device.type == "cpu" or options.quick
    heads, queries, keys, listed, dim = (2, 256, 2048, 16, 64) if small else (8, 4096, 65536, 64, 64)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    generator = torch.Generator(device=device).manual_seed(options.seed)

    def normal(length: int) -> Tensor:
        return torch.randn(1, heads, length, dim, device=device, generator=generator).to(dtype)

    index = [
        torch.rand(queries, keys, device=device, generator=generator).topk(listed, dim=1).indices
        for _ in range(1 if shared else heads)
    ]
    q, k, v = (normal(length).requires_grad_(gradient) for length in (queries, keys, keys))
    return Lists(q, k, v, normal(queries), torch.stack(index)[None].int())


def _forms(given: Lists) -> dict[str, Callable[[], Tensor]]:
    q, k, v, _, index = given
    mask = torch.zeros(*index.shape[:3], k.shape[2], dtype=torch.bool, device=q.device)
    mask.scatter_(3, index.long(), True)
    dense = torch.nn.functional.scaled_dot_product_attention
    forms: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: gathered_attention(q, k, v, index),
        MASKED: lambda: dense(q, k, v, attn_mask=mask),
        UNMASKED: lambda: dense(q, k, v),
    }
    if q.is_cuda:  # on a CPU that is ours
        forms[REFERENCE] = lambda: gathered_attention(q, k, v, index, impl="reference")
    return forms


def _errors(runs: dict[str, Step], notes: list[str]) -> dict[str, float | None]:
    """Return the errors of plain torch and of the masked side against ours; a side that cannot run leaves
    ``runs``."""
    errors: dict[str, float | None] = {}
    ours = runs[OURS]()
    for name in [name for name in runs if name != OURS]:
        try:
            results = runs[name]()
        except RuntimeError as error:
            notes.append(f"gathered, {name}: {reason(error)}")
            del runs[name]
            continue
        if name != UNMASKED:
            pairs = zip(results, ours, strict=True)
            errors[name] = finite(max(relative_error(found, mine.float()) for found, mine in pairs))
    return errors
