"""Memories of real drives: ours, simple ones and others', given the same boxes and asked the same questions.

    python -m benchmarks.memory.memory_drives

Each drive is driven forward and, a day later, back. The way back replays the scans in reverse with separate
tracks, once with correct poses and once with poses 0.5 m off. Boxes are labels without identities, those of
our detector, or CenterPoint's. One tracker follows them, and every memory receives the boxes that the tracker
reports. The labels give the observations of each object, its position, and the time when it was last seen.
KITTI's tracking sequences have no poses: things have no places there and are counted on the way there alone.
``rtsm`` and ``robotmem`` take part where they are installed (``pip install rtsm robotmem``).
Data: ``$SPARSIGHT_DATA``, by default ``../shared/data``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from benchmarks.lib.demos import drive_module
from benchmarks.lib.environment import data_root
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.memory.drive_cases import cases
from benchmarks.memory.drive_peers import peers
from benchmarks.publish.screen import tables

#: Kinds of questions.
KINDS = ("how many", "parked", "last seen", "changed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(
        __doc__, "memory_drives", quick="labels of one drive and one sequence, no detector"
    )
    data = data_root()
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--weights", default="pointpillars-kitti", help="of our detector")
    options = parse(parser, arguments)
    configure(torch.device("cpu"), 1)
    studied: Callable[..., dict[str, Any]] = drive_module("labelled.study").run_study
    others = peers()
    found = []
    with Progress(disable=options.json) as progress:
        task = progress.add_task("driving", total=None)
        for case in cases(options.data, options.weights, quick=options.quick):
            progress.update(task, description=case.name, advance=1)
            figures = studied(case.moments, case.sees, others)
            found.append({"drive": case.name, "boxes_of": case.boxes, "group": case.group, **figures})
    if not found:
        parser.error(f"--data {options.data}: no kitti_sequences, nuscenes or kitti_tracking in it")
    values = result(
        "memory_drives",
        torch.device("cpu"),
        {"quick": options.quick, "threads": 1, "peers": {name: metadata.version(name) for name in others}},
        summary=summed(found),
        cases=found,
        notes=[
            "one: share of the things that have one memory, of one that drives one a pass",
            "split: memories too many; joined: things whose sights are in another's; lost: in none",
            "false: memories of what is no labelled thing, as a detector's false alarms are",
            "error: from the places of memories to the mean of labels, of what stands",
            "how many: what is said over what there was, of all ways; others: right of asked",
        ],
    )
    save(values, options)
    show(values, tables(values, "memory-drives", "memory-drives-cost"), values["notes"], as_json=options.json)
    return 0


def summed(cases: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """By group and side: counts of all drives added up, and means of the other figures over the drives.

    Args:
        cases: of ``studied``, each with its ``group``.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        groups.setdefault(case["group"], []).append(case)
    return {group: {side: _summed(some, side) for side in some[0]["sides"]} for group, some in groups.items()}


def _summed(cases: Sequence[dict[str, Any]], side: str) -> dict[str, Any]:
    rows = [case["sides"][side] for case in cases]
    things = sum(case["things"] for case in cases)
    ones = sum(row["one"] * case["things"] for row, case in zip(rows, cases, strict=True))
    counts = [pair for row in rows for pair in row["questions"]["counts"]]
    return {
        "things": things,
        **{name: sum(row[name] for row in rows) for name in ("memories", "split", "joined", "lost", "false")},
        "one": round(ones / things, 4) if things else None,
        "error_median_m": _mean([row["error_median_m"] for row in rows]),
        "error_95_m": _mean([row["error_95_m"] for row in rows]),
        "counted": [sum(said for said, _ in counts), sum(true for _, true in counts)],
        "questions": {
            kind: [sum(row["questions"]["by_kind"].get(kind, [0, 0])[at] for row in rows) for at in (0, 1)]
            for kind in KINDS
        },
        "kilobytes": _mean([row["bytes"] / 1e3 if row["bytes"] is not None else None for row in rows]),
        "remembering_ms_a_frame": _mean([row["remembering_ms_a_frame"] for row in rows]),
        "question_ms": _mean([row["questions"]["median_ms"] for row in rows]),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


if __name__ == "__main__":
    raise SystemExit(main())
