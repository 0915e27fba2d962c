"""Tune one model for two tasks, merge both by task vectors, and compare their accuracy.

    python demos/merge_models.py --out out/merge_models

A small network is briefly trained on scikit-learn's digits. One copy is tuned on the digits 0 to 4, another
on 5 to 9, and each forgets the other digits. A table compares their merges.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from sparse_core.common.commands import reported_file_errors
from sparse_core.merging import TaskVector, merge, save_task_vector

TASKS = {"0-4": range(5), "5-9": range(5, 10)}
MERGES: dict[str, dict[str, Any]] = {
    "average": {"weight": 0.5},
    "task arithmetic": {"weight": 0.8},
    "TIES": {"method": "ties", "weight": 1.0, "density": 0.5},
    "DARE-TIES": {"method": "dare_ties", "weight": 0.8, "density": 0.8},
    "breadcrumbs": {"method": "breadcrumbs", "weight": 0.8, "density": 0.85},
}


class Part:
    """Images (N, 64) of some digits with their labels, split in halves for training and testing."""

    def __init__(self, digits: range) -> None:
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise SystemExit(
                "merge_models: the digits need scikit-learn; run pip install scikit-learn"
            ) from error
        data = load_digits()
        labels = torch.tensor(data.target)
        images = torch.tensor(data.data, dtype=torch.float32) / 16
        chosen = torch.isin(labels, torch.tensor(list(digits)))
        # Split before selecting, so that no training image of one task is a test image of another.
        even = torch.arange(len(labels)) % 2 == 0
        self.train, self.test = ((images[chosen & half], labels[chosen & half]) for half in (even, ~even))


def fit(model: nn.Module, data: tuple[Tensor, Tensor], steps: int, rate: float) -> None:
    """Train in place on all images at once."""
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    """Return the share of right labels."""
    return float((model(data[0]).argmax(1) == data[1]).float().mean())


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/merge_models"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the results as JSON and nothing else")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    # One thread is fastest for such a small network.
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    parts = {name: Part(digits) for name, digits in TASKS.items()}
    every = Part(range(10))
    base = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    fit(base, every.train, 15, 3e-3)
    tuned: dict[str, nn.Module] = {}
    for name in track(parts, "tuning", console=Console(stderr=True), disable=options.json, transient=True):
        tuned[name] = copy.deepcopy(base)
        fit(tuned[name], parts[name].train, 60, 1e-3)
    vectors = {name: TaskVector.between(base, model) for name, model in tuned.items()}
    rows: dict[str, dict[str, float]] = {}

    def add(name: str, model: nn.Module) -> None:
        rows[name] = {**{task: accuracy(model, part.test) for task, part in parts.items()}}
        rows[name]["all"] = accuracy(model, every.test)

    add("base", base)
    for name, model in tuned.items():
        add(f"tuned on {name}", model)
    merged = copy.deepcopy(base)
    for name, options_of_merge in MERGES.items():
        merged.load_state_dict(merge(base, list(vectors.values()), **options_of_merge))
        add(name, merged)
    trimmed = save_task_vector(vectors["0-4"].trim(0.1), options.out / "task-0-4.safetensors")
    report: dict[str, Any] = {
        "accuracy": rows,
        "task_vector_bytes": trimmed.nbytes,
        "dense_bytes": trimmed.dense_float32,
    }
    if options.json:
        print(json.dumps(report))
        return
    table = Table("", "digits 0-4", "digits 5-9", "all", box=None, pad_edge=False)
    for name, row in rows.items():
        table.add_row(name, *(f"{100 * row[key]:.1f} %" for key in ("0-4", "5-9", "all")))
    Console().print(table)
    print(
        f"task vector at 10 % density: {trimmed.nbytes:,} bytes, dense in float32 {trimmed.dense_float32:,}"
    )


if __name__ == "__main__":
    with reported_file_errors("merge_models"):
        main()
