"""Quality of merged models: small networks tuned for two tasks, and every way to make one of them.

    python -m benchmarks.merging.merging_quality

Pairs of tasks: two halves of the classes of scikit-learn's digits, from a base trained on all classes and
from a nearly untrained base; rotated and inverted digits; and two texts that come with Python. For several
seeds a base is trained, tuned for each task, and merged by every method. Settings are chosen on validation
data; figures come from test data. The table also shows the base, the tuned models, and the base trained on
both tasks together for as many steps as both tuned models had. Nothing is
timed: the result depends on no device.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show, spread, write
from benchmarks.merging.tasks import PAIRS, Pair, Trained
from benchmarks.publish.screen import tables
from sparse_core.merging import TaskVector, loss_along_path, merge

_WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: Method of the library, and what is tried on the validation data.
GRIDS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "average": ("task_arithmetic", [{"weight": 0.5}]),
    "SLERP": ("slerp", [{"weight": place} for place in (0.3, 0.4, 0.5, 0.6, 0.7)]),
    "task arithmetic": ("task_arithmetic", [{"weight": weight} for weight in _WEIGHTS]),
    "TIES": (
        "ties",
        [{"weight": 1.0, "density": d, "scale": s} for d in (0.2, 0.5, 0.8) for s in (0.5, 0.7, 1.0, 1.3)],
    ),
    "DARE-TIES": (
        "dare_ties",
        [{"density": d, "weight": w} for d in (0.5, 0.8, 0.95) for w in (0.4, 0.6, 0.8, 1.0)],
    ),
    "breadcrumbs": (
        "breadcrumbs",
        [{"density": d, "weight": w} for d in (0.5, 0.85) for w in (0.4, 0.6, 0.8, 1.0)],
    ),
}
_NOTES = [
    "settings of each merge are chosen, for every seed, by the mean of both tasks on validation data; figures"
    " are means and standard deviations over seeds on test data.",
    "joint training: the base trained on both tasks together for as many steps as both tuned models had.",
    "barrier: how far the loss on both tasks rises above the line between both tuned models.",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "merging_quality", quick="short trainings: the numbers mean nothing")
    parser.add_argument("--pairs", nargs="+", choices=tuple(PAIRS), default=list(PAIRS))
    parser.add_argument("--seeds", type=int, help="trainings of each pair (5; 2 with --quick)")
    parser.add_argument("--keep", action="store_true", help="keep other pairs that the result file holds")
    options = parse(parser, arguments)
    if options.device != "cpu":
        parser.error("--device cuda: these networks are too small for a GPU")
    device = torch.device("cpu")
    configure(device, options.threads)
    options.seeds = options.seeds or (2 if options.quick else 5)
    settings = asked(options, "keep")
    pairs: dict[str, Any] = {}
    if options.keep and options.out.is_file():
        pairs = json.loads(options.out.read_text(encoding="utf-8"))["pairs"]
    values: dict[str, Any] = {}
    with Progress(console=Console(stderr=True), disable=options.json) as bar:
        task = bar.add_task("quality", total=len(options.pairs) * options.seeds)
        for name in options.pairs:
            runs = []
            for seed in range(options.seed, options.seed + options.seeds):
                runs.append(_run(PAIRS[name], seed, options))
                bar.advance(task)
            pairs[name] = _summary(PAIRS[name], runs)
            pairs = {key: pairs[key] for key in PAIRS if key in pairs}
            # After each pair, so that an interrupted run leaves what it has.
            values = result("merging_quality", device, settings, pairs=pairs, notes=_NOTES)
            write(values, options.out)
    save(values, options)
    show(values, tables(values, "merging-quality"), _NOTES, as_json=options.json)
    return 0


def _run(pair: Pair, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One base, its tuned models, and the merges with the settings that validation chooses."""
    trained = pair.train(seed, options.quick)
    scored = copy.deepcopy(trained.base)

    def scores(state: dict[str, Tensor], part: str) -> dict[str, float]:
        scored.load_state_dict(state)
        found = trained.scores(scored, part)
        return {**found, "both": statistics.fmean(found.values())}

    names = ("base", *(f"tuned for {task}" for task in pair.tasks), "joint training")
    models = (trained.base, *trained.tuned, trained.joint)
    rows = {name: scores(model.state_dict(), "test") for name, model in zip(names, models, strict=True)}
    chosen: dict[str, dict[str, Any]] = {}
    for name, (_, grid) in GRIDS.items():
        merges = [_merged(trained, name, choice, seed) for choice in grid]
        found = [scores(state, "validation")["both"] for state in merges]
        best = found.index((max if pair.larger_is_better else min)(found))
        chosen[name] = grid[best]
        rows[name] = scores(merges[best], "test")
    with torch.no_grad():
        path = loss_along_path(trained.base, *trained.tuned, trained.loss)
    return {"rows": rows, "settings": chosen, "barrier": path.barrier}


def _merged(trained: Trained, name: str, choice: dict[str, Any], seed: int) -> dict[str, Tensor]:
    method = GRIDS[name][0]
    if method == "slerp":
        # From the first tuned model along the sphere towards the second.
        first, second = trained.tuned
        return merge(first, [TaskVector.between(first, second)], "slerp", **choice)
    vectors = [TaskVector.between(trained.base, model) for model in trained.tuned]
    return merge(trained.base, vectors, method, seed=seed, **choice)


def _summary(pair: Pair, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "tasks": list(pair.tasks),
        "unit": pair.unit,
        "larger_is_better": pair.larger_is_better,
        "rows": {
            name: {part: spread([run["rows"][name][part] for run in runs]) for part in (*pair.tasks, "both")}
            for name in runs[0]["rows"]
        },
        "settings": {name: [run["settings"][name] for run in runs] for name in GRIDS},
        "barrier": spread([run["barrier"] for run in runs]),
    }


if __name__ == "__main__":
    sys.exit(main())
