"""The study of pruning runs, its arithmetic holds, and it goes on where it was interrupted."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("sklearn")
ROOT = Path(__file__).resolve().parents[3]


def test_every_row_is_measured_summed_up_and_drawn(load: Any, tmp_path: Path) -> None:
    out = tmp_path / "accuracy.json"
    arguments = ["--quick", "--models", "convnet", "--patterns", "2:8", "--steps", "6", "--threads", "1"]
    assert load("layers.pruning_accuracy").main([*arguments, "--out", str(out)]) == 0
    values = json.loads(out.read_text())
    assert values["benchmark"] == "pruning-accuracy"
    assert str(ROOT) not in out.read_text()
    (case,) = values["cases"]
    rows = case["rows"]
    assert {row["group"] for row in rows.values()} == {"dense", "one-shot", "trained on"}
    for name, row in rows.items():
        accuracies = row["accuracy"]["values"]
        assert len(accuracies) == 2
        assert row["accuracy"]["mean"] == pytest.approx(statistics.fmean(accuracies), abs=1e-5)
        assert row["accuracy"]["std"] == pytest.approx(statistics.stdev(accuracies), abs=1e-5)
        over = [
            mine - dense for mine, dense in zip(accuracies, rows["dense"]["accuracy"]["values"], strict=True)
        ]
        assert row["over_dense"]["values"] == pytest.approx(over, abs=1e-5)
        sparsity = row["sparsity"]["mean"]
        assert sparsity == 0 if row["group"] == "dense" else sparsity >= 0.74, name
    assert rows["magnitude"]["recovered"] in (0, None)
    # No other n:m choice keeps more of the same network.
    kept = {name: row["kept_magnitude"]["mean"] for name, row in rows.items()}
    assert kept["permuted"] >= kept["magnitude"] > max(kept["Wanda"], kept["gradient"], kept["SparseGPT"])
    assert kept["dense"] == 1
    drawn = out.with_suffix(".png").read_bytes()
    assert len(drawn) > 4_000
    assert {path.name for path in tmp_path.iterdir()} == {"accuracy.json", "accuracy.png"}


def test_finished_networks_are_not_measured_again(load: Any, tmp_path: Path) -> None:
    bench, rows = load("layers.pruning_accuracy"), load("layers.pruning_rows")
    partial = tmp_path / "x.partial.json"
    tasks = [rows.Task("convnet", seed, (), "cpu", 4, 3e-3, 2, 1e-3, "validation") for seed in (0, 1)]

    def run(tasks: Any) -> Any:
        return bench._run(tasks, partial, processes=1, device=torch.device("cpu"))

    (first,), notes = run(tasks[:1])
    assert notes == []
    saved = json.loads(partial.read_text())
    (entry,) = saved.values()
    assert entry["run"] == first
    entry["run"]["seed"], entry["source_sha256"] = 1234, "of other sources"
    partial.write_text(json.dumps(saved))
    found, notes = run(tasks)
    assert [run["seed"] for run in found] == [1234, 1]
    assert notes == ["1 networks were measured before the sources changed"]
    # Another setting is another task.
    found, _ = run([tasks[0]._replace(steps=3)])
    assert found[0]["seed"] == 0


@pytest.mark.slow
def test_results_do_not_depend_on_the_process(load: Any) -> None:
    measure, rows = load("layers.pruning_measure").measure, load("layers.pruning_rows")
    tasks = [rows.Task("transformer", seed, (), "cpu", 4, 3e-3, 2, 1e-3, "test") for seed in (0, 1)]
    run_each = load("lib.processes").run_each
    alone, beside = ({task.seed: run for task, run in run_each(measure, tasks, count)} for count in (1, 2))
    assert alone == beside


def test_the_share_that_is_won_back(load: Any) -> None:
    def run(dense: float, magnitude: float, trained: float) -> dict[str, Any]:
        def entry(accuracy: float, **more: Any) -> dict[str, Any]:
            return {"accuracy": accuracy, "kept_magnitude": 0.7, "sparsity": 0.5, **more}

        return {
            "model": "convnet",
            "seed": 0,
            "weights": {},
            "dense": {"dense": entry(dense), "dense, trained on": entry(dense)},
            "patterns": {
                "2:4": {
                    "magnitude": entry(magnitude, group="one-shot"),
                    "SR-STE": entry(trained, group="trained on"),
                }
            },
        }

    summarise = load("layers.pruning_accuracy").summarise
    (case,) = summarise([run(0.9, 0.5, 0.8), run(1.0, 0.6, 0.7)], ["2:4"])
    # Of 0.4 lost, 0.2 is lost still.
    assert case["rows"]["SR-STE"]["recovered"] == pytest.approx(0.5)
    assert case["rows"]["magnitude"]["recovered"] == 0
    assert case["rows"]["dense"]["recovered"] is None
    assert case["rows"]["SR-STE"]["over_dense"]["std"] == pytest.approx(0.1 * 2**0.5, abs=1e-6)
    (case,) = summarise([run(0.9, 0.895, 0.9)], ["2:4"])
    assert case["rows"]["SR-STE"]["recovered"] is None
    assert case["rows"]["SR-STE"]["accuracy"]["std"] is None


def test_a_mask_that_does_not_hold_is_found(load: Any) -> None:
    rows, models, pattern = (
        load("layers.pruning_rows"),
        load("layers.pruning_models"),
        load("layers.pruning_rows").NMPattern(2, 4),
    )
    check = load("layers.pruning_measure").check
    torch.manual_seed(0)
    model = models.build("transformer")
    report = rows.prune(model, pattern, select="expand")
    pruned = rows.Pruned(model, report.masks, pattern, model)
    check(pruned)
    name, mask = next(iter(report.masks.items()))
    weight = model.get_submodule(name).weight
    dropped = tuple((~mask).nonzero()[0].tolist())
    with torch.no_grad():
        weight[dropped] = 0.5
    with pytest.raises(ValueError, match="is not 2:4"):
        check(pruned)
    with torch.no_grad():
        weight[dropped] = 0.0
    with pytest.raises(ValueError, match="is not 2:4"):
        check(pruned._replace(masks={name: torch.ones_like(mask)}))
