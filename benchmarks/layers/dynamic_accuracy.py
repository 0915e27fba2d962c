"""Accuracy of sparse training from scratch: dense, static random, SET, RigL and structured RigL.

    python -m benchmarks.layers.dynamic_accuracy

The tasks are scikit-learn's digits (a perceptron and a convnet) and Python's own help text (a
Transformer that predicts characters). All rows of a seed see the same batches and learning rates. Finished
trainings stay in the result file; ``--resume`` resumes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.layers.dynamic_rows import DROP_FRACTION, LENGTHS, SPARSITIES, STOP, Row, all_rows
from benchmarks.layers.dynamic_summary import summarise
from benchmarks.layers.dynamic_tasks import DIGITS_VARIABLE, SMALL_TASKS, TASKS, help_text
from benchmarks.layers.dynamic_training import BLOCK_SIZE, UPDATE_EVERY, Run, train
from benchmarks.lib.options import common_parser, parse, picture
from benchmarks.lib.processes import progress_bar, run_each
from benchmarks.lib.results import result, save, show, write
from benchmarks.publish.screen import tables
from sparse_core.common.libraries import module_available

METHODS = ("dense", "small dense", "static", "set", "rigl")
STRUCTURES = ("unstructured", "fan-in", "block")
#: Fields that identify a training.
_IDENTITY = ("task", "seed", *Row._fields, "steps")


class OutOfTimeError(RuntimeError):
    """The training was not started in time; it leaves no result."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    if options.draw_from:
        _draw(json.loads(options.draw_from.read_text()), options.png or options.draw_from.with_suffix(".png"))
        return 0
    if options.digits:
        # Processes that train are started with the same environment.
        os.environ[DIGITS_VARIABLE] = str(options.digits.resolve())
    settings = _settings(options)
    runs = _runs(options)
    known = _finished(options.out, settings) if options.resume else []
    found, failures = _train_all(runs, known, options, settings)
    values = _values(found, failures, options, settings)
    save(values, options)
    notes = list(values["notes"])
    if not found:
        pass
    elif module_available("matplotlib"):
        _draw(values, picture(options))
    else:
        notes.append("matplotlib is not installed: no picture (--draw-from draws it from the result file)")
    show(values, tables(values, "dynamic-accuracy", "dynamic-cost"), notes, as_json=options.json)
    return 1 if failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    quick_help = "few steps and rows: the numbers mean nothing"
    common = common_parser(__doc__, "dynamic-accuracy", quick=quick_help, by_device=False)
    # Threads are processes, as in the pruning study.
    parser = argparse.ArgumentParser(
        description=common.description,
        formatter_class=common.formatter_class,
        parents=[common],
        add_help=False,
        conflict_handler="resolve",
    )
    parser.add_argument("--threads", type=int, default=2, help="trainings at a time, of one thread each")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--structures", nargs="+", choices=STRUCTURES, default=list(STRUCTURES))
    parser.add_argument("--sparsities", nargs="+", type=float, help="(0.8 0.9)")
    parser.add_argument("--lengths", nargs="+", type=int, help="times a plain training (1 5)")
    parser.add_argument("--seeds", type=int, help="trainings of each row (5)")
    parser.add_argument("--steps", type=int, help="of a plain training (each task's own)")
    parser.add_argument("--part", choices=("test", "validation"), default="test", help="measured on")
    parser.add_argument(
        "--digits", type=Path, help="file with the digits, where scikit-learn is not installed"
    )
    parser.add_argument("--text", type=Path, help="text for the characters (Python's help topics)")
    parser.add_argument("--budget-s", type=float, help="start no training after so long")
    parser.add_argument("--resume", action="store_true", help="keep the trainings that the result file has")
    parser.add_argument("--png", type=Path, help="picture (default: next to the result file)")
    parser.add_argument("--draw-from", type=Path, help="train nothing: draw a result file")
    options = parse(parser, arguments)
    quick = options.quick
    options.sparsities = tuple(options.sparsities or ((0.9,) if quick else SPARSITIES))
    options.lengths = tuple(options.lengths or LENGTHS)
    options.seeds = options.seeds or (2 if quick else 5)
    if not all(0 < sparsity < 1 for sparsity in options.sparsities) or min(options.lengths) < 1:
        parser.error("--sparsities must lie between 0 and 1, --lengths must be at least 1")
    if options.device == "cuda":
        parser.error("these tasks train on the CPU: leave out --device")
    return options


