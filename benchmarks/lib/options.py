"""Options and torch settings that the benchmarks share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.lib.environment import is_dirty
from benchmarks.lib.results import RESULTS, WORKING


def common_parser(
    description: str | None, name: str, *, quick: str | None = None, by_device: bool = True
) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark.

    Args:
        description: docstring of the script.
        name: of the benchmark; its results go to ``NAME-DEVICE.json``.
        quick: help of ``--quick``, if it needs an explanation.
        by_device: False where results do not depend on the device and go to ``NAME.json``.
    """
    result = f"{name}-DEVICE" if by_device else name
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="threads on the CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--out", type=Path, help=f"file with everything (build/benchmarks/{result}.json)")
    parser.add_argument(
        "--publish",
        action="store_true",
        help=f"write benchmarks/results/{result}.json too; refuses a tree that differs from its commit",
    )
    parser.add_argument("--json", action="store_true", help="print the JSON instead of the tables")
    parser.set_defaults(result=result)
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse, say where results go, and refuse a GPU that is not there and publishing from a dirty tree."""
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device")
    if options.publish and is_dirty() is not False:
        parser.error("--publish needs a checkout without changes: commit first (git status names them)")
    options.result = options.result.replace("DEVICE", options.device)
    options.out = options.out or WORKING / f"{options.result}.json"
    return options


def asked(options: argparse.Namespace, *besides: str) -> dict[str, Any]:
    """Return the options as settings of a result, without file options and those named."""
    hidden = {"out", "json", "publish", "result", *besides}
    return {key: value for key, value in vars(options).items() if key not in hidden}


def picture(options: argparse.Namespace) -> Path:
    """Return the path of a chart that `--png` does not name: next to the published file, or else next to the
    working one."""
    folder = RESULTS if options.publish else options.out.parent
    return Path(options.png or folder / f"{options.result if options.publish else options.out.stem}.png")


def configure(device: torch.device, threads: int) -> None:
    """Set the threads; on a GPU let products use TF32 as convolutions do, so that float32 means one thing."""
    torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
