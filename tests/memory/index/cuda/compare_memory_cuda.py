"""Compare the Triton kernels of the memory's index with the reference; prints a JSON report.

Run on its own by test_memory_cuda_kernels.py, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import Tensor

from memory.index.cuda import buckets, hamming_top, rerank_top
from memory.index.cuda.bits import SignCodes
from memory.index.cuda.buckets import Effort, Functions, build, candidates
from memory.index.cuda.selection import lowest

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def units(rows: int, dim: int, seed: int) -> Tensor:
    """Clustered unit vectors."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(max(1, rows // 20), dim, generator=generator)
    near = centres[torch.randint(0, len(centres), (rows,), generator=generator)]
    vectors = near + 0.5 * torch.randn(rows, dim, generator=generator)
    return (vectors / vectors.norm(dim=1, keepdim=True)).to(DEVICE)


def scan_case(
    rows: int, queries: int, count: int, planes: int, *, dead: float = 0.0, copies: bool = False
) -> Any:
    """Rows of the scan, twice by Triton and once by the reference."""
    vectors = units(rows, 64, rows)
    if copies:
        vectors[rows // 3 :] = vectors[0].clone()
    signs = SignCodes(64, 96, planes, 0, DEVICE)
    packed = signs.queries(vectors[:queries] + 0.01 if rows >= queries else units(queries, 64, 5))
    codes = signs.rows(vectors).T.contiguous()
    wide = torch.zeros((3, rows + 7), dtype=torch.int32, device=DEVICE)
    wide[:, :rows] = codes
    alive = torch.rand(rows, generator=torch.Generator().manual_seed(1)).to(DEVICE) >= dead
    found = [
        hamming_top(wide[:, :rows], packed.signs, count, planes=packed.planes, alive=alive, impl=impl)
        for impl in ("triton", "triton", "reference")
    ]
    same = bool(torch.equal(found[0], found[1]) and torch.equal(found[0], found[2]))
    return {"same": same, "found": int((found[0] >= 0).sum())}


def lowest_case(lists: int, width: int, count: int, *, half: bool = False, most: int = 40) -> Any:
    """Places of the lowest numbers."""
    generator = torch.Generator().manual_seed(width)
    if half:
        values = units(lists, width, 3).half()
    else:
        values = torch.randint(0, most, (lists, width), generator=generator).to(DEVICE, torch.int16)
        values[values == most - 1] = 32767
    ours, wanted = (lowest(values, count, impl=impl) for impl in ("triton", "reference"))
    return {"same": bool(torch.equal(ours, wanted)), "found": int((ours >= 0).sum())}


def rerank_case(rows: int, queries: int, count: int, k: int, *, dim: int = 48, lengths: bool = False) -> Any:
    """Exact scores: rows may only differ where scores nearly agree."""
    generator = torch.Generator().manual_seed(rows)
    vectors = units(rows, dim, 1).half()
    vectors[rows // 2 :: 3] = vectors[0].clone()
    asked = units(queries, dim, 2)
    listed = torch.randint(-1, rows, (queries, count), generator=generator).to(DEVICE, torch.int32)
    alive = (torch.rand(rows, generator=generator) > 0.2).to(DEVICE)
    used = torch.randint(0, count + 1, (queries,), generator=generator).to(DEVICE, torch.int32)
    ours, again, wanted = (
        rerank_top(vectors, asked, listed, k, alive=alive, lengths=used if lengths else None, impl=impl)
        for impl in ("triton", "triton", "reference")
    )
    repeats = torch.equal(ours.rows, again.rows) and torch.equal(ours.scores, again.scores)
    missing = torch.equal(ours.rows < 0, wanted.rows < 0)
    finite = wanted.rows >= 0
    error = (ours.scores - wanted.scores)[finite].abs()
    once = all(
        len(set(kept)) == len(kept) for kept in ([r for r in row if r >= 0] for row in ours.rows.tolist())
    )
    # A row at a different rank has the score of that rank, ties by row.
    exact = (vectors[ours.rows.clamp_min(0)].float() * asked[:, None].float()).sum(2)
    own = (exact - ours.scores)[finite].abs()
    pairs = (ours.scores[:, 1:] == ours.scores[:, :-1]) & finite[:, 1:]
    ties = bool((ours.rows[:, 1:] > ours.rows[:, :-1])[pairs].all())
    largest = max([float(part.max()) for part in (error, own) if part.numel()], default=0.0)
    return {"same": bool(repeats and missing and once and ties), "error": largest}


def bucket_case(rows: int, queries: int, effort: Effort, *, planes: int = 2) -> Any:
    """Candidates through all steps, from the same tables."""
    vectors = units(rows, 32, 4).half()
    functions = Functions(32, 6, 5, 4, 0, DEVICE)
    signs = SignCodes(32, 96, planes, 0, DEVICE)
    alive = torch.ones(rows, dtype=torch.bool, device=DEVICE)
    alive[::7] = False
    tables = build(functions, vectors, alive, rows)
    asked = units(queries, 32, 9).half()
    ours, wanted = (
        candidates(functions, tables, signs.rows(vectors), asked, signs.queries(asked), effort, impl=impl)
        for impl in ("triton", "reference")
    )
    same = all(torch.equal(mine, right) for mine, right in zip(ours, wanted, strict=True))
    listed = ours.rows[ours.rows >= 0]
    return {
        "same": same and bool(alive[listed.long()].all()),
        "found": int(ours.lengths.sum()),
        "overflow": int(ours.overflow.sum()),
    }


def report() -> dict[str, Any]:
    """All cases."""
    small = Effort(4, 30, 200, 60)
    found = {
        "scan, one row": scan_case(1, 1, 5, 2),
        "scan, one query": scan_case(3000, 1, 100, 2),
        "scan, Hamming": scan_case(1500, 3, 40, 1),
        "scan, three planes": scan_case(1200, 2, 40, 3),
        "scan, removed": scan_case(2500, 9, 50, 2, dead=0.7),
        "scan, all removed": scan_case(500, 1, 50, 2, dead=1.1),
        "scan, copies": scan_case(9000, 1, 700, 2, copies=True),
        "scan, more than there are": scan_case(300, 2, 400, 2),
        "lowest, ties": lowest_case(5, 1000, 64),
        "lowest, few": lowest_case(3, 40, 64, most=3),
        "lowest, one": lowest_case(1, 1, 1),
        "lowest, magnitudes": lowest_case(7, 256, 32, half=True),
        "rerank": rerank_case(400, 3, 300, 10),
        "rerank, one": rerank_case(1, 1, 1, 3),
        "rerank, lengths": rerank_case(400, 4, 130, 7, lengths=True),
        "rerank, several pieces": rerank_case(3000, 1, 5000, 12, dim=16),
        "buckets": bucket_case(2000, 5, Effort(6, 60, 1024, 200)),
        "buckets, Hamming": bucket_case(500, 2, Effort(8, 20, 512, 100), planes=1),
        "buckets, overflow": bucket_case(2000, 4, small),
        "buckets, few rows": bucket_case(3, 2, small),
    }
    if DEVICE.type == "cuda":
        found |= {
            "scan, 100k rows": scan_case(100_000, 1, 4096, 2, dead=0.1),
            "scan, 100k rows, eight": scan_case(100_000, 8, 1000, 2),
            "scan, a million rows": scan_case(1_000_000, 1, 4096, 2),
            "lowest, wide": lowest_case(200, 32768, 6144, most=700),
            "lowest, many": lowest_case(4096, 2048, 32, half=True),
            "rerank, many": rerank_case(100_000, 1024, 2048, 10, dim=256, lengths=True),
            "rerank, thousands for one": rerank_case(100_000, 1, 8192, 10, dim=256),
            "buckets, 100k rows": bucket_case(100_000, 64, Effort(8, 300, 32768, 6144)),
        }
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        buckets.BUCKET_LIMIT = int(sys.argv[1])
    print(json.dumps(report()))
