"""Compare the Triton kernels of block-sparse attention with the reference; prints a JSON report.

Run on its own by test_block_attention_kernels.py, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from torch import Tensor

from sparse_core.attention import (
    BlockPattern,
    bigbird,
    from_block_mask,
    from_token_mask,
    full,
    local_window,
    random_blocks,
    sparse_attention,
)
from sparse_core.attention.gpu import plan

IMPL = os.environ.get("SPARSIGHT_COMPARED_IMPL", "triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    # Cut long rows as on an H100.
    plan._processors = lambda device: 132


def empty_rows() -> BlockPattern:
    """Four block rows: the second has no pairs, the fourth has pairs for some queries only."""
    mask = torch.rand(128, 128, generator=torch.Generator().manual_seed(3)) < 0.3
    mask[32:64] = False
    mask[100:] = False
    return from_token_mask(mask, 32)


def per_head() -> BlockPattern:
    """Four heads with different block lists."""
    return from_block_mask(torch.rand(4, 3, 4, generator=torch.Generator().manual_seed(4)) < 0.4, 16)


def long_rows() -> BlockPattern:
    """One full block row and one full block column, which kernels cut into parts."""
    mask = torch.eye(72, dtype=torch.bool)
    mask[1] = mask[:, 2] = True
    return from_block_mask(mask, 32)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "one query": (lambda: full(1, key_length=1, block_size=16), {"heads": 1, "key_heads": 1}),
    "odd lengths": (lambda: local_window(63, 20, 16), {"dim": 24}),
    "bigbird": (lambda: bigbird(100, block_size=32, window=10), {"heads": 4, "key_heads": 2}),
    "cross": (lambda: random_blocks(100, 0.3, 16, key_length=170), {"key_heads": 1, "scale": 0.3}),
    "all blocks": (lambda: full(64, block_size=64), {"dim": 40}),
    "not a power of two": (lambda: local_window(100, 30, 48), {"heads": 1}),
    "empty rows": (empty_rows, {"batch": 2}),
    "per head": (per_head, {"heads": 4, "key_heads": 2, "batch": 2}),
    "causal": (lambda: random_blocks(96, 0.5, 32).causal(), {}),
    "long rows": (long_rows, {"heads": 2, "key_heads": 1}),
    "one row": (lambda: full(20, key_length=2100, block_size=32), {"heads": 1}),
    "blocks of 128": (
        lambda: bigbird(500, block_size=128, window=60),
        {"dim": 64, "heads": 4, "key_heads": 2},
    ),
    "blocks of 64": (
        lambda: random_blocks(300, 0.5, 64, key_length=200),
        {"dim": 64, "batch": 2, "transposed": True},
    ),
    "wide heads": (lambda: local_window(300, 100, 128), {"dim": 128}),
    "wide heads, small blocks": (lambda: bigbird(300, block_size=64, window=40).causal(), {"dim": 128}),
    "one row of large blocks": (lambda: full(70, key_length=9000, block_size=128), {"dim": 64}),
    "dropout": (
        lambda: bigbird(50, block_size=16, window=10, random=1),
        {"batch": 2, "heads": 1, "dropout_p": 0.3, "seed": 2**40 + 5},
    ),
    "ragged": (
        lambda: bigbird(50, block_size=16, window=20, key_length=45),
        {"batch": 3, "heads": 1, "query_lengths": [50, 0, 19], "key_lengths": [45, 20, 9]},
    ),
    "strides": (lambda: local_window(70, 9, 32), {"transposed": True, "heads": 4, "key_heads": 2}),
}


def operands(pattern: BlockPattern, dtype: torch.dtype, options: dict[str, Any]) -> list[Tensor]:
    """q, k, v and the gradients of out and lse."""
    generator = torch.Generator().manual_seed(0)
    batch, heads = options.get("batch", 1), options.get("heads", 2)
    key_heads, dim = options.get("key_heads", heads), options.get("dim", 16)
    found = []
    for count, length in (
        (heads, pattern.query_length),
        (key_heads, pattern.key_length),
        (key_heads, pattern.key_length),
        (heads, pattern.query_length),
    ):
        tensor = torch.randn(batch, length, count, dim, generator=generator).to(DEVICE, dtype).transpose(1, 2)
        found.append(tensor if options.get("transposed") else tensor.contiguous())
    found.append(torch.randn(batch, heads, pattern.query_length, generator=generator).to(DEVICE))
    return found


def run(pattern: BlockPattern, dtype: torch.dtype, options: dict[str, Any], impl: str) -> list[Tensor]:
    """Out, lse and the gradients."""
    q, k, v, of_out, of_lse = operands(pattern, dtype, options)
    q, k, v = (part.requires_grad_() for part in (q, k, v))
    named = {name: options[name] for name in ("scale", "dropout_p", "seed") if name in options}
    for name, length in (("query_lengths", pattern.query_length), ("key_lengths", pattern.key_length)):
        if name in options:
            named[name] = torch.tensor(options[name], device=DEVICE)
            assert int(named[name].max()) <= length
    if "key_lengths" in options:
        with torch.no_grad():
            for sequence, length in enumerate(options["key_lengths"]):
                k[sequence, :, length:] = v[sequence, :, length:] = float("nan")
    out, lse = sparse_attention(q, k, v, pattern, impl=impl, return_lse=True, **named)
    finite = lse.isfinite()
    loss = (out.float() * of_out.float()).sum() + torch.where(finite, lse * of_lse, 0.0).sum()
    gradients = torch.autograd.grad(loss, (q, k, v))
    assert torch.equal(out, sparse_attention(q, k, v, pattern, impl=impl, **named))
    return [out.detach(), lse.detach(), *gradients]


def compare(pattern: BlockPattern, dtype: torch.dtype, options: dict[str, Any]) -> list[float]:
    """Largest difference of out, lse and the gradients over the largest number; infinity where NaN."""
    ours = run(pattern, dtype, options, IMPL)
    wanted = run(pattern, torch.float64, options, "reference")
    errors = []
    for found, expected in zip(ours, wanted, strict=True):
        infinite = expected.isinf()
        if not torch.equal(found.double()[infinite], expected.double()[infinite]):
            errors.append(float("inf"))
            continue
        found, expected = (part.double().masked_fill(infinite, 0.0) for part in (found, expected))
        largest = max(float(expected.abs().max()), 1e-3)
        error = float((found - expected).abs().max()) / largest
        errors.append(error if error == error else float("inf"))
    return errors


if __name__ == "__main__":
    names = sys.argv[2:] or list(CASES)
    dtype = getattr(torch, sys.argv[1])
    report = {}
    for name in names:
        build, options = CASES[name]
        pattern = build().to(DEVICE)
        report[name] = compare(pattern, dtype, options)
    print(json.dumps(report))
