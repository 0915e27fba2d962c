"""What demos/sparse_attention.py times: block-sparse against dense attention, checked against each other."""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sparse_core.attention import BlockPattern, random_blocks, sparse_attention

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MODES = ("forward", "forward and backward")
TURNS, BUDGET_S, SAMPLE_MS = 30, 0.8, 2.0
#: Scores that the check in float64 may hold.
CHECKED = {"cpu": 1 << 24, "cuda": 1 << 28}
Side = Callable[[], object]
Operands = tuple[Tensor, Tensor, Tensor]


def sides_of(
    length: int, patterns: dict[float, BlockPattern], options: argparse.Namespace
) -> tuple[dict[str, dict[str, Side]], Operands]:
    """What to time forward, and forward and backward, by name; and q, k and v."""
    generator = torch.Generator().manual_seed(0)
    shape = (options.batch, options.heads, length, options.dim)
    q, k, v, gradient = (
        torch.randn(shape, generator=generator).to(options.device, DTYPES[options.dtype]) for _ in range(4)
    )
    trained = tuple(part.clone().requires_grad_() for part in (q, k, v))
    calls: dict[str, Callable[..., Tensor]] = {"dense": scaled_dot_product_attention}
    calls |= {f"{density:g}": partial(_sparse, pattern) for density, pattern in patterns.items()}

    def forward(call: Callable[..., Tensor]) -> Tensor:
        with torch.no_grad():
            return call(q, k, v)

    def both(call: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(call(*trained), trained, gradient)

    sides: dict[str, dict[str, Side]] = {
        mode: {name: partial(run, call) for name, call in calls.items()}
        for mode, run in zip(MODES, (forward, both), strict=True)
    }
    return sides, (q, k, v)


def _sparse(pattern: BlockPattern, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return sparse_attention(q, k, v, pattern)


def difference(operands: Operands, pattern: BlockPattern) -> float | None:
    """Largest difference from dense masked attention in float64; None where that takes too much memory."""
    q = operands[0]
    if q.shape[0] * q.shape[1] * q.shape[2] ** 2 > CHECKED[q.device.type]:
        return None
    wide = (operands[0].double(), operands[1].double(), operands[2].double())
    exact = scaled_dot_product_attention(*wide, attn_mask=pattern.to_token_mask())
    found = float((sparse_attention(*operands, pattern).double() - exact).abs().max())
    limit = torch.finfo(q.dtype).eps ** 0.5 * max(1.0, float(exact.abs().max()))
    if not found <= limit:
        raise SystemExit(f"sparse_attention: differs from dense masked attention by {found:.3g}")
    return found


def measure(sides: dict[str, Side], device: torch.device) -> dict[str, float]:
    """Median milliseconds a call; the sides take turns, so that what else the machine does meets all."""
    wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def sample(side: Side, calls: int) -> float:
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            side()
        wait()
        return (time.perf_counter() - begin) * 1e3 / calls

    # The first call prepares the pattern and compiles; the second tells how many calls make a sample.
    samples: dict[str, list[float]] = {}
    for name, side in sides.items():
        side()
        samples[name] = [sample(side, 1)]
    calls = {name: max(1, min(50, math.ceil(SAMPLE_MS / taken[0]))) for name, taken in samples.items()}
    started = time.perf_counter()
    for turn in range(TURNS):
        if turn and time.perf_counter() - started > BUDGET_S:
            break
        for name, side in sides.items():
            samples[name].append(sample(side, calls[name]))
    return {name: statistics.median(taken) for name, taken in samples.items()}


def timings(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """One row for each length and density."""
    rows = []
    lengths = sorted({max(options.block_size, options.length // part) for part in (1, 2, 4)})
    with Progress(console=console, transient=True) as progress:
        for length in progress.track(lengths, description="timing"):
            patterns = {
                density: random_blocks(length, density, options.block_size, device=options.device)
                for density in options.densities
            }
            modes, operands = sides_of(length, patterns, options)
            checks = {density: difference(operands, pattern) for density, pattern in patterns.items()}
            times = {mode: measure(sides, options.device) for mode, sides in modes.items()}
            for density, pattern in patterns.items():
                row: dict[str, Any] = {"length": length, "density": pattern.block_density}
                for mode, taken in times.items():
                    ours, dense = taken[f"{density:g}"], taken["dense"]
                    row[mode] = {"dense_ms": dense, "sparse_ms": ours, "speedup": dense / ours}
                rows.append(row | {"difference": checks[density]})
    return rows


def timing_table(rows: list[dict[str, Any]], mode: str) -> Table:
    """Milliseconds and speed-up over dense."""
    checked = ("largest difference",) if mode == MODES[0] else ()
    table = Table(box=None, pad_edge=False)
    for heading in ("length", "blocks %", "dense, ms", "ours, ms", "times as fast", *checked):
        table.add_column(heading, justify="right")
    for row in rows:
        taken, found = row[mode], row["difference"]
        cells = [f"{row['length']:,}", f"{100 * row['density']:.3g}"]
        cells += [f"{taken['dense_ms']:.3f}", f"{taken['sparse_ms']:.3f}", f"{taken['speedup']:.2f}"]
        if checked:
            cells.append("not checked" if found is None else f"{found:.1e}")
        table.add_row(*cells)
    return table


def verdict(rows: list[dict[str, Any]], device: torch.device) -> str:
    """Where dense attention wins, in words."""
    slower = [sum(row[mode]["speedup"] < 1 for row in rows) for mode in MODES]
    text = f"dense is faster in {slower[0]} of {len(rows)} rows forward, {slower[1]} with backward"
    if device.type == "cpu":
        text += "; on a CPU the blocks are computed in plain torch, which is exact but not tuned for speed"
    return text
