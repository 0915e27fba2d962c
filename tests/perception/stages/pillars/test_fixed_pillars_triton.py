"""Kernels from points to pillar features, interpreted and compiled, against plain torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from pillar_frames import encoded
from triton_scripts import compare_both_ways, interpreted_and_compiled

from perception.config import PillarConfig
from perception.model.encoder import PillarEncoder
from perception.stages.pillars import EncoderWeights, PillarWorkspace, fixed_pillars
from sparse_core.errors import ImplementationError

SCRIPT = Path(__file__).with_name("compare_pillars.py")
AGREEMENTS = (
    *("cells", "counts", "sums", "offsets", "invalid", "points", "cleared"),
    *("permuted", "repeated", "kept sums", "sums cleared"),
)


def check(report: dict[str, Any], *, interpreted: bool) -> None:
    assert len(report["cases"]) == (9 if interpreted else 10)
    for name, case in report["cases"].items():
        assert all(case[fact] for fact in AGREEMENTS), (name, case)
        assert case["difference float32"] < 2e-6, (name, case)
        assert case["difference float16"] < 1e-3, (name, case)
        assert case["several tiles"] == (name == "fine"), name
        assert (case["left out"] > 0) == (name == "overflow"), name
        assert (case["rows"] > 0) == (name != "no point"), name


@interpreted_and_compiled
def test_kernels_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret, sizes=(24, 6000))
    check(report, interpreted=interpret)


@pytest.mark.gpu
@pytest.mark.parametrize(("count", "capacity"), [(20_000, 9000), (200_000, 100_000)])
def test_a_captured_frame_repeats_to_the_bit(cuda: torch.device, count: int, capacity: int) -> None:
    pytest.importorskip("triton")
    config = PillarConfig()
    low, high = torch.tensor([*config.range_m[:3], 0.0]), torch.tensor([*config.range_m[3:], 1.0])
    points = (low + torch.rand((1, count, 4)) ** 2 * (high - low)).to(cuda)
    lengths = torch.tensor([count - 1000], dtype=torch.int32, device=cuda)
    weights = EncoderWeights.from_encoder(PillarEncoder(config).eval(), device=cuda)
    workspace = PillarWorkspace.make(config, 1, device=cuda)
    out = torch.zeros((capacity, 64), dtype=torch.float16, device=cuda)

    def frame() -> None:
        options = {"workspace": workspace, "dtype": out.dtype, "out": out}
        encoded(points, lengths, config, capacity, weights, **options)

    frame()
    torch.cuda.synchronize()
    first = out.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        frame()
    for _ in range(20):
        out.zero_()
        points[0, :19_000] = points[0, torch.randperm(19_000, device=cuda)]
        graph.replay()
        assert torch.equal(out, first)
    assert first.any()


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter takes CPU tensors")
def test_compiled_kernels_refuse_cpu_tensors() -> None:
    pytest.importorskip("triton")
    lengths = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ImplementationError, match=r"needs CUDA tensors, got cpu"):
        fixed_pillars(torch.zeros(1, 4, 4), lengths, PillarConfig(), 5, impl="triton")
