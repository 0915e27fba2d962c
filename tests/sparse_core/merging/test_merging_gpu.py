"""Merging on a GPU: the CPU's results, the same bits every time, and swaps under a captured graph."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sparse_core.merging.api import merge
from sparse_core.merging.files.vector_files import load_task_vector, save_task_vector
from sparse_core.merging.task_vector import TaskVector

pytestmark = pytest.mark.gpu

METHODS = ["linear", "task_arithmetic", "ties", "dare", "dare_ties", "breadcrumbs", "breadcrumbs_ties"]


def _state(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (300, 700), "a.bias": (300,), "b.weight": (3, 5, 7), "scalar": ()}
    state = {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}
    # Many numbers of one size, so that thresholds have ties.
    state["b.weight"] = state["b.weight"].round()
    return {**state, "steps": torch.tensor(7)}


def _moved(state: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in state.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("method", METHODS)
def test_merges_equal_those_on_the_cpu(method: str, dtype: torch.dtype, cuda: torch.device) -> None:
    base, others = _state(0, dtype), [_state(seed, dtype) for seed in (1, 2, 3)]
    options = {} if method in ("linear", "task_arithmetic") else {"density": 0.3}
    ends = []
    for device in (torch.device("cpu"), cuda, cuda):
        before = _moved(base, device)
        vectors = [TaskVector.between(before, _moved(other, device)) for other in others]
        ends.append(merge(before, vectors, method, [0.5, 0.3, 0.4], seed=3, scale=0.9, **options))
    here, there, again = ends
    for name, value in here.items():
        assert there[name].device.type == cuda.type
        assert torch.equal(there[name], again[name]), name
        assert torch.allclose(there[name].cpu(), value, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5), name


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0])
def test_spherical_paths(t: float, cuda: torch.device) -> None:
    base, other = _state(0), _state(1)
    ends = []
    for device in (torch.device("cpu"), cuda, cuda):
        before = _moved(base, device)
        ends.append(merge(before, [TaskVector.between(before, _moved(other, device))], "slerp", t))
    for name, value in ends[0].items():
        assert torch.equal(ends[1][name], ends[2][name])
        assert torch.allclose(ends[1][name].cpu(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("density", [0.001, 0.2, 0.5, 0.97])
def test_trimming_keeps_the_same_numbers(density: float, cuda: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    deltas = {
        "smooth": torch.randn(400_000, generator=generator),
        "ties": torch.randint(-3, 4, (90_000,), generator=generator).float(),
        "half": torch.randn(30_000, generator=generator).bfloat16(),
    }
    here, there = TaskVector(deltas), TaskVector(_moved(deltas, cuda))
    pairs = [
        (here.trim(density), there.trim(density)),
        (here.dare(density, seed=5), there.dare(density, seed=5)),
        (here.breadcrumbs(density), there.breadcrumbs(density)),
    ]
    for a, b in pairs:
        for name in deltas:
            assert torch.equal(b.deltas[name].cpu(), a.deltas[name]), name


def test_numbers_that_are_not_finite_are_named(cuda: torch.device) -> None:
    base = _moved(_state(0), cuda)
    broken = {name: value.clone() for name, value in base.items() if value.is_floating_point()}
    broken["a.weight"][3, 5] = float("nan")
    with pytest.raises(ValueError, match=r"a\.weight"):
        merge(base, [broken], "ties", density=0.5)


@pytest.mark.parametrize("values", ["int4", "int8", "float16", "float32"])
def test_files_from_the_gpu_hold_the_same_bytes(values: str, cuda: torch.device, tmp_path: Path) -> None:
    vector = TaskVector.between(_state(0), _state(1)).trim(0.1)
    there = TaskVector(_moved(vector.deltas, cuda))
    for name, made in (("here", vector), ("there", there)):
        save_task_vector(made, tmp_path / name, values=values)  # type: ignore[arg-type]
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()
    back = load_task_vector(tmp_path / "there")
    if values == "float32":
        assert all(torch.equal(back.deltas[name], value) for name, value in vector.deltas.items())


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)).eval()


def _vectors(model: nn.Module) -> dict[str, TaskVector]:
    base = model.state_dict()
    made = {}
    for name in ("grasp", "carry"):
        tuned = {key: value + 0.1 * torch.randn_like(value) for key, value in base.items()}
        made[name] = TaskVector.between(base, tuned)
    return made
