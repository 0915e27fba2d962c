"""Compare attention of operands with NaN and infinities with attention row by row; prints a JSON report.

Run on its own by test_masked_numbers.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "oracles"))

from allowed_rows import attend, differences, poisoned
from compare_block_attention import CASES, DEVICE, operands
from token_masks import random_mask

from sparse_core.attention import BlockPattern, from_token_mask, sparse_attention

SIZES = {"shared": (None, 16, 70, 90), "own": (2, 32, 70, 90), "small": (None, 16, 19, 33)}
SIZES |= {"shared large": (None, 64, 70, 90), "own large": (2, 128, 200, 300)}


def drawn(heads: int | None, size: int, queries: int, keys: int) -> BlockPattern:
    """Blocks of all kinds."""
    return from_token_mask(random_mask(queries, keys, size, heads=heads, seed=5), size)


CASES = CASES | {
    f"{name} masks": (
        partial(drawn, *sizes),
        {"heads": 2, "key_heads": 1, "dim": max(16, sizes[1] // 64 * 64)},
    )
    for name, sizes in SIZES.items()
}
CASES["small, ragged"] = (
    partial(drawn, *SIZES["small"]),
    {"heads": 1, "batch": 2, "query_lengths": [19, 7], "key_lengths": [20, 33]},
)


def compare(name: str, dtype: torch.dtype, impl: str, seed: int) -> list[str]:
    """Return the places where one case differs."""
    build, options = CASES[name]
    pattern = build()
    given = [one.cpu() for one in operands(pattern, dtype, options)]
    given = poisoned(given, 3, seed)
    mask = pattern.to_token_mask()
    mask = mask if mask.ndim == 3 else mask[None]
    batch, dim = given[0].shape[0], given[0].shape[3]
    true = [
        options.get(name, [length] * batch)
        for name, length in (("query_lengths", pattern.query_length), ("key_lengths", pattern.key_length))
    ]
    scale = options.get("scale", dim**-0.5)
    expected = attend(given, mask, scale, *true)
    lengths: dict[str, Any] = {
        name: torch.tensor(options[name], device=DEVICE) for name in options if name.endswith("_lengths")
    }
    placed = [one.to(DEVICE) for one in given]
    q, k, v = (one.requires_grad_() for one in placed[:3])
    pattern = pattern.to(DEVICE)
    out, lse = sparse_attention(q, k, v, pattern, scale=scale, impl=impl, return_lse=True, **lengths)  # type: ignore[call-overload]
    found = [out, lse, *torch.autograd.grad((out, lse), (q, k, v), placed[3:])]
    return differences(found, expected, 1e-4 if dtype == torch.float32 else 6e-2)


if __name__ == "__main__":
    kind, impl, seeds, *names = sys.argv[1:]
    report = {
        name: [line for seed in range(int(seeds)) for line in compare(name, getattr(torch, kind), impl, seed)]
        for name in names
    }
    print(json.dumps(report))
