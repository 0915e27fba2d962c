"""The loop: resumable bit for bit, and what it leaves behind."""

from __future__ import annotations

import csv
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from perception.checkpoints.weights import load_weights
from perception.config import TrainConfig, load_config
from perception.errors import CheckpointError, DataError
from perception.train.curves import plot_curves
from perception.train.data.batches import Batch
from perception.train.data.frames import TrainingFrame
from perception.train.run import train
from perception.train.trainer import Trainer
from sparse_core.common.interruption import Interrupted

Street = Callable[[int], TrainingFrame]


def trainer(config: TrainConfig, directory: Path, street: Street) -> Trainer:
    return Trainer(config, directory, [street(number) for number in range(3)])


def state(made: Trainer) -> dict[str, torch.Tensor]:
    network = {f"network.{name}": value for name, value in made.network.state_dict().items()}
    return network | {f"average.{name}": value for name, value in made.average.items()}


def test_stopping_and_going_on_changes_no_bit(
    tiny_training: TrainConfig, street: Street, tmp_path: Path
) -> None:
    config = replace(tiny_training, steps=4)
    straight = trainer(config, tmp_path / "straight", street)
    assert straight.run(show_progress=False)
    for step in range(2):
        stopped = trainer(config, tmp_path / "stopped", street)
        assert stopped.step == step
        assert not stopped.run(max_seconds=0.0, show_progress=False)
    resumed = trainer(config, tmp_path / "stopped", street)
    assert resumed.step == 2
    assert resumed.run(show_progress=False)
    assert resumed.step == straight.step == 4
    first, second = state(straight), state(resumed)
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    rates = [made.schedule.get_last_lr() for made in (straight, resumed)]
    assert rates[0] == rates[1]
    # A finished run has nothing left to do.
    again = trainer(config, tmp_path / "stopped", street)
    assert again.run(show_progress=False)
    assert all(torch.equal(value, second[name]) for name, value in state(again).items())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step_with_a_checkpoint(
    number: signal.Signals, tiny_training: TrainConfig, street: Street, tmp_path: Path
) -> None:
    """Long before the first of ``checkpoint_every`` steps, and to the same bits."""

    class Signalled(Trainer):
        def train_step(self, batch: Batch) -> dict[str, torch.Tensor | float]:
            if self.step == 1:
                signal.raise_signal(number)
            return super().train_step(batch)

    before = signal.getsignal(number)
    stopped = Signalled(tiny_training, tmp_path, [street(number) for number in range(3)])
    with pytest.raises(Interrupted, match=r"interrupted at step 2 of 6, saved in .*to resume") as raised:
        stopped.run(show_progress=False)
    assert raised.value.exit_status == 128 + number
    assert signal.getsignal(number) is before
    resumed = trainer(tiny_training, tmp_path, street)
    assert resumed.step == 2
    assert state(resumed).keys() == state(stopped).keys()
    assert all(torch.equal(value, state(stopped)[name]) for name, value in state(resumed).items())


def test_workers_survive_a_signal_to_the_whole_group(
    tiny_training: TrainConfig, street: Street, tmp_path: Path
) -> None:
    """Ctrl-C reaches the processes that prepare frames as well."""
    config = replace(tiny_training, workers=1)

    class Signalled(Trainer):
        def train_step(self, batch: Batch) -> dict[str, torch.Tensor | float]:
            for worker in multiprocessing.active_children():
                for number in (signal.SIGINT, signal.SIGTERM):
                    os.kill(int(worker.pid or 0), number)
            return super().train_step(batch)

    assert Signalled(config, tmp_path, [street(number) for number in range(3)]).run(show_progress=False)


def test_another_seed_is_another_run(tiny_training: TrainConfig, street: Street, tmp_path: Path) -> None:
    runs = []
    for seed in (1, 1, 2):
        made = trainer(replace(tiny_training, seed=seed, steps=1), tmp_path / str(len(runs)), street)
        made.run(show_progress=False)
        runs.append(made.network.head.heat.weight)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.usefixtures("drawn_curves")
