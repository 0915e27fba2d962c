"""Console command ``sparsight-merge``: merge models by a recipe."""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import torch
from rich.console import Console

from sparse_core import __version__
from sparse_core.common.commands import failure
from sparse_core.merging.disk import make_task_vector, merge_files
from sparse_core.merging.files.encoding import VALUE_CODES
from sparse_core.merging.recipes.recipe import load_recipe

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 success, 2 bad usage or input."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.recipe is None and options.task_vector is None:
        parser.error("a recipe is missing (or --task-vector BASE TUNED)")
    if options.threads is not None and options.threads < 1:
        parser.error(f"--threads must be at least 1, got {options.threads}")
    if options.seed is not None and options.seed < 0:
        parser.error(f"--seed must be at least 0, got {options.seed}")
    # SIGTERM cleans up like Ctrl+C.
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _interrupt) if in_main else None
    try:
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        if options.task_vector is not None:
            return _task_vector(options)
        return _merge(options)
    except (ValueError, TypeError, OSError) as error:
        print(f"sparsight-merge: {failure(error, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sparsight-merge: interrupted; nothing was written", file=sys.stderr)
        return 130
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _merge(options: argparse.Namespace) -> int:
    recipe = load_recipe(options.recipe)
    if options.seed is not None:
        recipe = dataclasses.replace(recipe, rule=dataclasses.replace(recipe.rule, seed=options.seed))
        if "seed" not in recipe.method.settings:
            note = f"--seed is ignored: {recipe.method.name} draws nothing at random"
            recipe = dataclasses.replace(recipe, notes=(*recipe.notes, note))
    report = merge_files(
        recipe,
        options.out,
        max_shard_bytes=options.max_shard,
        overwrite=options.overwrite,
        dry_run=options.dry_run,
        progress=_shows_bar(options),
    )
    if options.json:
        print(json.dumps(report.to_json()))
    else:
        print(report)
    return 0


def _task_vector(options: argparse.Namespace) -> int:
    if options.out is None:
        raise ValueError("--task-vector needs --out FILE.safetensors")
    if options.recipe is not None:
        raise ValueError("--task-vector takes BASE and TUNED only, no recipe")
    base, tuned = options.task_vector
    report = make_task_vector(
        base, tuned, options.out, density=options.density, values=options.values, progress=_shows_bar(options)
    )
    if options.json:
        print(json.dumps({**report._asdict(), "path": str(report.path)}))
    else:
        share = report.nbytes / max(report.dense_float32, 1)
        print(
            f"{report.path}: {report.entries:,} of {report.numel:,} numbers in {report.nbytes:,} bytes,"
            f" {share:.2%} of the size in float32, {2 * share:.2%} of that in 16 bits"
        )
    return 0


def _shows_bar(options: argparse.Namespace) -> bool:
    return not options.json and not options.dry_run and Console(stderr=True).is_terminal


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparsight-merge",
        description="Merge models on disk, tensor by tensor, by a recipe in mergekit's format.",
        epilog="To write a task vector: sparsight-merge --task-vector BASE TUNED --out FILE --density 0.1",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"sparsight-merge (Sparsight) {__version__}")
    add(
        "recipe",
        nargs="?",
        type=Path,
        help="YAML file with merge_method, base_model, models, parameters, dtype and out",
    )
    add("--out", type=Path, help="write to this folder or *.safetensors file (default: 'out' of the recipe)")
    add("--overwrite", action="store_true", help="replace an existing OUT")
    add(
        "--max-shard",
        type=_size,
        default=5 * 10**9,
        metavar="SIZE",
        help="largest size of a file, such as 500M (default: 5G)",
    )
    add("--seed", type=int, help="seed of random shares (default: the recipe's)")
    add("--threads", type=int, help="number of threads (default: torch's)")
    add("--dry-run", action="store_true", help="check recipe and models, and show what would be written")
    add("--json", action="store_true", help="print the report as JSON")
    add(
        "--task-vector",
        nargs=2,
        metavar=("BASE", "TUNED"),
        help="write TUNED minus BASE as a sparse file to OUT",
    )
    add("--density", type=float, default=0.1, help="share of the task vector to keep (default: 0.1)")
    add(
        "--values",
        choices=VALUE_CODES,
        default="int8",
        help="storage of the task vector's numbers (default: int8)",
    )
    return parser


def _size(text: str) -> int:
    """Parse bytes: ``500M``, ``5G`` or a plain number."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    try:
        found = int(float(text[: len(text) - len(unit)]) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"expected a size such as 500M or 5G, got {text!r}") from error
    if found < 1:
        raise argparse.ArgumentTypeError(f"expected at least one byte, got {text!r}")
    return found


if __name__ == "__main__":
    sys.exit(main())
