"""``perceive export``: a detector as a file that runs without this package."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perception.checkpoints.weights import load_weights
from perception.cli.console import OUTPUT, add_command
from perception.cli.options import add_range_option, range_of
from perception.export import FORMATS, SUFFIXES, export_network
from perception.model.ranging import in_range


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "export", run)
    parser.add_argument("weights", help="shipped name or .safetensors file")
    parser.add_argument(
        "--format",
        default="onnx",
        choices=FORMATS,
        help="what to write (default: onnx); aoti: for this processor",
    )
    parser.add_argument("--out", type=Path, help="file to write (default: name of the weights, here)")
    add_range_option(parser)


def run(options: argparse.Namespace) -> int:
    """Export; the status is 0."""
    network = load_weights(options.weights)
    if options.range is not None:
        network = in_range(network, network.config.pillars.with_range(range_of(options.range)))
    default = Path(options.weights).name.removesuffix(".safetensors") + SUFFIXES[options.format]
    path = export_network(network, options.out or Path(default), options.format)
    OUTPUT.print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
    return 0
