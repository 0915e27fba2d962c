"""Compare the Triton kernels of the memory's index with the reference; prints a JSON report.

Run on its own by test_memory_cuda_kernels.py, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from memory.index.cuda import cells as reference
from memory.index.cuda import cells_triton, codes_triton, rerank_top, rerank_triton, scan_top
from memory.index.cuda.cells import build
from memory.index.cuda.codes import BINS, asked_levels
from memory.index.cuda.layout import Cells, Sizes
from sparse_core.kernels.op import Impl

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def units(rows: int, dim: int, seed: int) -> Tensor:
    """Clustered unit vectors."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(max(1, rows // 20), dim, generator=generator)
    near = centres[torch.randint(0, len(centres), (rows,), generator=generator)]
    vectors = near + 0.5 * torch.randn(rows, dim, generator=generator)
    return torch.nn.functional.normalize(vectors, dim=1).to(DEVICE)


def make_cells(
    rows: int, *, dim: int = 32, pivots: int = 0, dead: float = 0.0, copies: bool = False
) -> Cells:
    """Cells of rows of which some are removed afterwards."""
    vectors = units(rows, dim, 4).half()
    if copies:
        vectors[rows // 3 :] = vectors[0].clone()
    alive = torch.ones(rows, dtype=torch.bool, device=DEVICE)
    alive[::7] = rows == 1
    cells = build(vectors, alive, rows, 0, pivots)
    gone = torch.rand(rows, generator=torch.Generator().manual_seed(1)).to(DEVICE) < dead
    cells.remove((gone & alive).nonzero()[:, 0])
    return cells


def levels_case(queries: int, dim: int) -> Any:
    """Levels of queries, short, long and of length one."""
    coordinates = units(queries, 256, dim).half() * torch.arange(queries, device=DEVICE)[:, None]
    ours, wanted = (module(coordinates.half(), dim) for module in (codes_triton.asked_levels, asked_levels))
    return {"same": all(torch.equal(mine, right) for mine, right in zip(ours, wanted, strict=True))}


def cells_case(cells: Cells, queries: int, sizes: Sizes, *, dim: int = 32) -> Any:
    """Every step of a search of cells."""
    products = cells.products(units(queries, dim, 9))
    overflow = torch.zeros((2, 2), dtype=torch.int64, device=DEVICE)
    counts = torch.full((queries, BINS + 1), 7, dtype=torch.int32, device=DEVICE)
    ours = cells_triton.probe(cells, products, sizes, overflow[0], counts)
    wanted = reference.probe(cells, products, sizes, overflow[1])
    same = torch.equal(ours.shifts, wanted.shifts) and torch.equal(ours.ends, wanted.ends)
    same &= torch.equal(ours.asked.levels, wanted.asked.levels)
    same &= torch.equal(ours.asked.base, wanted.asked.base)
    same &= torch.equal(overflow[0], overflow[1])
    near = cells_triton.distances_read(cells, ours, sizes.capacity, counts)
    slots, right = reference.distances_read(cells, wanted, sizes.capacity)
    used = torch.arange(sizes.capacity, device=DEVICE) < wanted.ends[:, -1:]
    same &= torch.equal(near.to(torch.int32)[used], right[used])
    for query in range(queries):
        some = right[query][right[query] < BINS]
        same &= torch.equal(counts[query, :BINS], torch.bincount(some, minlength=BINS).to(torch.int32))
    first = cells_triton.take(cells, ours, near, counts, sizes.rerank)
    again = cells_triton.candidates(cells, products, sizes, overflow[0])
    kept = reference.take(cells, slots, right, sizes.rerank)
    for found in (first, again):
        same &= torch.equal(found.lengths, kept.lengths)
        for query, length in enumerate(kept.lengths.tolist()):
            same &= torch.equal(
                found.rows[query, :length].sort().values, kept.rows[query, :length].sort().values
            )
    return {"same": bool(same), "found": int(kept.lengths.sum()), "overflow": int(overflow[1, 1])}


def scan_case(cells: Cells, queries: int, count: int, *, dim: int = 32, named: bool = True) -> Any:
    """Rows of the scan by Triton, twice on a GPU, and by the reference."""
    coordinates = cells.coordinates(units(queries, dim, 5))
    found = [
        scan_top(
            cells.codes,
            coordinates,
            count,
            dim=dim,
            rows=cells.rows if named else None,
            live=cells.live if named else None,
            impl=impl,
        )
        for impl in ("triton", *["triton"] * (DEVICE.type == "cuda"), "reference")
    ]
    same = all(torch.equal(found[0], other) for other in found[1:])
    return {"same": same, "found": int((found[0] >= 0).sum())}


def rerank_case(
    rows: int, queries: int, count: int, k: int, *, dim: int = 48, lengths: bool = False, tail: int = 0
) -> Any:
    """Exact scores: rows may only differ where scores nearly agree."""
    generator = torch.Generator().manual_seed(rows)
    vectors = units(rows, dim, 1).half()
    vectors[rows // 2 :: 3] = vectors[0].clone()
    asked = units(queries, dim, 2)
    listed = torch.randint(-1, rows, (queries, count), generator=generator).to(DEVICE, torch.int32)
    alive = (torch.rand(rows, generator=generator) > 0.2).to(DEVICE)
    used = torch.randint(0, count + 1, (queries,), generator=generator).to(DEVICE, torch.int32)
    names = torch.arange(1000, 1000 + rows, device=DEVICE)
    impls: tuple[Impl, ...] = ("triton", "triton", "reference")
    ours, again, wanted = (
        rerank_top(
            vectors,
            asked,
            listed.flip(1) if order and not lengths else listed,
            k,
            alive=alive,
            lengths=used if lengths else None,
            tail=(rows - tail // 2, tail),
            names=names,
            impl=impl,
        )
        for order, impl in enumerate(impls)
    )
    repeats = torch.equal(ours.rows, again.rows) and torch.equal(ours.scores, again.scores)
    missing = torch.equal(ours.rows < 0, wanted.rows < 0)
    finite = wanted.rows >= 0
    error = (ours.scores - wanted.scores)[finite].abs()
    once = all(
        len(set(kept)) == len(kept) for kept in ([r for r in row if r >= 0] for row in ours.rows.tolist())
    )
    # A row at a different rank has the score of that rank, ties by row.
    exact = (vectors[(ours.rows - 1000).clamp_min(0)].float() * asked[:, None].float()).sum(2)
    own = (exact - ours.scores)[finite].abs()
    pairs = (ours.scores[:, 1:] == ours.scores[:, :-1]) & finite[:, 1:]
    ties = bool((ours.rows[:, 1:] > ours.rows[:, :-1])[pairs].all())
    largest = max([float(part.max()) for part in (error, own) if part.numel()], default=0.0)
    return {"same": bool(repeats and missing and once and ties), "error": largest}


def report() -> dict[str, Any]:
    """All cases."""
    some, alike = make_cells(2000, pivots=37, dead=0.2), make_cells(2500, pivots=4, dead=0.1, copies=True)
    found = {
        "levels": levels_case(5, 48),
        "cells": cells_case(some, 3, Sizes(8, 1500, 200)),
        "cells, all of them": cells_case(some, 1, Sizes(64, 1800, 3000)),
        "cells, overflow": cells_case(some, 3, Sizes(12, 300, 20)),
        "cells, copies": cells_case(alike, 3, Sizes(4, 2200, 100)),
        "cells, copies of one query": cells_case(alike, 1, Sizes(4, 900, 1)),
        "cells, one row": cells_case(make_cells(1), 2, Sizes(24, 1, 1)),
        "cells, all removed": cells_case(make_cells(300, dead=1.1), 1, Sizes(24, 250, 50)),
        "cells, many queries": cells_case(make_cells(300, pivots=5), 17, Sizes(1, 90, 20)),
        "cells, many pivots": cells_case(make_cells(5500, pivots=4500), 1, Sizes(100, 500, 60)),
        "scan, one row": scan_case(make_cells(1), 1, 5),
        "scan, one query": scan_case(some, 1, 100),
        "scan, nine queries": scan_case(make_cells(300), 9, 50, named=False),
        "scan, all removed": scan_case(make_cells(300, dead=1.1), 1, 50),
        "scan, copies": scan_case(alike, 1, 700),
        "scan, more than there are": scan_case(make_cells(300), 2, 400),
        "scan, several blocks": scan_case(make_cells(9700), 1, 1000),
        "rerank": rerank_case(400, 2, 200, 10),
        "rerank, one": rerank_case(1, 1, 1, 3),
        "rerank, lengths": rerank_case(400, 3, 90, 7, lengths=True),
        "rerank, tail": rerank_case(400, 2, 20, 9, lengths=True, tail=64),
        "rerank, tail alone": rerank_case(400, 2, 0, 9, tail=64),
    }
    usual = rerank_triton._MANY, rerank_triton._KEYS
    rerank_triton._MANY, rerank_triton._KEYS = 1, 64
    found["rerank, several pieces of many"] = rerank_case(300, 2, 260, 3, dim=16)
    rerank_triton._MANY, rerank_triton._KEYS = usual
    if DEVICE.type == "cuda":
        million = make_cells(1_000_000, dead=0.1)
        found |= {
            "cells, a million rows": cells_case(million, 1, Sizes(24, 24_576, 512)),
            "cells, a million rows, 64": cells_case(million, 64, Sizes(24, 24_576, 512)),
            "cells, a million rows, wide": cells_case(million, 4, Sizes(128, 98_304, 4096)),
            "scan, a million rows": scan_case(million, 1, 4096),
            "scan, a million rows, eight": scan_case(million, 8, 1000),
            "rerank, many": rerank_case(100_000, 1024, 512, 10, dim=256, lengths=True, tail=256),
            "rerank, thousand": rerank_case(100_000, 8, 4096, 1024, dim=256),
            "rerank, thousands for one": rerank_case(100_000, 1, 8192, 10, dim=256),
        }
    return found


if __name__ == "__main__":
    # Small arrays only; more threads would wait for each other.
    torch.set_num_threads(1)
    print(json.dumps(report()))
