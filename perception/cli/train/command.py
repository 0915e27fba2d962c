"""``perceive train``: train a detector on a data set."""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command, add_device_option
from perception.cli.options import add_range_option, range_of
from perception.cli.train.embedding import run_embedding, trains_embedding
from perception.config import TrainConfig, load_config
from perception.errors import ConfigError
from sparse_core.common.console import LOG, REMARKS
from sparse_core.common.interruption import interruptible

#: Seconds between log messages about the loss, without a terminal for a progress bar.
_LINE_EVERY_S = 10.0
CONFIG_DIRECTORY = Path(__file__).parents[2] / "configs"


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(
        commands,
        "train",
        run,
    )
    parser.add_argument(
        "config",
        help="YAML file or name of a shipped configuration; 'embedding' trains the object embeddings of"
        " --from WEIGHTS",
    )
    parser.add_argument(
        "--data",
        required=True,
        type=Path,
        help="data set with a split 'train', or FOLDER@SPLIT; for 'embedding' a drive with track identities,"
        " such as a KITTI sequence",
    )
    parser.add_argument(
        "--extra",
        action="append",
        default=[],
        type=Path,
        help="further data set to mix in, or FOLDER@SPLIT (repeatable)",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for checkpoints, weights and curves")
    parser.add_argument(
        "--workers", type=int, help="processes that prepare frames (default: from the configuration)"
    )
    parser.add_argument("--steps", type=int, help="optimiser steps (default: from the configuration)")
    parser.add_argument(
        "--learning-rate", type=float, help="peak learning rate (default: from the configuration)"
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WEIGHTS",
        help="fine-tune shipped weights or a .safetensors file; layers of other classes start from scratch",
    )
    parser.add_argument(
        "--classes",
        help="class names to learn, separated by commas (default: from the configuration)",
    )
    parser.add_argument(
        "--masks",
        choices=("2:4",),
        help="with --from: prune to 2:4 sparsity first, and keep it while training",
    )
    parser.add_argument(
        "--coding",
        help="with --from: train and store weights in this code: int8, int4/64, codebook64 …",
    )
    add_range_option(parser)
    parser.add_argument(
        "--skip-damaged",
        action="store_true",
        help="skip unreadable frames and list them (default: stop at the first)",
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="train even if perceive doctor finds errors in the data",
    )
    parser.add_argument("--max-seconds", type=float, help="stop after this many seconds and save the weights")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_device_option(parser)


def run(options: argparse.Namespace) -> int:
    """Train, then print the weights and their scores; a signal stops with a message."""
    with interruptible(lambda: _interruption_message(options.out)):
        return _run(options)


def _interruption_message(directory: Path) -> str:
    """Return the message for a signal outside of the training steps."""
    if (directory / "checkpoint.pt").is_file():
        return f"interrupted; {directory / 'checkpoint.pt'} is saved. Rerun the same command to resume."
    return "interrupted before the first step. Rerun the same command to start."


def _run(options: argparse.Namespace) -> int:
    from perception.train.fine_tune import FineTune
    from perception.train.ranks import is_first_rank
    from perception.train.run import train

    path, first = resolve_config(options.config), is_first_rank()
    if trains_embedding(path):
        return run_embedding(options, path)
    config = load_config(TrainConfig, path)
    wanted = {name: getattr(options, name) for name in ("workers", "steps", "learning_rate")}
    config = replace(config, **{name: value for name, value in wanted.items() if value is not None})
    if options.classes is not None:
        names = [name.strip() for name in options.classes.split(",") if name.strip()]
        config = replace(config, detector=config.detector.with_classes(names))
    if options.range is not None:
        config = replace(config, detector=config.detector.with_range(range_of(options.range)))
    fine_tune = None
    if options.start is not None:
        fine_tune = FineTune(options.start, options.masks, options.coding)
    elif options.masks or options.coding:
        raise ValueError("--masks and --coding need trained weights. Add --from WEIGHTS.")
    if first and not REMARKS.is_terminal:
        LOG.info("training %d steps on %s", config.steps, options.device)
    show_bar = REMARKS.is_terminal and LOG.isEnabledFor(logging.INFO)
    outcome = train(
        config,
        options.data,
        options.out,
        extra=options.extra,
        device=options.device,
        max_seconds=options.max_seconds,
        show_progress=show_bar,
        on_log=None if show_bar else _LossLog(),
        on_remark=LOG.info,
        fine_tune=fine_tune,
        skip_damaged=options.skip_damaged,
        check=not options.no_check,
    )
    if not first:
        return 0
    if options.json:
        print(json.dumps(asdict(outcome), default=str))
        return 0
    if not outcome.finished:
        OUTPUT.print(f"stopped at step {outcome.step}; rerun the same command to resume")
    so_far = "" if outcome.finished else " (so far)"
    OUTPUT.print(f"weights: {outcome.directory / 'weights.safetensors'}{so_far}", soft_wrap=True)
    if (outcome.directory / "curves.png").is_file():
        OUTPUT.print(f"curves:  {outcome.directory / 'curves.png'}", soft_wrap=True)
    for line in _scores(outcome.metrics or {}):
        OUTPUT.print(line, highlight=False, markup=False)
    return 0


def _scores(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield average precision, one line per class."""
    if "protocol" not in metrics:
        for name, by_metric in metrics.items():
            yield f"{name} 3D AP40 easy / moderate / hard: {_numbers(by_metric['3d']['AP40'].values())}"
        return
    for name, found in metrics["classes"].items():
        precision = found["AP"]
        parts = precision if isinstance(precision, Mapping) else {"over distances": precision}
        yield f"{name} AP {' / '.join(parts)}: {_numbers(parts.values())}"


def _numbers(values: Iterable[float | None]) -> str:
    return " / ".join("-" if value is None else f"{value:.2f}" for value in values)


class _LossLog:
    """Log messages of the loss: the first, one every ten seconds, and the last."""

    def __init__(self) -> None:
        self._last_s: float | None = None

    def __call__(self, step: int, steps: int, loss: float) -> None:
        now_s = time.monotonic()
        if step == steps or self._last_s is None or now_s - self._last_s >= _LINE_EVERY_S:
            self._last_s = now_s
            LOG.info("step %d of %d: loss %.3f", step, steps, loss)


def resolve_config(name_or_path: str) -> Path:
    """Find a configuration by path or shipped name; raise ``ConfigError`` without one."""
    path = Path(name_or_path)
    if path.is_file():
        return path
    shipped = CONFIG_DIRECTORY / f"{name_or_path}.yaml"
    if shipped.is_file():
        return shipped
    names = ", ".join(sorted(entry.stem for entry in CONFIG_DIRECTORY.glob("*.yaml")))
    raise ConfigError(f"no configuration {name_or_path!r}. Name a YAML file or one of: {names}")
