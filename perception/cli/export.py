"""``perceive export``: export a detector to a file that runs without this package."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from perception.checkpoints.weights import load_weights
from perception.cli.console import OUTPUT, add_command
from perception.cli.options import add_range_option, range_of
from perception.export import FORMATS, SUFFIXES, export_network
from perception.model.ranging import in_range
from sparse_core.common.console import LOG, REMARKS


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "export", run)
    parser.add_argument("weights", help="name of shipped weights, or .safetensors file")
    parser.add_argument(
        "--format",
        default="onnx",
        choices=FORMATS,
        help="onnx: points to boxes; onnx-spconv: sparse backbone for NVIDIA's libspconv; torch-export:"
        " PyTorch program; aoti: compiled for this CPU (default: onnx)",
    )
    parser.add_argument("--out", type=Path, help="output file (default: name of the weights, in this folder)")
    add_range_option(parser)


def run(options: argparse.Namespace) -> int:
    """Export and print the file and its size."""
    network = load_weights(options.weights)
    if options.range is not None:
        network = in_range(network, network.config.pillars.with_range(range_of(options.range)))
    default = Path(options.weights).name.removesuffix(".safetensors") + SUFFIXES[options.format]
    LOG.info("exporting %s as %s; this can take a minute", options.weights, options.format)
    started_s = time.monotonic()
    with REMARKS.status("exporting"):
        path = export_network(network, options.out or Path(default), options.format)
    LOG.info("exported in %.0f s", time.monotonic() - started_s)
    OUTPUT.print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
    return 0
