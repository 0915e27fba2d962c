"""``perceive bench``: sides in turn on this machine."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from perception.checkpoints.weights import save_weights
from perception.comparison import Side, compare
from perception.comparison.sides import DENSE, SPARSE, SPCONV
from perception.config import DetectorConfig
from perception.registry import make_network

Perceive = Callable[..., Any]
CPU = torch.device("cpu")


@pytest.fixture
def dense_weights(tiny_config: DetectorConfig, tmp_path: Path) -> Path:
    config = replace(tiny_config, backbone=replace(tiny_config.backbone, kind="dense"))
    path = tmp_path / "dense.safetensors"
    save_weights(make_network(config), path)
    return path


def test_the_table_has_every_side_and_stage(
    perceive: Perceive, scans: Path, tiny_weights: Path, dense_weights: Path
) -> None:
    options = ("--weights", tiny_weights, "--dense-weights", dense_weights, "--rounds", 2, "--batch", 2)
    done = perceive("bench", scans, *options, "--threads", 1)
    assert done.status == 0
    assert "3 scans, recorded" in done.output
    assert "1 thread," in done.output
    for word in (
        SPARSE,
        "dense baseline",
        "99th percentile",
        "frames/s in a batch",
        "backbone",
        "refine",
        "sum",
    ):
        assert word in done.output
    assert "memory MB" not in done.output


def test_json_has_the_same_numbers(
    perceive: Perceive, scans: Path, tiny_weights: Path, dense_weights: Path
) -> None:
    options = ("--weights", tiny_weights, "--dense-weights", dense_weights, "--rounds", 2, "--frames", 2)
    done = perceive("bench", scans, *options, "--json")
    assert done.status == 0
    record = json.loads(done.output)
    sides = {side["name"]: side for side in record["sides"]}
    assert {SPARSE, DENSE} <= set(sides) | set(record["left_out"])
    assert set(record["left_out"]) <= {SPCONV}
    assert (record["frames"], record["rounds"], record["scans"]) == (2, 2, "recorded")
    for side in sides.values():
        assert 0 < side["p50_ms"] <= side["p99_ms"]
        assert side["frames_measured"] == 4
        # Two scans are too few for a batch of eight.
        assert (side["batch_size"], side["batch_frames_per_s"], side["memory_mb"]) == (0, None, None)
    assert sides[SPARSE]["times_sparse"] == 1.0
    assert set(record["stages_ms"]) >= {"pillars", "encoder", "backbone", "neck", "NMS"}


def test_a_side_that_cannot_run_is_told(perceive: Perceive, scans: Path, tiny_weights: Path) -> None:
    options = ("--weights", tiny_weights, "--dense-weights", scans / "none.safetensors", "--rounds", 1)
    done = perceive("bench", scans, *options)
    assert done.status == 0
    assert "dense baseline left out: CheckpointError" in done.remarks
    assert "dense baseline" not in done.output


@pytest.mark.parametrize("option", ["--frames", "--rounds", "--batch", "--threads"])
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_counts_must_be_whole(perceive: Perceive, option: str, value: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        perceive("bench", f"{option}={value}")
    assert stopped.value.code == 2
    assert f"must be a whole number of at least 1, got '{value}'" in capsys.readouterr().err


def test_missing_scans_are_an_error(perceive: Perceive, tmp_path: Path) -> None:
    done = perceive("bench", tmp_path / "nothing.bin")
    assert done.status == 2
    assert "nothing.bin" in done.remarks


def working(turns: int) -> Callable[[], Callable[[Sequence[Tensor]], Callable[[], object]]]:
    """A side that multiplies so many times a point."""

    def ready(clouds: Sequence[Tensor]) -> Callable[[], object]:
        sizes = [len(cloud) for cloud in clouds]
        return lambda: [torch.ones(size, size) @ torch.ones(size, size) for size in sizes * turns]

    return lambda: ready


def test_times_are_compared_frame_by_frame() -> None:
    clouds = [torch.zeros(size, 4) for size in (150, 200, 250)]
    steps = []
    found = compare(
        [Side(SPARSE, working(1)), Side(DENSE, working(20)), Side(SPCONV, working(3), slow=True)],
        clouds,
        CPU,
        rounds=12,
        batch_size=2,
        on_step=lambda: steps.append(1),
    )
    sparse, dense, slow = found.sides
    assert len(steps) == 3 + 3 + 1
    assert (len(sparse.frame_ms), len(dense.frame_ms), len(slow.frame_ms)) == (36, 36, 6)
    assert (len(sparse.batch_ms), len(slow.batch_ms), sparse.batch_size) == (12, 2, 2)
    pairs = zip(dense.frame_ms, sparse.frame_ms, strict=True)
    assert found.times_sparse(dense) == pytest.approx(statistics.median(one / other for one, other in pairs))
    assert found.times_sparse(sparse) == 1.0
    assert sparse.batch_frames_per_s is not None
    assert found.to_dict()["sides"][2]["times_sparse"] == pytest.approx(slow.p50_ms / sparse.p50_ms)


def test_without_the_sparse_side_there_is_nothing_to_compare() -> None:
    def broken() -> Any:
        raise RuntimeError("no weights")

    with pytest.raises(RuntimeError, match="no weights"):
        compare([Side(SPARSE, broken)], [torch.zeros(3, 4)], CPU, rounds=1, batch_size=1)
    found = compare(
        [Side(SPARSE, working(1)), Side(DENSE, broken)], [torch.zeros(3, 4)], CPU, rounds=1, batch_size=1
    )
    assert found.left_out == {DENSE: "RuntimeError: no weights"}
    assert [side.name for side in found.sides] == [SPARSE]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, in its compiler
def test_graphs_on_a_gpu(perceive: Perceive, scans: Path, cuda: torch.device) -> None:
    options = ("--rounds", 3, "--batch", 2, "--device", "cuda", "--json")
    done = perceive("bench", scans, *options)
    assert done.status == 0, done
    record = json.loads(done.output)
    (sparse,) = [side for side in record["sides"] if side["name"] == SPARSE]
    assert sparse["memory_mb"] > 0
    assert sparse["batch_frames_per_s"] > 0
