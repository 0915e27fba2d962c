"""``perceive convert-weights``: checkpoints of other programs as weights."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from perception.checkpoints.foreign import convert_weights
from perception.checkpoints.weights import save_weights
from perception.cli.console import OUTPUT, add_command


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(
        commands,
        "convert-weights",
        run,
    )
    parser.add_argument("checkpoint", type=Path, help="file of torch.save; nothing in it is executed")
    parser.add_argument("out", type=Path, help=".safetensors file to write")
    parser.add_argument(
        "--config",
        type=Path,
        help="OpenPCDet's YAML file of the model, which CenterPoint needs; for the others a configuration of"
        " kind 'anchors' (default: what they use for KITTI)",
    )
    parser.add_argument(
        "--half", action="store_true", help="half precision: half as large, and boxes that differ by rounding"
    )


def run(options: argparse.Namespace) -> int:
    """Convert; the status is 0."""
    network, program, left_out = convert_weights(options.checkpoint, options.config)
    save_weights(network, options.out, dtype=torch.float16 if options.half else torch.float32)
    classes = ", ".join(network.config.head.classes)
    model = "CenterPoint" if network.config.backbone.kind == "centres" else "PointPillars"
    for line in (
        f"{options.out}: {model} of {program} for {classes}",
        *(f"left out: {what}" for what in left_out),
    ):
        OUTPUT.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0