def test_what_a_run_leaves_behind(tiny_training: TrainConfig, street: Street, tmp_path: Path) -> None:
    made = trainer(replace(tiny_training, steps=20, batch_size=1), tmp_path, street)
    made.run(show_progress=False)
    assert load_config(TrainConfig, tmp_path / "config.yaml") == made.config
    with (tmp_path / "log.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["step"]) for row in rows] == [10, 20]
    assert all(float(row["total"]) > 0 and float(row["learning_rate"]) > 0 for row in rows)
    picture = imread(tmp_path / "curves.png")
    assert picture.shape[0] > 300
    assert np.ptp(picture[..., :3]) > 0.5
    assert not list(tmp_path.glob("*.tmp"))


def test_the_log_forgets_steps_after_the_checkpoint(
    tiny_training: TrainConfig, street: Street, tmp_path: Path
) -> None:
    config = replace(tiny_training, steps=20, batch_size=1)
    first = trainer(config, tmp_path, street)
    first.step = 18
    first.save_checkpoint()
    (tmp_path / "log.csv").write_text("step,total\n10,3.5\n19,1.0\n")
    trainer(config, tmp_path, street).run(show_progress=False)
    with (tmp_path / "log.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["step"] for row in rows] == ["10", "20"]
    assert rows[0]["total"] == "3.5"


def test_curves_of_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,total\n")
    assert plot_curves(tmp_path / "log.csv", tmp_path / "curves.png").stat().st_size > 1000


def test_a_checkpoint_of_another_configuration(
    tiny_training: TrainConfig, street: Street, tmp_path: Path
) -> None:
    trainer(tiny_training, tmp_path, street).save_checkpoint()
    for change in ({"seed": 9}, {"steps": 7}, {"detector": replace(tiny_training.detector, name="other")}):
        with pytest.raises(CheckpointError, match=rf"checkpoint\.pt: .*another '{next(iter(change))}'"):
            trainer(replace(tiny_training, **change), tmp_path, street)
    # How the work is done may change.
    assert trainer(replace(tiny_training, workers=3, checkpoint_every=1), tmp_path, street).step == 0


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


def fill_with_text(path: Path) -> None:
    path.write_text("not a checkpoint")


def store_something_else(path: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, path)


def store_a_tensor(path: Path) -> None:
    torch.save(torch.zeros(3), path)


def lose_a_part(path: Path) -> None:
    stored = torch.load(path, weights_only=True)
    del stored["network"]["head.heat.bias"], stored["schedule"]
    torch.save(stored, path)


@pytest.mark.parametrize("damage", [cut, fill_with_text, store_something_else, store_a_tensor, lose_a_part])
def test_a_damaged_checkpoint(
    tiny_training: TrainConfig, street: Street, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    trainer(tiny_training, tmp_path, street).save_checkpoint()
    damage(tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: damaged"):
        trainer(tiny_training, tmp_path, street)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(tiny_training: TrainConfig, street: Street, tmp_path: Path, precision: str) -> None:
    made = trainer(replace(tiny_training, steps=2, precision=precision), tmp_path, street)
    before = {name: value.clone() for name, value in made.network.state_dict().items()}
    assert made.run(show_progress=False)
    assert all(value.isfinite().all() for value in made.network.state_dict().values())
    if precision == "bfloat16":  # float16 may skip its first steps until the loss scale fits
        assert not torch.equal(before["head.heat.weight"], made.network.head.heat.weight)
    assert trainer(made.config, tmp_path, street).step == 2


def test_the_average_follows_the_weights(tiny_training: TrainConfig, street: Street, tmp_path: Path) -> None:
    made = trainer(replace(tiny_training, average_decay=0.0), tmp_path, street)
    made.run(show_progress=False)
    averaged = made.averaged_network()
    assert not averaged.training
    for name, value in made.network.state_dict().items():
        assert torch.allclose(averaged.state_dict()[name], value)


def test_nothing_to_train_on(
    tiny_training: TrainConfig, without_objects: TrainingFrame, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="split is empty"):
        Trainer(tiny_training, tmp_path, [])
    with pytest.raises(DataError, match="no training frame contains Car, Pedestrian"):
        Trainer(tiny_training, tmp_path, [without_objects])


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_without_cuda(tiny_training: TrainConfig, street: Street, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no CUDA device"):
        Trainer(tiny_training, tmp_path, [street(0)], device="cuda")


def test_a_loss_that_is_not_finite_stops_the_run(
    tiny_training: TrainConfig, street: Street, tmp_path: Path
) -> None:
    made = trainer(tiny_training, tmp_path, street)
    torch.nn.init.constant_(made.network.head.heat.weight, torch.inf)
    with pytest.raises(FloatingPointError, match="step 0"):
        made.run(show_progress=False)


def test_a_whole_training(tiny_training: TrainConfig, kitti_folder: Path, tmp_path: Path) -> None:
    config = replace(tiny_training, steps=3)
    stopped = train(config, kitti_folder, tmp_path, max_seconds=0.0, show_progress=False)
    assert (stopped.step, stopped.finished, stopped.metrics) == (1, False, None)
    assert load_weights(tmp_path / "weights.safetensors").config == config.detector
    so_far = (tmp_path / "weights.safetensors").read_bytes()
    outcome = train(config, kitti_folder, tmp_path, extra=[kitti_folder], show_progress=False)
    assert (outcome.step, outcome.finished, outcome.directory) == (3, True, tmp_path)
    assert (tmp_path / "weights.safetensors").read_bytes() != so_far
    assert outcome.metrics is not None
    assert load_weights(tmp_path / "weights.safetensors").config == config.detector
    assert [path.name for path in (tmp_path / "val").iterdir()] == ["000003.txt"]


def test_a_folder_without_val_is_trained_on_all_the_same(
    tiny_training: TrainConfig, kitti_folder: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(kitti_folder, tmp_path / "data")
    (tmp_path / "data/ImageSets/val.txt").unlink()
    outcome = train(replace(tiny_training, steps=1), tmp_path / "data", tmp_path / "run", show_progress=False)
    assert outcome.finished
    assert outcome.metrics is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_type_of_torch_does_not_matter(
    tiny_training: TrainConfig, street: Street, tmp_path: Path, dtype: torch.dtype
) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        made = trainer(tiny_training, tmp_path, street)
        made.run(max_seconds=0.0, show_progress=False)
    finally:
        torch.set_default_dtype(before)
    assert made.step == 1
    assert {value.dtype for value in made.network.parameters()} == {torch.float32}
