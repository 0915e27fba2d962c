"""Rotated NMS: the spatial hash against comparing every kept box with every box that is left.

    python -m benchmarks.detector.nms --device cpu

Boxes crowd around objects as a detector's proposals do, or stand anywhere on 15 m x 15 m for each 4,096; all
sides must keep the same boxes. On a GPU the fixed-shape form is a third side, timed on the device in a CUDA
graph and called.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.options import common_parser, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.timing import Side, Summary, interleave, paired_ratio
from perception.nms import rotated_nms, rotated_nms_exact
from perception.stages.nms import fixed_nms

_SIZES_M = ((3.9, 1.6, 1.56), (0.8, 0.6, 1.73), (1.76, 0.6, 1.73))
_BOXES_AN_OBJECT = 8
_SPREAD_M = 0.3


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    torch.set_num_threads(options.threads)
    rows = [
        _measure(count, crowded, device, options) for crowded in (False, True) for count in options.counts
    ]
    settings = {
        "device": options.device,
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": options.seed,
        "iou_threshold": options.iou_threshold,
        "boxes_an_object": _BOXES_AN_OBJECT,
        "quick": options.quick,
    }
    notes = [
        "Random boxes of three classes crowded around objects on 69 m x 79 m; 'crowded' ones anywhere on a"
        " square of 15 m for each 4,096."
    ]
    values = result("nms", device, settings, cases=rows, notes=notes)
    save(values, options)
    show(values, [_table(values)], notes, as_json=options.json)
    return 0 if all(row["equal"] for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "nms")
    parser.add_argument("--counts", type=int, nargs="+", help="numbers of boxes (64 … 4096)")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (15; 5 with --quick)")
    parser.add_argument("--iou-threshold", type=float, default=0.1)
    options = parse(parser, arguments)
    options.rounds = options.rounds or (5 if options.quick else 15)
    options.counts = options.counts or [64, 256, 1024, 4096]
    return options


def make_boxes(count: int, seed: int, *, crowded: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (count, 7), scores (count,) and labels (count,) around count / 8 objects; float32, on the CPU.

    ``crowded`` ones stand anywhere on 15 m x 15 m for 4,096, so that each meets most others.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(rows: int, low: float, high: float) -> Tensor:
        return torch.rand(rows, generator=generator) * (high - low) + low

    objects = max(1, count // _BOXES_AN_OBJECT)
    member = torch.randint(objects, (count,), generator=generator)
    labels = torch.randint(len(_SIZES_M), (objects,), generator=generator)[member]
    x, y = uniform(objects, 0.0, 69.12)[member], uniform(objects, -39.68, 39.68)[member]
    yaw = uniform(objects, -math.pi, math.pi)[member]
    noise = torch.randn(count, 4, generator=generator) * torch.tensor([_SPREAD_M, _SPREAD_M, 0.1, 0.1])
    sizes = torch.tensor(_SIZES_M)[labels] * torch.exp(noise[:, 3:])
    centre = torch.stack([x + noise[:, 0], y + noise[:, 1], torch.full_like(x, -1.0)], dim=1)
    if crowded:
        centre[:, :2] = torch.rand(count, 2, generator=generator) * (15.0 * math.sqrt(count / 4096))
    boxes = torch.cat([centre, sizes, (yaw + noise[:, 2])[:, None]], dim=1)
    return boxes, uniform(count, 0.0, 1.0), labels


def _measure(count: int, crowded: bool, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    made = make_boxes(count, options.seed, crowded=crowded)
    boxes, scores, labels = (part.to(device) for part in made)
    settings: dict[str, Any] = {"iou_threshold": options.iou_threshold, "labels": labels}
    sides: dict[str, Side] = {
        "hash": partial(rotated_nms, boxes, scores, **settings),
        "exact": partial(rotated_nms_exact, boxes, scores, **settings),
    }
    kept = rotated_nms(boxes, scores, **settings)
    equal = torch.equal(kept, rotated_nms_exact(boxes, scores, **settings))
    # The exact side takes seconds for thousands of boxes on a GPU.
    samples = interleave(sides, device, rounds=options.rounds, warmup=1, budget_s=12.0, seed=options.seed)
    fixed = _fixed(boxes, scores, labels, kept, device, options) if device.type == "cuda" else None
    return {
        "boxes": count,
        "crowded": crowded,
        "kept": len(kept),
        "equal": equal and (fixed is None or fixed["equal"]),
        "fixed": fixed,
        "time": {name: Summary.of(times).to_dict() for name, times in samples.items()},
        "ratio": paired_ratio(samples["exact"], samples["hash"]),
    }


def _fixed(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    kept: Tensor,
    device: torch.device,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Device time of the fixed-shape form in a graph and called, and whether it keeps the same boxes."""
    run = partial(fixed_nms, boxes[None], scores[None], labels[None], iou_threshold=options.iou_threshold)
    found = run()
    count = int(found.counts[0])
    equal = torch.equal(found.indices[0, :count].long(), kept)
    samples = call_microseconds(
        {"graph": run, "called": run},
        device,
        rounds=options.rounds,
        budget_s=5.0,
        seed=options.seed,
        eager={"called"},
    )
    return {
        "equal": equal,
        "overflow": int(found.overflow),
        "microseconds": microseconds(samples["graph"]),
        "called_microseconds": microseconds(samples["called"]),
    }


def _table(values: dict[str, Any]) -> Any:
    return table(
        "Rotated NMS, ms",
        [
            "boxes",
            "kept",
            "same",
            "hash median",
            "IQR",
            "p99",
            "exact median",
            "IQR",
            "p99",
            "exact / hash",
            "graph, µs",
            "called, µs",
        ],
        (
            [
                f"{row['boxes']}{', crowded' if row['crowded'] else ''}",
                str(row["kept"]),
                "yes" if row["equal"] else "NO",
                *(
                    number(row["time"][side][field], 2)
                    for side in ("hash", "exact")
                    for field in ("median_ms", "iqr_ms", "p99_ms")
                ),
                f"{row['ratio']['median']:.1f}",
                *(
                    number(row["fixed"][way]["median"], 1) if row["fixed"] else ""
                    for way in ("microseconds", "called_microseconds")
                ),
            ]
            for row in values["cases"]
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
