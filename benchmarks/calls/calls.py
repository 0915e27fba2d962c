"""Time of a call as users make it: wall clock, host arrays in, host results out, everything included.

    python -m benchmarks.calls.calls                                  # commands, memory, service, frames
    python -m benchmarks.calls.calls --device cuda                    # frames, first detections, products
    python -m benchmarks.calls.calls --rows service vectors

``--rows`` chooses among:

- ``commands``: ``--help`` and a query, each in a fresh process.
- ``vectors``: a query over 20,000 vectors of 64 numbers, alone and with a busy core.
- ``store``: durable inserts, LSH queries, filtered queries.
- ``service``: eight clients on the same cores.
- ``frames``: a call, a stream and a batch, compared with the dense baseline.
- ``large``: a frame of a million points.
- ``busy``: frames with a busy core, compared with the dense baseline.
- ``waiting``: frames by waiting policy of the threads, with no core, one core and all cores busy.
- ``openvino``: frames compared with PointPillars' dense network in OpenVINO and ONNX Runtime, if installed.
- ``first``: the first detections of a fresh process.
- ``tail``: thousands of calls of the detector, and what the slowest ones do.
- ``sizes``: batches of changing size, with and without a graph for them.
- ``pauses``: calls after pauses, with the GPU, the core or the caches kept awake.
- ``products``: ``spmv``, ``spmm``, ``SparseLinear``, ``sparse_attention``, compared with torch's calls.
- ``training``: attention with gradients in short sequences, compared with cuDNN's dense attention.
- ``plans``: the same calls with launch plans and without.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.calls.frames import busy, first, frames, large, waiting
from benchmarks.calls.memory import commands, service, store, vectors
from benchmarks.calls.openvino import openvino
from benchmarks.calls.pauses import details, pauses, sizes, tail
from benchmarks.calls.products import plans, products
from benchmarks.calls.training import training
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.scenes import default_data
from benchmarks.publish.screen import tables

Measure = Callable[[Path, argparse.Namespace], list[dict[str, Any]]]
ROWS: dict[str, Measure] = {
    "commands": commands,
    "vectors": vectors,
    "store": store,
    "service": service,
    "frames": frames,
    "large": large,
    "busy": busy,
    "waiting": waiting,
    "openvino": openvino,
    "first": first,
    "tail": tail,
    "sizes": sizes,
    "pauses": pauses,
    "products": products,
    "training": training,
    "plans": plans,
}
_USUAL = {
    "cpu": ("commands", "vectors", "store", "service", "frames", "busy", "openvino"),
    "cuda": ("frames", "large", "first", "products"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    rows: list[dict[str, Any]] = []
    start = time.perf_counter()
    for name in options.rows:
        print(f"[{time.perf_counter() - start:.0f} s] {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            rows += [{"row": name, **row} for row in ROWS[name](Path(folder), options)]
    notes = [
        "wall clock; p99 of few calls is near their maximum",
        "times: how many times as long the other took, in turn with ours",
        *details(rows),
    ]
    settings = asked(options, "data", "folder")
    values = result("calls", device, settings, calls=rows, notes=notes)
    save(values, options)
    show(values, tables(values, "calls-cpu", "calls-products"), notes, as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "calls", quick="small stores and few calls, to see that it runs")
    parser.add_argument("--rows", nargs="+", choices=ROWS, help="default: those of the device")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder; simulated if absent")
    parser.add_argument("--folder", type=Path, help="where stores are made; decides what a sync costs")
    parser.add_argument("--rounds", type=int, help="calls of each (20; 3 with --quick)")
    options = parse(parser, arguments)
    options.rows = options.rows or list(_USUAL[options.device])
    options.rounds = options.rounds or (3 if options.quick else 20)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
