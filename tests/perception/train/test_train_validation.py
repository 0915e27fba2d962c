"""Evaluation while training keeps the best weights, also of resumed runs."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from own_scene import describe_folder
from safetensors.torch import load_file

import perception.train.run as run_module
from perception.config import TrainConfig
from perception.errors import DataError
from perception.train.run import TrainOutcome, train
from perception.train.trainer import Trainer
from perception.train.validation import BestWeights, Evaluated

SCORES = {2: 10.0, 4: 30.0, 6: 20.0}


@pytest.fixture
def own(tiny_training: TrainConfig, tmp_path: Path) -> tuple[TrainConfig, Path]:
    detector = tiny_training.detector.with_classes(["pallet", "forklift"])
    folder = describe_folder(tmp_path, scans={"path": "scans", "sensor_height_m": 1.7})
    return replace(tiny_training, detector=detector, validate_every=2), folder


def run(own: tuple[TrainConfig, Path], directory: Path, config: TrainConfig | None = None) -> TrainOutcome:
    return train(config or own[0], own[1], directory, show_progress=False, check=False)


def rows(directory: Path) -> list[tuple[int, float]]:
    with (directory / "validation.csv").open(newline="") as stream:
        return [(int(row["step"]), float(row["mean_ap"])) for row in csv.DictReader(stream)]


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, torch.Tensor]]:
    """Six steps are too few for an AP above zero, so scores are given; returns the weights by step."""
    seen: dict[int, dict[str, torch.Tensor]] = {}
    real = run_module._evaluate_step

    def evaluate_step(trainer: Trainer, *rest: object) -> None:
        def evaluate(network: torch.nn.Module, *arguments: object) -> object:
            seen[trainer.step] = {name: value.clone() for name, value in network.state_dict().items()}
            return type("Result", (), {"mean_ap": SCORES[trainer.step], "to_dict": dict})()

        with monkeypatch.context() as patch:
            patch.setattr(run_module, "_evaluate", evaluate)
            real(trainer, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(run_module, "_evaluate_step", evaluate_step)
    return seen


def test_the_best_weights_are_kept(
    own: tuple[TrainConfig, Path], tmp_path: Path, scored: dict[int, dict[str, torch.Tensor]]
) -> None:
    outcome = run(own, tmp_path / "run")
    assert rows(tmp_path / "run") == sorted(SCORES.items())
    assert "kept the weights of step 4, the best of 3" in outcome.remarks
    kept = load_file(tmp_path / "run/weights.safetensors")
    name = "head.heat.weight"
    half = {step: state[name].half().float() for step, state in scored.items()}
    assert torch.equal(kept[name].float(), half[4])
    assert not torch.equal(half[4], half[6])
    assert outcome.metrics is not None


def test_evaluations_do_not_change_the_training(own: tuple[TrainConfig, Path], tmp_path: Path) -> None:
    states = []
    for every in (0, 2):
        run(own, tmp_path / str(every), replace(own[0], validate_every=every))
        states.append(torch.load(tmp_path / str(every) / "checkpoint.pt", weights_only=True)["average"])
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert [step for step, _ in rows(tmp_path / "2")] == [2, 4, 6]
    assert not (tmp_path / "0/validation.csv").exists()


def test_a_resumed_run_evaluates_where_it_stopped(
    own: tuple[TrainConfig, Path], tmp_path: Path, scored: dict[int, dict[str, torch.Tensor]]
) -> None:
    """The time was up after step 1, 2, ...: each call makes one step."""
    calls, finished = 0, False
    while not finished:
        outcome = train(*own, tmp_path / "run", show_progress=False, check=False, max_seconds=0)
        calls, finished = calls + 1, outcome.finished
    assert calls == 6
    assert rows(tmp_path / "run") == [(step, SCORES[step]) for step in (2, 4, 6)]
    whole = run(own, tmp_path / "whole")
    assert whole.finished
    one, other = (load_file(tmp_path / name / "weights.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_damaged_validation_frames_do_not_end_the_training(
    own: tuple[TrainConfig, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> object:
        raise DataError("scan 7 is damaged")

    monkeypatch.setattr(run_module, "_evaluate", damaged)
    outcome = run(own, tmp_path / "run")
    assert outcome.finished
    assert outcome.metrics is None
    assert all(math.isnan(score) for _, score in rows(tmp_path / "run"))
    assert (tmp_path / "run/weights.safetensors").is_file()


def test_scores_of_later_steps_are_dropped(tmp_path: Path) -> None:
    """A run whose checkpoint was deleted starts again."""
    best = BestWeights(tmp_path, 0)
    for step, score in ((2, np.nan), (4, 30.0), (6, 30.0)):
        weights = tmp_path / "evaluated.safetensors"
        weights.write_text(str(step))
        assert best.add(Evaluated(step, score), weights) == (step == 4)
        assert not weights.exists()
    assert best.path.read_text() == "4"
    assert [row.step for row in BestWeights(tmp_path, 4).evaluated] == [2, 4]
    assert BestWeights(tmp_path, 0).best is None
