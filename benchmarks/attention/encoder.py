"""A whole encoder of the attention benchmark, dense and sparse."""

from __future__ import annotations

import argparse
import copy
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.attention.cells import random_pattern
from benchmarks.attention.exact import TOLERANCE, relative_error
from benchmarks.attention.sides import CUDNN, TORCH, finite, reason
from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.timing import Side, paired_ratio
from sparse_core.attention import BlockPattern, SparseTransformer, SparseTransformerLayer, full
from sparse_core.attention.modules.linears import convert_linears
from sparse_core.nm import tuning

TWO_FOUR = ", 2:4 layers"
SPARSITIES = (0.5, 0.75, 0.9)
#: Each block of positions attends to one other block, which leaves the rest of the encoder to time.
LEAST = "one block each"


def measure_encoder(device: torch.device, options: argparse.Namespace, notes: list[str]) -> dict[str, Any]:
    """Inference of a stack of Transformer layers, dense and with random patterns, from input to output."""
    if device.type == "cuda":
        layers, dim, heads, length, batch = (
            (2, 1024, 16, 4096, 2) if options.quick else (24, 1024, 16, 4096, 8)
        )
        dtype, block_size = torch.bfloat16, 128
    else:
        layers, dim, heads, length, batch = (2, 64, 2, 512, 1) if options.quick else (2, 512, 8, 2048, 1)
        dtype, block_size = torch.float32, 64
    layers = options.layers or layers
    torch.manual_seed(options.seed)
    made = (SparseTransformerLayer(dim, heads, device=device, dtype=dtype) for _ in range(layers))
    model = SparseTransformer(made).eval()
    x = torch.randn(batch, length, dim, device=device).to(dtype)
    patterns = {
        f"{share:.0%} sparse": random_pattern(length, 1 - share, block_size, device, options.seed)
        for share in SPARSITIES
    }
    patterns[LEAST] = random_pattern(length, block_size / length, block_size, device, options.seed)
    dense = CUDNN if device.type == "cuda" else TORCH
    runs: dict[str, Side] = {dense: _dense_encoder(model, x)}
    runs |= {name: _encoder(model, x, pattern) for name, pattern in patterns.items()}
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder, tuning(folder=folder):
        errors = _encoder_errors(model, x, dense, patterns, block_size)
        if device.type == "cuda":
            _add_two_four(runs, model, x, patterns, notes)
        times = call_microseconds(
            runs, device, rounds=options.rounds, budget_s=4 * options.cell_s, seed=options.seed
        )
    return {
        "layers": layers,
        "dim": dim,
        "heads": heads,
        "length": length,
        "batch": batch,
        "block_size": block_size,
        "dtype": str(dtype).removeprefix("torch."),
        "densities": {name: round(pattern.density, 6) for name, pattern in patterns.items()},
        "errors": {name: finite(error) for name, error in errors.items()},
        # Two sums of bfloat16 numbers, rounded differently, come before the comparison.
        "agrees": all(error <= 2 * TOLERANCE[dtype] for error in errors.values()),
        "microseconds": {name: microseconds(samples) for name, samples in times.items()},
        "over_dense": {
            name: paired_ratio(times[dense], samples) for name, samples in times.items() if name != dense
        },
    }


def _encoder(model: nn.Module, x: Tensor, pattern: BlockPattern) -> Side:
    return lambda: model(x, pattern=pattern)


def _dense_encoder(model: nn.Module, x: Tensor) -> Side:
    def run() -> Tensor:
        if not x.is_cuda:
            return model(x)  # type: ignore[no-any-return]
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return model(x)  # type: ignore[no-any-return]

    return run


def _add_two_four(
    runs: dict[str, Side],
    model: nn.Module,
    x: Tensor,
    patterns: dict[str, BlockPattern],
    notes: list[str],
) -> None:
    """Sparse sides again, their Linear layers 2:4; their choice is measured here."""
    try:
        pruned = copy.deepcopy(model)
        convert_linears(pruned, "2:4")
        _encoder(pruned, x, patterns[LEAST])()
    except Exception as error:  # what cuSPARSELt and the driver raise
        notes.append(f"encoder{TWO_FOUR}: {reason(error)}")
        return
    for name, pattern in patterns.items():
        runs[name + TWO_FOUR] = _encoder(pruned, x, pattern)


def _encoder_errors(
    model: SparseTransformer, x: Tensor, dense: str, patterns: dict[str, BlockPattern], block_size: int
) -> dict[str, float]:
    """One layer's attention to one sequence: dense against all blocks, the others against plain torch."""
    layer = model.layers[0]
    assert isinstance(layer, SparseTransformerLayer)
    attention, rows = layer.attention, layer.attention_norm(x[:1])
    whole = full(x.shape[1], block_size, device=x.device)
    errors = {dense: relative_error(attention(rows), attention(rows, pattern=whole).float())}
    for name, pattern in patterns.items():
        found = attention(rows, pattern=pattern)
        attention.impl = "reference"
        errors[name] = relative_error(found, attention(rows, pattern=pattern).float())
        attention.impl = "auto"
    return errors
