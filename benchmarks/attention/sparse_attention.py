"""Block-sparse attention against dense attention and FlexAttention: lengths, densities, patterns.

    python -m benchmarks.attention.sparse_attention --device cuda --budget-s 250

Sides: torch's dense attention by cuDNN and by FlashAttention, FlexAttention (compiled), FlashAttention-4
if it is installed (extra ``fa4``), ours, and ours with Triton alone. Cells are called
PATTERN-DENSITY-LENGTH-DIM-BLOCK-DTYPE-forward (or -both, with gradients); further parts are selection-...,
changing-... (with FlashInfer, if it is installed), encoder, gathered-.... Every side is compared before it is
timed.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.attention.bars import bars
from benchmarks.attention.cells import cells
from benchmarks.attention.changing import changing_cells, measure_changing
from benchmarks.attention.chart import draw
from benchmarks.attention.encoder import measure_encoder
from benchmarks.attention.reading import (
    measure_gathered,
    measure_selection,
    selection_cells,
)
from benchmarks.attention.sides import (
    matches,
    measure_cell,
    reason,
)
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import aims, result, save, show
from benchmarks.publish.screen import tables

#: One compilation a length, head size and pass.
FLEX_CELLS = ("random-0.*-4096-*-128-bfloat16-*", "random-0.*-16384-*-128-bfloat16-*")
_PARTS = ("cases", "selection", "changing", "encoder", "gathered")
#: Share of the GPU's memory from which what torch keeps is given back between measurements.
_MOST_RESERVED = 0.4


class Task(NamedTuple):
    """One measurement.

    Attributes:
        key: name on the command line.
        part: list of the result file that it belongs to.
        run: measures.
    """

    key: str
    part: str
    run: Callable[[], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    if options.draw_from:
        draw(json.loads(options.draw_from.read_text()), options.png)
        return 0
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    configure(device, options.threads)
    notes: list[str] = []
    parts = _measure(_tasks(device, options, notes), device, options, notes)
    encoder = parts["encoder"][0] if parts["encoder"] else None
    settings = {
        name: getattr(options, name)
        for name in ("device", "rounds", "threads", "seed", "quick", "budget_s", "only", "flex_cells")
    }
    values = result(
        "sparse_attention",
        device,
        settings,
        cases=parts["cases"],
        selection=parts["selection"],
        changing=parts["changing"],
        encoder=encoder,
        gathered=parts["gathered"],
        bars=bars(parts["cases"], parts["selection"], encoder),
        notes=list(dict.fromkeys(notes)),
    )
    save(values, options)
    if options.png:
        draw(values, options.png)
    show(
        values,
        [
            *tables(
                values,
                "attention-times",
                "attention-patterns",
                "attention-selection",
                "attention-changing",
                "attention-encoder",
                "attention-gathered",
            ),
            *aims(values),
        ],
        values["notes"],
        as_json=options.json,
    )
    rows = [row for name in _PARTS for row in parts[name]]
    failed = any(note.startswith("failed: ") for note in notes)
    return 0 if not failed and all(row["agrees"] for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "sparse_attention", quick="few cells, small shapes")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (10; 3 with --quick)")
    parser.add_argument(
        "--cell-s", type=float, default=0.6, help="start no further round of a cell after this"
    )
    parser.add_argument("--budget-s", type=float, help="start no further cell after this long")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="GLOB", help="cells to measure")
    parser.add_argument(
        "--flex-cells",
        nargs="*",
        default=list(FLEX_CELLS),
        metavar="GLOB",
        help="cells in which FlexAttention takes part (GPU); new shapes take long to compile",
    )
    parser.add_argument("--layers", type=int, help="of the encoder (24 on a GPU)")
    parser.add_argument("--png", type=Path, help="draw the curves")
    parser.add_argument("--draw-from", type=Path, help="only draw this result file (needs --png)")
    options = parse(parser, arguments)
    if options.draw_from and not options.png:
        parser.error("--draw-from needs --png")
    options.rounds = options.rounds or (3 if options.quick else 10)
    return options


def _tasks(device: torch.device, options: argparse.Namespace, notes: list[str]) -> list[Task]:
    """Everything that was asked for, in order of importance."""
    wanted = cells(device.type, quick=options.quick)

    def of_cells(chosen: Sequence[Any]) -> list[Task]:
        return [
            Task(cell.key, "cases", partial(measure_cell, cell, device, options, notes)) for cell in chosen
        ]

    selection = [
        Task(cell.key, "selection", partial(measure_selection, cell, device, options))
        for cell in selection_cells(device.type, quick=options.quick)
    ]
    changing = [
        Task(cell.key, "changing", partial(measure_changing, cell, device, options, notes))
        for cell in changing_cells(device.type, quick=options.quick)
    ]
    encoder = [Task("encoder", "encoder", partial(measure_encoder, device, options, notes))]
    gathered = [
        Task(
            f"gathered-{'shared' if shared else 'own'}-{'both' if gradient else 'forward'}",
            "gathered",
            partial(measure_gathered, shared, gradient, device, options, notes),
        )
        for gradient in (False, True)
        for shared in (True, False)
    ]
    tasks = [*of_cells(wanted.aims), *selection, *changing, *encoder, *gathered, *of_cells(wanted.others)]
    return [task for task in tasks if matches(task.key, options.only)]


def _measure(
    tasks: Sequence[Task], device: torch.device, options: argparse.Namespace, notes: list[str]
) -> dict[str, list[dict[str, Any]]]:
    parts: dict[str, list[dict[str, Any]]] = {name: [] for name in _PARTS}
    left_out = []
    start = time.perf_counter()
    for position, task in enumerate(tasks, 1):
        if options.budget_s and time.perf_counter() - start > options.budget_s:
            left_out.append(task.key)
            continue
        before = time.perf_counter()
        try:
            parts[task.part].append(task.run())
        except Exception as error:  # one cell must not cost the others their results
            notes.append(f"failed: {task.key}: {reason(error)}")
            said = notes[-1]
        else:
            said = _progress(parts[task.part][-1])
        took = time.perf_counter() - before
        print(f"[{position}/{len(tasks)}, {took:.1f} s] {task.key}: {said}", file=sys.stderr, flush=True)
        _tidy(device)
    if left_out:
        notes.append(f"left out after {options.budget_s:.0f} s, {len(left_out)}: {', '.join(left_out)}")
    return parts


def _tidy(device: torch.device) -> None:
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        if torch.cuda.memory_reserved(device) > _MOST_RESERVED * total:
            gc.collect()
            torch.cuda.empty_cache()


def _progress(row: dict[str, Any]) -> str:
    times = ", ".join(f"{name} {entry['median']:.0f} µs" for name, entry in row["microseconds"].items())
    return times if row["agrees"] else f"{times}; DOES NOT AGREE"


if __name__ == "__main__":
    sys.exit(main())