def _draw(values: dict[str, Any], path: Path) -> None:
    from benchmarks.layers.dynamic_chart import draw

    draw(values, path)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Settings that the results depend on, apart from rows and seeds."""
    text = options.text.read_text(encoding="utf-8") if options.text else help_text()
    return {
        "digits": {"training": 900, "validation": 200, "test": 697},
        "text": {
            "name": options.text.name if options.text else "pydoc_data.topics",
            "characters": len(text),
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        },
        "measured_on": options.part,
        "steps": {
            name: options.steps or (10 if options.quick else task.steps) for name, task in SMALL_TASKS.items()
        },
        "rates": {name: task.rate for name, task in SMALL_TASKS.items()},
        "update_every": UPDATE_EVERY,
        "block_size": BLOCK_SIZE,
        "drop_fraction": DROP_FRACTION,
        "stop": STOP,
        "quick": options.quick,
    }


def _runs(options: argparse.Namespace) -> list[Run]:
    """Every training, seed by seed, so that an early end leaves whole seeds."""
    steps = _settings(options)["steps"]
    rows = [
        row
        for row in all_rows(options.sparsities, options.lengths)
        if row.method in options.methods and row.structure in options.structures
    ]
    seeds = range(options.seed, options.seed + options.seeds)
    text = str(options.text.resolve()) if options.text else None
    return [
        Run(task, row, seed, steps[task], options.part, text)
        for seed in seeds
        for task in options.tasks
        for row in rows
    ]


def _finished(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Trainings of an earlier result file of the same settings.

    Raises:
        ValueError: it was made with others.
    """
    if not path.is_file():
        return []
    values = json.loads(path.read_text())
    changed = [name for name, value in settings.items() if values["settings"].get(name) != value]
    if changed:
        raise ValueError(
            f"{path.name} was made with other settings ({', '.join(changed)}): give another --out"
        )
    return list(values["runs"])


def _identity(run: Run) -> tuple[Any, ...]:
    return (run.task, run.seed, *run.row, run.steps * run.row.length)


def _train_all(
    runs: Sequence[Run], known: list[dict[str, Any]], options: argparse.Namespace, settings: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Records of all trainings, those known first, and what went wrong; the file is written after each."""
    found, failures = list(known), []
    done = {tuple(record[name] for name in _IDENTITY) for record in known}
    waiting = [run for run in runs if _identity(run) not in done]
    end = time.time() + options.budget_s if options.budget_s else float("inf")
    with progress_bar() as progress:
        bar = progress.add_task("trainings", total=len(runs), completed=len(runs) - len(waiting))
        for run, outcome in run_each(partial(_outcome, end=end), waiting, options.threads):
            progress.advance(bar)
            if isinstance(outcome, OutOfTimeError):
                continue
            if isinstance(outcome, Exception):
                failures.append(f"{run.row.label}, seed {run.seed}: {type(outcome).__name__}: {outcome}")
                continue
            found.append(outcome)
            # Renamed into place, so that an interruption leaves the old file or the new one.
            fresh = options.out.with_suffix(".tmp")
            write(_values(found, failures, options, settings), fresh)
            fresh.replace(options.out)
    return found, failures


def _outcome(run: Run, end: float) -> dict[str, Any] | Exception:
    if time.time() > end:
        return OutOfTimeError("not started")
    try:
        return train(run)
    except (ValueError, RuntimeError, ArithmeticError, OSError) as error:
        return error


def _values(
    found: Sequence[dict[str, Any]],
    failures: Sequence[str],
    options: argparse.Namespace,
    settings: dict[str, Any],
) -> dict[str, Any]:
    order = sorted(found, key=lambda record: (record["task"], record["length"], record["seed"]))
    return result(
        "dynamic-accuracy",
        torch.device(options.device),
        settings,
        runs=order,
        cases=summarise(order),
        notes=[*_notes(settings), *(f"failed: {failure}" for failure in failures)],
    )


def _notes(settings: dict[str, Any]) -> list[str]:
    exchange = (
        f"connections are exchanged every {settings['update_every']} steps for {STOP:.0%} of the training,"
        f" {DROP_FRACTION:.0%} at first"
    )
    cost = "cost: multiply-adds of a training over those of a plain dense one (Evci et al. 2020, appendix H)"
    return [
        f"{exchange}; blocks of {settings['block_size']}. First and last layers stay dense where they read"
        f" single pixels or write classes. {cost}.",
        "small dense: the widest dense network that has no more parameters than the unstructured one."
        " Learning rates were chosen on the validation examples and are the same for every row of a task.",
    ]


if __name__ == "__main__":
    sys.exit(main())
