"""``perceive quantise``: prepare weights for int8 on a CPU."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command, add_weights_option
from perception.cli.options import add_topic_option
from perception.cli.scans.options import add_scan_options, transform_of
from sparse_core.common.console import progress_bar


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "quantise", run)
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        help="typical scans of the sensor, without labels: files, folders, ROS bags or captures",
    )
    add_topic_option(parser)
    add_weights_option(parser)
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE", help="weights to write (.safetensors)"
    )
    parser.add_argument("--scans", type=int, default=20, metavar="N", help="scans to measure on (20)")
    add_scan_options(parser)


def run(options: argparse.Namespace) -> int:
    """Measure the ranges of features, and write the weights with them."""
    from perception.checkpoints.ranges import measure_ranges
    from perception.checkpoints.weights import save_quantised
    from perception.cli.scans.reading import ScanReader
    from perception.cli.scans.source import find_scans
    from perception.detector import Detector
    from perception.scans.tensors import as_tensor

    if options.scans < 1:
        raise ValueError(f"--scans must be at least 1, got {options.scans}")
    detector = Detector.from_pretrained(options.weights)
    transform = transform_of(options)
    read, pillars = ScanReader(options, transform), detector.config.pillars
    with ExitStack() as stack, progress_bar() as bar:
        found = find_scans(options, transform, stack)
        # Take scans from all over a drive; the length of a capture is not known, so every tenth.
        step = 10 if found.total is None else max(1, found.total // options.scans)
        task = bar.add_task("measuring", total=options.scans)
        used = 0

        def clouds() -> Iterator[Any]:
            nonlocal used
            for scan in islice(islice(found, 0, None, step), options.scans):
                yield as_tensor(read(scan).cloud, pillars)
                used += 1
                bar.advance(task)

        ranges = measure_ranges(detector.network, clouds())
    save_quantised(options.weights, options.out, ranges)
    OUTPUT.print(f"{options.out}: ranges of {len(ranges)} layers, from {used} scans", soft_wrap=True)
    return 0
