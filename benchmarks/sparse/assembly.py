"""Coordinates to compressed rows, duplicates summed: ours against torch's coalesce, and scipy on a CPU.

    python -m benchmarks.sparse.assembly --device cuda

Random entries of a square matrix, shuffled or sorted, with none, 10 % or half of them repeating another's
place. All sides must give the structure and, to float32's rounding, the sums of a float64 assembly. The wall
clock counts: read-backs and launches are part of assembling.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import scipy.sparse
import torch
from torch import Tensor

from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.timing import Side, Summary, interleave, paired_ratio
from benchmarks.publish.screen import tables
from benchmarks.sparse.matrices import noted, relative_error
from sparse_core.formats import CSR, assemble_csr, generators

OURS, OURS_LONG, TORCH, SCIPY = "ours", "ours int64", "torch", "scipy"
_TOLERANCE = 1e-5


class Entries(NamedTuple):
    """Coordinates with duplicates.

    Attributes:
        indices: (2, N) int64, rows and columns.
        values: (N,) float32.
        size: rows of the square matrix.
    """

    indices: Tensor
    values: Tensor
    size: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    # torch warns once that its CSR is a beta; this conversion keeps that warning to itself.
    generators.diagonal(1).to_torch()
    rows = [
        _measure(count, size, share, order, device, options)
        for count, size in options.sizes
        for share in (0.0, 0.1, 0.5)
        for order in ("shuffled", "sorted")
    ]
    settings = {
        "device": options.device,
        "dtype": "float32",
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": options.seed,
        "quick": options.quick,
    }
    notes = [
        "torch: coalesce().to_sparse_csr() of a new uncoalesced tensor each time, whose indices are int64."
        " 'ours' takes int32 indices, 'ours int64' the same ones as torch."
    ]
    values = result("assembly", device, settings, cases=rows, notes=notes)
    save(values, options)
    show(values, tables(values, "assembly"), notes, as_json=options.json)
    return 0 if all(row["agrees"] for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "assembly", quick="fewer entries and rounds")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (20; 3 with --quick)")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (3 if options.quick else 20)
    large = (10**7, 10**6) if options.device == "cuda" else (10**6, 10**5)
    small = (10**5, 10**4)
    options.sizes = [(10**4, 10**3)] if options.quick else [large, small]
    return options


def make_entries(
    count: int, size: int, duplicates: float, order: str, device: torch.device, seed: int
) -> Entries:
    """Random entries; the share ``duplicates`` of them repeats the place of another."""
    generator = torch.Generator(device).manual_seed(seed)
    distinct = count - round(duplicates * count)
    keys = torch.randint(size * size, (distinct,), generator=generator, device=device)
    again = torch.randint(distinct, (count - distinct,), generator=generator, device=device)
    keys = torch.cat([keys, keys[again]])
    if order == "sorted":
        keys = keys.sort().values
    else:
        keys = keys[torch.randperm(count, generator=generator, device=device)]
    values = torch.randn(count, generator=generator, device=device)
    row = torch.div(keys, size, rounding_mode="floor")
    return Entries(torch.stack([row, keys - row * size]), values, size)


def _measure(
    count: int, size: int, share: float, order: str, device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    entries = make_entries(count, size, share, order, device, options.seed)
    sides = _sides(entries)
    exact = _torch_csr(entries, entries.values.double())
    errors = {name: _error(side(), exact) for name, side in sides.items()}
    stored = len(exact.values())
    del exact
    samples = interleave(sides, device, rounds=options.rounds, warmup=1, budget_s=10.0, seed=options.seed)
    return {
        "entries": count,
        "rows": size,
        "duplicates": share,
        "order": order,
        "stored": stored,
        "agrees": all(error <= _TOLERANCE for error in errors.values()),
        "errors": {name: noted(error) for name, error in errors.items()},
        "time": {name: Summary.of(times).to_dict() for name, times in samples.items()},
        "over": {
            name: {
                other: paired_ratio(samples[other], samples[name])
                for other in (TORCH, SCIPY)
                if other in samples
            }
            for name in (OURS, OURS_LONG)
        },
    }


def _sides(entries: Entries) -> dict[str, Side]:
    shape = (entries.size, entries.size)
    row, col = entries.indices
    short_row, short_col = row.int(), col.int()
    sides: dict[str, Side] = {
        OURS: lambda: CSR(*assemble_csr(short_row, short_col, entries.values, shape), shape, validate=False),
        OURS_LONG: lambda: CSR(*assemble_csr(row, col, entries.values, shape), shape, validate=False),
        TORCH: lambda: _torch_csr(entries, entries.values),
    }
    if row.device.type == "cpu":
        parts = (entries.values.numpy(), (short_row.numpy(), short_col.numpy()))
        sides[SCIPY] = lambda: scipy.sparse.coo_array(parts, shape=shape).tocsr()
    return sides


def _torch_csr(entries: Entries, values: Tensor) -> Tensor:
    shape = (entries.size, entries.size)
    uncoalesced = torch.sparse_coo_tensor(entries.indices, values, shape, check_invariants=False)
    return uncoalesced.coalesce().to_sparse_csr()


def _error(found: object, exact: Tensor) -> float:
    """Largest error of the sums over the largest sum; infinite for another structure."""
    if isinstance(found, CSR):
        parts = (found.row_ptr, found.col, found.values)
    elif isinstance(found, Tensor):
        parts = (found.crow_indices(), found.col_indices(), found.values())
    else:
        array: Any = found
        array.sort_indices()
        row_ptr, col, values = (torch.from_numpy(part) for part in (array.indptr, array.indices, array.data))
        parts = (row_ptr, col, values)
    same = torch.equal(parts[0].long(), exact.crow_indices()) and torch.equal(
        parts[1].long(), exact.col_indices()
    )
    return relative_error(parts[2], exact.values()) if same else float("inf")


if __name__ == "__main__":
    sys.exit(main())
