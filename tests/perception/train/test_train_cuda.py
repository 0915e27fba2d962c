"""Training on GPUs: the same bits in every run, and two GPUs against one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from perception.config import TrainConfig, save_config
from perception.train.data.frames import TrainingFrame
from perception.train.trainer import Trainer

Street = Callable[[int], TrainingFrame]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_two_runs_are_the_same_to_the_bit(
    tiny_training: TrainConfig, street: Street, tmp_path: Path, precision: str
) -> None:
    config = replace(tiny_training, precision=precision, steps=20)
    frames = [street(number) for number in range(3)]
    states = []
    for name in ("first", "second"):
        made = Trainer(config, tmp_path / name, frames, device="cuda")
        made.run(show_progress=False)
        states.append(made.network.state_dict())
    differing = [name for name, value in states[0].items() if not torch.equal(value, states[1][name])]
    assert differing == []


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_compute_the_gradients_of_one(
    tiny_training: TrainConfig, kitti_folder: Path, tmp_path: Path
) -> None:
    save_config(replace(tiny_training, steps=1, learning_rate=1e-6), tmp_path / "one_step.yaml")
    command = [
        "-m",
        "perception.cli",
        "train",
        "one_step.yaml",
        "--data",
        str(kitti_folder),
        "--device",
        "cuda",
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29631"]
    for name, start in (("one", []), ("two", launcher)):
        arguments = [sys.executable, *start, *command, "--out", name]
        subprocess.run(arguments, cwd=tmp_path, env=environment, check=True, timeout=300)
    states = [torch.load(tmp_path / name / "checkpoint.pt", map_location="cpu") for name in ("one", "two")]
    # After one step the first moments are a tenth of the gradients, up to the clipping they share.
    moments = [state["optimizer"]["state"] for state in states]
    largest = max(float(value["exp_avg"].abs().max()) for value in moments[0].values())
    for number, value in moments[0].items():
        other = moments[1][number]["exp_avg"]
        torch.testing.assert_close(other, value["exp_avg"], rtol=2e-2, atol=1e-3 * largest)
