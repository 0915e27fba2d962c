"""Accuracy lost by pruning and regained by each step, for a small Transformer and a small convnet.

    python -m benchmarks.layers.pruning_accuracy

Handwritten digits of scikit-learn. All rows of a seed start from the same dense network. All trained rows,
and the dense network, see the same batches and learning rates for the same number of steps. Finished seeds
are stored next to the result file until all are done, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.layers.pruning_measure import DENSE, TRAINED_ON, measure
from benchmarks.layers.pruning_rows import BASELINE, REFRESH_EVERY, Task
from benchmarks.lib.environment import describe
from benchmarks.lib.options import common_parser, configure, parse, picture
from benchmarks.lib.processes import progress_bar, run_each
from benchmarks.lib.results import result, save, show, spread, write
from benchmarks.publish.screen import tables
from sparse_core.common.libraries import module_available

MODELS = ("transformer", "convnet")
PATTERNS = ("2:4", "1:4", "2:8")
#: A share of a smaller one-shot loss has no meaning.
_LEAST_LOSS = 0.01
#: Peak learning rates; the second was chosen on the validation images, where 1e-3 was slightly worse.
_DENSE_RATE, _RATE = 3e-3, 3e-3


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    if options.draw_from:
        _draw(json.loads(options.draw_from.read_text()), options.png or options.draw_from.with_suffix(".png"))
        return 0
    device = torch.device(options.device)
    configure(device, options.threads)
    tasks = _tasks(options)
    partial = options.out.with_suffix(".partial.json")
    runs, notes = _run(tasks, partial, processes=options.threads, device=device)
    settings = {
        "device": options.device,
        "data": {
            "name": "scikit-learn digits, 8 x 8",
            "scikit-learn": metadata.version("scikit-learn"),
            "training": 900,
            "validation": 200,
            "test": 697,
            "measured_on": options.part,
        },
        "models": list(options.models),
        "patterns": list(options.patterns),
        "seeds": list(range(options.seed, options.seed + options.seeds)),
        "dense_steps": options.dense_steps,
        "dense_rate": _DENSE_RATE,
        "steps": options.steps,
        "rate": _RATE,
        "refresh_every": REFRESH_EVERY,
        "quick": options.quick,
    }
    notes += [
        f"rows that are trained on: {options.steps} steps more, after {options.dense_steps} of the dense"
        " network; SR-STE chooses its masks anew every five steps for two thirds of them, from half of them"
        " on at full sparsity where it is progressive. Settings were chosen on the validation images.",
        "the first layer stays dense; groups lie along the channels. recovered: share of what magnitude"
        " pruning in one shot loses against the dense network that the row wins back, of the means.",
    ]
    values = result(
        "pruning-accuracy", device, settings, cases=summarise(runs, options.patterns), notes=notes
    )
    drawing = module_available("matplotlib")
    if not drawing:
        notes.append("matplotlib is not installed: no picture (--draw-from draws it from the result file)")
    save(values, options)
    partial.unlink(missing_ok=True)
    if drawing:
        _draw(values, picture(options))
    show(values, tables(values, "nm-accuracy"), notes, as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    quick = "two seeds, few steps: the numbers mean nothing"
    common = common_parser(__doc__, "pruning-accuracy", quick=quick, by_device=False)
    # Threads are processes here.
    parser = argparse.ArgumentParser(
        description=common.description,
        formatter_class=common.formatter_class,
        parents=[common],
        add_help=False,
        conflict_handler="resolve",
    )
    parser.add_argument("--threads", type=int, default=2, help="processes of one thread each, a seed each")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--patterns", nargs="+", default=list(PATTERNS), help="n:m (2:4 1:4 2:8)")
    parser.add_argument("--seeds", type=int, help="networks of each kind (5; 2 with --quick)")
    parser.add_argument("--dense-steps", type=int, help="batches of the dense training (600; 30)")
    parser.add_argument("--steps", type=int, help="further batches of rows that are trained on (200; 10)")
    parser.add_argument("--part", choices=("test", "validation"), default="test", help="images to measure on")
    parser.add_argument("--png", type=Path, help="picture (default: next to the result file)")
    parser.add_argument("--draw-from", type=Path, help="measure nothing: draw a result file")
    options = parse(parser, arguments)
    quick = options.quick
    options.seeds = options.seeds or (2 if quick else 5)
    options.dense_steps = options.dense_steps or (30 if quick else 600)
    options.steps = options.steps or (10 if quick else 200)
    return options


def _draw(values: dict[str, Any], path: Path) -> None:
    from benchmarks.layers.pruning_chart import draw

    draw(values, path)


def _tasks(options: argparse.Namespace) -> list[Task]:
    return [
        Task(
            model,
            seed,
            tuple(options.patterns),
            options.device,
            options.dense_steps,
            _DENSE_RATE,
            options.steps,
            _RATE,
            options.part,
        )
        for seed in range(options.seed, options.seed + options.seeds)
        for model in options.models
    ]


def _run(
    tasks: Sequence[Task], partial: Path, *, processes: int, device: torch.device
) -> tuple[list[dict[str, Any]], list[str]]:
    """Results of all tasks in their order, and notes; those in the partial file are not measured again."""
    sources = describe(device)["code"]["source_sha256"]
    finished: dict[str, Any] = json.loads(partial.read_text()) if partial.exists() else {}
    waiting = [task for task in tasks if _key(task) not in finished]
    with progress_bar() as progress:
        bar = progress.add_task("networks", total=len(tasks), completed=len(tasks) - len(waiting))
        for task, run in run_each(measure, waiting, processes):
            finished[_key(task)] = {"source_sha256": sources, "run": run}
            # Renamed into place, so that an interruption leaves the old file or the new one.
            fresh = partial.with_suffix(".tmp")
            write(finished, fresh)
            fresh.replace(partial)
            progress.advance(bar)
    entries = [finished[_key(task)] for task in tasks]
    changed = sum(entry["source_sha256"] != sources for entry in entries)
    notes = [f"{changed} networks were measured before the sources changed"] if changed else []
    return [entry["run"] for entry in entries], notes


def _key(task: Task) -> str:
    """Everything that the numbers of a task depend on but the code."""
    return json.dumps(task._asdict())


def summarise(runs: Sequence[dict[str, Any]], patterns: Sequence[str]) -> list[dict[str, Any]]:
    """A case for each network and pattern, with every row over the seeds.

    Args:
        runs: of :func:`benchmarks.layers.pruning_measure.measure`.
        patterns: n:m, as text.
    """
    cases = []
    for model in dict.fromkeys(run["model"] for run in runs):
        chosen = [run for run in runs if run["model"] == model]
        for pattern in patterns:
            samples = [{**run["dense"], **run["patterns"][pattern]} for run in chosen]
            rows = {name: _row([sample[name] for sample in samples], samples) for name in samples[0]}
            dense = rows[DENSE]["accuracy"]["mean"]
            lost = dense - rows[BASELINE]["accuracy"]["mean"]
            for name, row in rows.items():
                share = None
                if name not in (DENSE, TRAINED_ON) and lost >= _LEAST_LOSS:
                    share = round(1 - (dense - row["accuracy"]["mean"]) / lost, 4)
                row["recovered"] = share
            cases.append(
                {
                    "model": model,
                    "pattern": pattern,
                    "weights": chosen[0]["weights"],
                    "seeds": [run["seed"] for run in chosen],
                    "rows": rows,
                }
            )
    return cases


def _row(measured: Sequence[dict[str, Any]], samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def over(other: str) -> list[float]:
        return [
            entry["accuracy"] - sample[other]["accuracy"]
            for entry, sample in zip(measured, samples, strict=True)
        ]

    return {
        "group": measured[0].get("group", "dense"),
        "accuracy": spread([entry["accuracy"] for entry in measured]),
        "over_dense": spread(over(DENSE)),
        "over_dense_trained_on": spread(over(TRAINED_ON)),
        "kept_magnitude": spread([entry["kept_magnitude"] for entry in measured]),
        "sparsity": spread([entry["sparsity"] for entry in measured]),
    }


if __name__ == "__main__":
    sys.exit(main())
