"""A frame on a CPU in float32, bfloat16 and int8, compared with the dense network alone in other libraries.

    python -m benchmarks.calls.precisions
    python -m benchmarks.calls.precisions --publish

The opponents are the dense baseline with the same API, and the 2D network of the original PointPillars in
OpenVINO and ONNX Runtime (``pip install openvino nncf onnx onnxruntime``). That network has no encoder, boxes
or suppression. All sides are interleaved. Times are those of all threads on the processor, because other
programs hardly change them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.calls.frames import DENSE, SPARSE
from benchmarks.calls.openvino import peers_of
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.scenes import default_data, load_frames
from benchmarks.lib.timing import Summary, interleave, paired_ratio
from benchmarks.publish.screen import tables
from perception import Detector
from perception.run.precision import Precision, has_bfloat16
from sparse_core.conv.convolution.cpu.int8 import compiled

_TWO_FOUR = "pointpillars-kitti-2of4-int8"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device("cpu")
    configure(device, options.threads)
    compiled.PRODUCTS.ready()
    points = load_frames(options.data, 1, seed=options.seed).points[0]
    weights: dict[str, tuple[str, Precision]] = {"float32": (SPARSE, "float32")}
    if has_bfloat16():
        weights["bfloat16"] = (SPARSE, "bfloat16")
    weights |= {
        "int8": (SPARSE, "int8"),
        "int8, 2:4 weights": (_TWO_FOUR, "int8"),
        "dense baseline, float32": (DENSE, "float32"),
    }
    sides: dict[str, Callable[[], object]] = {
        name: partial(Detector.from_pretrained(file, precision=precision), points)
        for name, (file, precision) in weights.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        for peer, calls in peers_of(options.seed, Path(folder)).items():
            sides |= {f"{peer}, {name}, network alone": call for name, call in calls.items()}
        samples = interleave(
            sides, device, rounds=options.rounds, warmup=2, clock="process", seed=options.seed
        )
    rows: list[dict[str, Any]] = [
        {
            "side": name,
            "median_ms": round(Summary.of(taken).median_ms, 3),
            "over_float32": paired_ratio(taken, samples["float32"])["median"],
            "over_int8": paired_ratio(taken, samples["int8"])["median"],
        }
        for name, taken in samples.items()
    ]
    notes = ["milliseconds of all threads on the processor, interleaved"]
    settings = asked(options, "data") | {"path": compiled.fastest_path(two_four=False)}
    values = result("precisions", device, settings, sides=rows, notes=notes)
    save(values, options)
    show(values, tables(values, "precisions-cpu"), notes, as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "precisions", quick="few rounds")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder; simulated if absent")
    parser.add_argument("--rounds", type=int, help="calls of each side (20; 3 with --quick)")
    options = parse(parser, arguments)
    if options.device != "cpu":
        parser.error("precisions are compared on a CPU")
    options.rounds = options.rounds or (3 if options.quick else 20)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
