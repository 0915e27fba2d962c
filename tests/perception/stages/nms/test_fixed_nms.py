"""Rotated NMS with fixed shapes keeps what exact suppression keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from triton_scripts import run_script

from perception.nms import rotated_nms
from perception.stages.nms import fixed_nms
from perception.stages.nms.reference import survivors
from sparse_core.errors import ImplementationError

SCRIPT = Path(__file__).parent / "compare_nms.py"
MANY = Path(__file__).parent / "compare_many_nms.py"


def check(report: dict[str, Any]) -> None:
    overflown = report.pop("many, overflow")
    wrong = [name for name, case in report.items() if not case["same"] or case["overflow"]]
    assert not wrong
    assert overflown["same"]
    assert overflown["overflow"] > 0
    assert report["chain"]["kept"] > 1
    assert report["few, all absent"]["kept"] == 0
    assert [name for name, case in report.items() if not case["repeated"]] == []


@pytest.mark.gpu
def test_compiled(repository: Path, cuda: torch.device) -> None:
    report = run_script(SCRIPT, repository, "--everything", interpret=False)
    check(report)
    assert report["4096"]["kept"] > 300


def check_many(report: dict[str, Any]) -> None:
    wrong = {name: case for name, case in report.items() if not case["same"] or case["overflow"]}
    assert not wrong
    assert [name for name, case in report.items() if not case["repeated"]] == []
    assert [name for name, case in report.items() if case["kept"] == 0] == []


@pytest.mark.parametrize(
    ("script", "arguments", "count"),
    [
        (SCRIPT, (), 14),
        (MANY, (), 6),
        pytest.param(SCRIPT, ("--everything",), 20, marks=pytest.mark.slow),
        pytest.param(MANY, ("--everything",), 21, marks=pytest.mark.slow),
    ],
)
def test_interpreted(script: Path, arguments: tuple[str, ...], count: int, repository: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("the kernels are compiled here")
    report = run_script(script, repository, *arguments, interpret=True)
    assert len(report) == count
    (check if script == SCRIPT else check_many)(report)


@pytest.mark.gpu
def test_many_compiled(repository: Path, cuda: torch.device) -> None:
    report = run_script(MANY, repository, "--everything", interpret=False)
    assert len(report) == 31
    check_many(report)


def boxes(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(1, count, 7, generator=generator) * 8
    return drawn.clamp_min(0.5)


def test_reference_agrees_with_the_batchless_function() -> None:
    several = boxes(60)
    scores, labels = torch.rand(1, 60), torch.arange(60)[None] % 2
    kept = fixed_nms(several, scores, labels, iou_threshold=0.2, score_threshold=0.4, max_output=50)
    usable = (scores[0] >= 0.4).nonzero()[:, 0]
    expected = usable[rotated_nms(several[0, usable], scores[0, usable], 0.2, labels=labels[0, usable])]
    count = int(kept.counts[0])
    assert count == len(expected) > 3
    assert kept.indices[0, :count].tolist() == expected.tolist()
    assert kept.indices[0, count:].tolist() == [-1] * (50 - count)


@pytest.mark.parametrize(("frames", "count", "most"), [(0, 5, 3), (2, 0, 3), (2, 5, 0)])
def test_nothing_to_do(frames: int, count: int, most: int) -> None:
    labels = torch.zeros((frames, count), dtype=torch.int32)
    kept = fixed_nms(torch.ones(frames, count, 7), labels.float(), labels, iou_threshold=0.5, max_output=most)
    assert kept.indices.shape == (frames, most)
    assert (kept.indices == -1).all()
    assert kept.counts.tolist() == [0] * frames


def test_bad_arguments() -> None:
    several, scores = boxes(4), torch.zeros(1, 4)
    labels = torch.zeros((1, 4), dtype=torch.int32)
    with pytest.raises(ValueError, match=r"boxes must be \(B, K, 7\)"):
        fixed_nms(several[0], scores, labels, iou_threshold=0.5)
    with pytest.raises(ValueError, match="scores must be"):
        fixed_nms(several, scores[:, :3], labels, iou_threshold=0.5)
    with pytest.raises(TypeError, match="labels must be int32"):
        fixed_nms(several, scores, scores, iou_threshold=0.5)
    with pytest.raises(TypeError, match="boxes must be float32"):
        fixed_nms(several.half(), scores, labels, iou_threshold=0.5)
    with pytest.raises(ValueError, match="iou_threshold"):
        fixed_nms(several, scores, labels, iou_threshold=1.5)
    with pytest.raises(ValueError, match="metric"):
        fixed_nms(several, scores, labels, iou_threshold=0.5, metric="giou")  # type: ignore[arg-type]
    with pytest.raises(ImplementationError, match="vendor"):
        fixed_nms(several, scores, labels, iou_threshold=0.5, impl="vendor")


def test_triton_needs_a_gpu() -> None:
    pytest.importorskip("triton")
    labels = torch.zeros((1, 4), dtype=torch.int32)
    with pytest.raises(ImplementationError, match="CUDA"):
        fixed_nms(boxes(4), labels.float(), labels, iou_threshold=0.5, impl="triton")


@pytest.mark.parametrize("seed", range(4))
def test_what_exported_programs_keep_is_that_of_nms(seed: int) -> None:
    random = np.random.default_rng(seed)
    boxes = random.uniform([0, 0, -1, 1, 1, 1, -4], [9, 9, 1, 5, 3, 2, 4], (60, 7)).astype(np.float32)
    labels, usable = random.integers(0, 2, 60), random.random(60) < 0.8
    scores = np.linspace(1, 0, 60)
    rows = np.flatnonzero(usable)
    wanted = rows[rotated_nms(boxes[rows], scores[rows], 0.1, labels=labels[rows])]
    parts = (torch.from_numpy(part) for part in (boxes, labels, usable))
    kept = survivors(*parts, iou_threshold=0.1)
    np.testing.assert_array_equal(kept.nonzero()[:, 0], np.sort(wanted))
