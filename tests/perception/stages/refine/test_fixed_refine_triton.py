"""The kernels of a fixed refinement step against the reference, and what only a GPU shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import run_script

from perception.config import PillarConfig, RefineConfig
from perception.geometry import BirdsEyeGrid
from perception.model.refine import RefineStage
from perception.stages.pillars import FixedPillars, fixed_pillars
from perception.stages.refine import PackedRefine, RefinedBoxes, RefineWorkspace, fixed_refine, pack_refine
from sparse_core.errors import ImplementationError

SCRIPT = Path(__file__).with_name("compare_refine.py")
UNBOUNDED = Path(__file__).with_name("compare_unbounded_refine.py")
#: Largest error relative to the largest number of a column.
ERRORS = {"float32": 2e-5, "float16": 3e-3, "bfloat16": 2e-2}
FACTS = ("labels", "finite", "repeats in any order", "workspace is clean", "turns", "absent are zero")

GRID = PillarConfig(range_m=(0.0, -5.12, -3.0, 10.24, 5.12, 3.0), pillar_size_m=0.32)


def check(report: dict[str, Any], *, interpreted: bool, cases: int) -> None:
    assert report["interpreted"] is interpreted
    assert len(report["cases"]) == cases
    for name, case in report["cases"].items():
        assert all(case[fact] for fact in FACTS), (name, case)
        assert case["error"] <= ERRORS[name.split()[0]], (name, case)
        assert case["changes boxes"] > 0.05, (name, case)


def test_interpreted_kernels_equal_the_reference(repository: Path) -> None:
    report = run_script(SCRIPT, repository, "cpu", "200", interpret=True)
    check(report, interpreted=True, cases=6)


@pytest.mark.gpu
def test_compiled_kernels_equal_the_reference(repository: Path, cuda: torch.device) -> None:
    report = run_script(SCRIPT, repository, str(cuda), "30000", interpret=False)
    check(report, interpreted=False, cases=9)


@pytest.mark.parametrize(
    ("device", "points"), [("cpu", 150), pytest.param("cuda", 6_000, marks=pytest.mark.gpu)]
)
def test_kernels_over_hashed_pillars_equal_the_reference(
    repository: Path, device: str, points: int, request: pytest.FixtureRequest
) -> None:
    if device == "cuda":
        request.getfixturevalue("cuda")
    report = run_script(UNBOUNDED, repository, device, str(points), interpret=device == "cpu")
    assert report["interpreted"] is (device == "cpu")
    for name, case in report["cases"].items():
        facts = ("labels", "finite", "repeats", "workspace is clean", "absent are zero")
        assert all(case[fact] for fact in facts), (name, case)
        assert case["error"] <= ERRORS[name.split()[0]], (name, case)
        assert case["changes boxes"] > 0.01, (name, case)


Scene = tuple[FixedPillars, torch.Tensor, torch.Tensor, torch.Tensor, PackedRefine]


def scene(device: torch.device) -> Scene:
    generator = torch.Generator().manual_seed(0)
    stage = RefineStage(RefineConfig(), classes=3, map_channels=96, grid=BirdsEyeGrid(GRID.range_m, 1.28))
    points = torch.rand(1, 20_000, 4, generator=generator) * torch.tensor([10.2, 10.2, 4.0, 1.0])
    points[..., :3] -= torch.tensor([0.0, 5.1, 2.0])
    boxes = torch.rand(1, 48, 7, generator=generator) * 4 + torch.tensor(
        [3.0, -2.0, -2.0, 1.0, 1.0, 1.0, 0.0]
    )
    labels = torch.randint(0, 3, (1, 48), generator=generator).int().to(device)
    features = torch.randn(64, 96, generator=generator).to(device, torch.float16)
    lengths = torch.tensor([20_000], dtype=torch.int32)
    pillars = fixed_pillars(points.to(device), lengths.to(device), GRID, 1024, impl="reference")
    return pillars, features, boxes.to(device), labels, pack_refine(stage.eval(), device=device)


def refine(of: Scene, workspace: RefineWorkspace) -> RefinedBoxes:
    return fixed_refine(*of, map_shape=(8, 8), pillar_size_m=GRID.pillar_size_m, workspace=workspace)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_replays_in_a_cuda_graph_without_waiting(cuda: torch.device) -> None:
    """With other boxes than when it was captured, and to the bit."""
    one = scene(cuda)
    workspace = RefineWorkspace.make(48, one[4])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        refine(one, workspace)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.graph(graph):
            found = refine(one, workspace)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    one[2].add_(0.1)
    one[3][:, ::3] = -1
    for _ in range(50):
        graph.replay()
        expected = refine(one, workspace)
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    assert bool((found.labels == -1).any())


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter takes CPU tensors")
def test_compiled_kernels_refuse_cpu_tensors() -> None:
    pytest.importorskip("triton")
    one = scene(torch.device("cpu"))
    with pytest.raises(ImplementationError, match=r"needs CUDA tensors, got cpu"):
        fixed_refine(*one, map_shape=(8, 8), pillar_size_m=GRID.pillar_size_m, impl="triton")


def test_without_triton_the_explicit_request_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    one = scene(torch.device("cpu"))
    monkeypatch.setattr("sparse_core.kernels.op.module_available", lambda name: False)
    with pytest.raises(ImplementationError, match="needs triton, which is not installed"):
        fixed_refine(*one, map_shape=(8, 8), pillar_size_m=GRID.pillar_size_m, impl="triton")
