"""Means and spreads of the study of sparse training, and its tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.layers.dynamic_rows import LABELS, Row
from benchmarks.lib.results import spread

#: Metric of each task, and its decimals.
MEASURES = {
    "digits-mlp": ("accuracy", "accuracy, %"),
    "digits-convnet": ("accuracy", "accuracy, %"),
    "text-transformer": ("bits", "bits a character"),
}


def summarise(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A case for every task and row, over the seeds.

    Args:
        runs: records of :func:`benchmarks.layers.dynamic_training.train`.

    Returns:
        Task, fields of the row, ``label``, ``seeds``, ``measures`` (mean, standard deviation, n and values of
        each), ``parameters``, ``density``, ``cost`` and ``steps``.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run["task"], *(run[name] for name in Row._fields)), []).append(run)
    cases = []
    for (task, *fields), members in groups.items():
        row = Row(*fields)
        first = members[0]
        samples = [_measures(member) for member in members]
        cases.append(
            {
                "task": task,
                **row._asdict(),
                "label": row.label,
                "seeds": [member["seed"] for member in members],
                "measures": {name: spread([sample[name] for sample in samples]) for name in samples[0]},
                "parameters": first["parameters"],
                "density": round(first["density"], 4),
                "cost": round(statistics.fmean(member["cost"] for member in members), 4),
                "steps": first["steps"],
            }
        )
    order = list(LABELS)
    tasks = list(MEASURES)
    return sorted(
        cases,
        key=lambda case: (
            tasks.index(case["task"]),
            case["length"],
            case["sparsity"],
            order.index((case["method"], case["structure"])),
        ),
    )


def _measures(run: dict[str, Any]) -> dict[str, float]:
    return {name: run[name] for name in ("accuracy", "bits", "loss") if name in run}


def score_text(case: dict[str, Any], measure: str | None = None) -> str:
    """Mean and spread of what the task is judged by; shares in per cent."""
    name = measure or MEASURES[case["task"]][0]
    found = case["measures"][name]
    scale, digits = (100, 1) if name == "accuracy" else (1, 1 if name.startswith("ap") else 3)
    mean = f"{scale * found['mean']:.{digits}f}"
    return mean if found["std"] is None else f"{mean} ± {scale * found['std']:.{digits}f}"
