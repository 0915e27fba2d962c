"""``perceive convert-weights``: convert checkpoints of other programs."""

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
    parser.add_argument("checkpoint", type=Path, help="file of torch.save; its code is never executed")
    parser.add_argument("out", type=Path, help="output .safetensors file")
    parser.add_argument(
        "--config",
        type=Path,
        help="OpenPCDet's YAML file of the model, required for CenterPoint; for others a configuration of"
        " kind 'anchors' (default: theirs for KITTI)",
    )
    parser.add_argument("--half", action="store_true", help="store float16 instead of float32 weights")


def run(options: argparse.Namespace) -> int:
    """Convert and print what was left out."""
    network, program, left_out = convert_weights(options.checkpoint, options.config)
    save_weights(network, options.out, dtype=torch.float16 if options.half else torch.float32)
    classes = ", ".join(network.config.head.classes)
    model = "CenterPoint" if network.config.backbone.kind == "centres" else "PointPillars"
    for line in (
        f"{options.out}: {model} from {program} for {classes}",
        *(f"left out: {what}" for what in left_out),
    ):
        OUTPUT.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0
