"""Options and torch settings that the benchmarks share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch


def common_parser(description: str | None, name: str, *, quick: str | None = None) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark.

    Args:
        description: docstring of the script.
        name: of the benchmark; its results go to ``NAME-DEVICE.json``.
        quick: what ``--quick`` leaves out, where that needs saying.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="threads on the CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--out", type=Path, help=f"result file (benchmarks/results/{name}-DEVICE.json)")
    parser.add_argument("--json", action="store_true", help="print the JSON instead of the tables")
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse, and refuse a GPU that is not there."""
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device")
    return options


def configure(device: torch.device, threads: int) -> None:
    """Set the threads; on a GPU let products use TF32 as convolutions do, so that float32 means one thing."""
    torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
