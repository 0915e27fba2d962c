"""Two processes on a CPU against one: the same losses, gradients and weights up to rounding."""

from __future__ import annotations

import csv
import multiprocessing
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from perception.cli import main
from perception.config import TrainConfig, save_config
from perception.errors import ConfigError
from perception.train.data.frames import TrainingFrame
from perception.train.ranks import ALONE, Ranks, is_first_rank, ranks_of_environment
from perception.train.synchronised_norm import SynchronisedNorm, synchronise_norms
from perception.train.trainer import Trainer

Street = Callable[[int], TrainingFrame]
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def together(work: Callable[[int], Any], folder: Path) -> list[Any]:
    """What two processes, forked as torchrun would start them, return for their rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(rank: int) -> None:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        torch.save(work(rank), folder / f"rank{rank}.pt")

    started = [multiprocessing.get_context("fork").Process(target=run, args=(rank,)) for rank in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join(300)
    assert [process.exitcode for process in started] == [0, 0]
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize(
    ("shape", "parts"),
    [((7, 3), (7, 0)), ((7, 3), (6, 1)), ((4, 3, 5, 2), (1, 3)), ((2, 3), (1, 1))],
)
def test_norms_look_at_the_rows_of_both(
    shape: tuple[int, ...], parts: tuple[int, int], tmp_path: Path
) -> None:
    torch.manual_seed(len(shape) + parts[1])
    rows, slope = torch.randn(shape) * 3 + 1, torch.randn(shape)
    whole = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(3, momentum=0.2)
    nn.init.normal_(whole.weight)

    def run(norm: nn.Module, given: torch.Tensor, own: slice) -> tuple[torch.Tensor, torch.Tensor]:
        wanted = given[own].clone().requires_grad_()
        found = norm(wanted)
        found.backward(slope[own])
        return found.detach(), wanted.grad

    def work(rank: int) -> tuple[torch.Tensor, ...]:
        with ranks_of_environment("cpu") as ranks:
            norm = SynchronisedNorm(whole, ranks)
            result = run(norm, rows, slice(sum(parts[:rank]), sum(parts[: rank + 1])))
            learning = [norm.weight, norm.bias]
            ranks.sum_gradients(learning, torch.zeros(1))
            return (*result, *(value.grad for value in learning), norm.running_mean, norm.running_var)

    found = together(work, tmp_path)
    values, gradients = run(whole, rows, slice(None))
    torch.testing.assert_close(torch.cat([part[0] for part in found]), values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.cat([part[1] for part in found]), gradients, rtol=1e-4, atol=1e-5)
    kept = (whole.weight.grad, whole.bias.grad, whole.running_mean, whole.running_var)
    for part in found:
        torch.testing.assert_close(part[2:], kept, rtol=1e-5, atol=1e-5)


def test_a_lone_row_and_evaluation_take_the_running_statistics() -> None:
    norm = nn.BatchNorm2d(3)
    nn.init.uniform_(norm.running_var)
    shared = SynchronisedNorm(norm, ALONE)
    lone, maps = torch.randn(1, 3), torch.randn(2, 3, 4, 4)
    expected = norm.eval()(lone[..., None, None])[..., 0, 0]
    torch.testing.assert_close(shared(lone), expected)
    assert shared(lone[:0]).shape == (0, 3)
    torch.testing.assert_close(shared.eval()(maps), norm(maps))


def test_what_ranks_exchange(tmp_path: Path) -> None:
    def work(rank: int) -> tuple[Any, ...]:
        with ranks_of_environment("cpu") as ranks:
            unused, used = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
            if rank == 1:
                used.grad = torch.tensor([1.0, 2.0])
            sums = ranks.sum_gradients([unused, used], torch.tensor([1.0 + rank]))
            flags = ranks.any(rank == 1), ranks.any(False)
            first = torch.full((2,), float(rank))
            ranks.share([first])
            return tuple(ranks.place(3 + rank)), unused.grad, used.grad.tolist(), sums.item(), flags, first[0]

    found = together(work, tmp_path)
    assert [part[0] for part in found] == [(0, 7), (3, 7)]
    assert [part[1:] for part in found] == [(None, [1.0, 2.0], 3.0, (True, False), 0.0)] * 2


def test_two_processes_compute_the_gradients_of_one(
    tiny_training: TrainConfig, street: Street, tmp_path: Path
) -> None:
    config = replace(tiny_training, steps=4, learning_rate=1e-6)
    frames = [street(number) for number in range(3)]

    def steps(folder: str, ranks: Ranks) -> dict[str, Any]:
        made = Trainer(config, tmp_path / folder, frames, ranks=ranks)
        losses = []
        for batch in made._batches():
            losses.append({name: float(value) for name, value in made.train_step(batch).items()})
            made.step += 1
        gradients = {name: value.grad for name, value in made.network.named_parameters()}
        return {"losses": losses, "gradients": gradients, "state": made.network.state_dict()}

    def work(rank: int) -> dict[str, Any]:
        with ranks_of_environment("cpu") as ranks:
            return steps("two", ranks)

    found, alone = together(work, tmp_path), steps("one", ALONE)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    assert found[0]["losses"] == [pytest.approx(values, rel=1e-3) for values in alone["losses"]]
    largest = max(float(value.abs().max()) for value in alone["gradients"].values())
    for name, value in alone["gradients"].items():
        torch.testing.assert_close(
            found[0]["gradients"][name], value, rtol=1e-2, atol=1e-4 * largest, msg=name
        )
    torch.testing.assert_close(found[0]["state"], alone["state"], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_run_of_two_processes_stops_and_goes_on(
    tiny_training: TrainConfig, kitti_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_config(replace(tiny_training, steps=10), tmp_path / "short.yaml")
    command = ["train", str(tmp_path / "short.yaml"), "--data", str(kitti_folder), "--out"]

    def work(folder: str, *more: str) -> Callable[[int], int]:
        return lambda rank: main([*command, str(tmp_path / folder), *more])

    assert together(work("two", "--max-seconds", "0"), tmp_path) == [0, 0]
    stopped = torch.load(tmp_path / "two/checkpoint.pt")
    assert stopped["step"] == 1
    assert together(work("two"), tmp_path) == [0, 0]
    assert together(work("straight"), tmp_path) == [0, 0]
    states = [torch.load(tmp_path / name / "checkpoint.pt") for name in ("two", "straight")]
    torch.testing.assert_close(states[0]["average"], states[1]["average"], rtol=0, atol=0)
    with (tmp_path / "two/log.csv").open(newline="") as stream:
        assert [row["step"] for row in csv.DictReader(stream)] == ["10"]
    # A run of two goes on alone.
    save_config(replace(tiny_training, steps=10), tmp_path / "short.yaml")
    assert main([*command, str(tmp_path / "two")]) == 0


def test_one_process_is_left_as_it_is(tiny_training: TrainConfig, street: Street, tmp_path: Path) -> None:
    with ranks_of_environment("cpu") as ranks:
        assert ranks == ALONE
    assert is_first_rank()
    made = Trainer(tiny_training, tmp_path, [street(0)])
    assert not any(isinstance(part, SynchronisedNorm) for part in made.network.modules())
    network = nn.Sequential(nn.BatchNorm1d(2))
    synchronise_norms(network, ALONE)
    assert type(network[0]) is nn.BatchNorm1d
    assert ALONE.place(5) == (0, 5)
    assert not ALONE.any(False)


def test_a_batch_that_cannot_be_shared(tiny_training: TrainConfig, street: Street, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size 2 is not a multiple"):
        Trainer(tiny_training, tmp_path, [street(0)], ranks=Ranks(0, 3))
