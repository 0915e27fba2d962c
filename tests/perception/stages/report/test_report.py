"""What is reported of boxes: scores, order, headings, footprints, and where it lies in the block."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from perception.boxes import wrap_angle
from perception.config import DetectorConfig, HeadConfig, NmsConfig
from perception.stages.report import Reported, ReportLayout, ReportRules, fixed_report
from perception.stages.report.reference import with_sizes
from sparse_core.common.libraries import module_available
from sparse_core.errors import ImplementationError
from sparse_core.kernels.op import interpreted

CONFIG = DetectorConfig(
    head=HeadConfig(classes=("Car", "Pedestrian", "Cyclist")),
    nms=NmsConfig(
        score_maps={"Car": (0.5, -1.0)},
        footprints_m={"Pedestrian": (0.8, 0.6)},
        size_offsets_m={"Pedestrian": (1.0, 1.0, 0.2), "Cyclist": (0.4, 0.3, -0.1)},
    ),
)
RULES = ReportRules.of(CONFIG)


def frame(most: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Two frames of boxes with headings far out, the second with nothing."""
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.rand((2, most, 7), generator=generator) * 40 - 20
    boxes[..., 3:6] = boxes[..., 3:6].abs() / 4 + 1
    scores = torch.rand((2, most), generator=generator)
    labels = torch.randint(0, 3, (2, most), generator=generator).int()
    labels[0, most - most // 3 :] = -1
    labels[1] = -1
    counts = (labels >= 0).sum(1).int()
    return boxes, scores, labels, counts, torch.arange(5).int(), torch.rand((2, most, 4), generator=generator)


def reported(given: tuple[Tensor, ...], impl: str = "reference") -> Reported:
    words = fixed_report(*given, RULES, impl=impl)  # type: ignore[arg-type]
    layout = ReportLayout(2, given[0].shape[1], 5, 4)
    assert words.shape == (layout.words,)
    return layout.views(words.cpu().numpy())


@pytest.mark.parametrize("most", [1, 7, 64, 65, 200])
def test_boxes_are_those_of_numpy(most: int) -> None:
    boxes, scores, labels, counts, numbers, vectors = given = frame(most)
    found = reported(given)
    assert found.counts.tolist() == counts.tolist()
    assert found.numbers.tolist() == numbers.tolist()
    count = int(counts[0])
    kinds = labels[0, :count].numpy()
    share = scores[0, :count].double().numpy()
    logit = 0.5 * np.log(share / (1 - share)) - 1.0
    wanted = np.where(kinds == 0, 1 / (1 + np.exp(-logit)), share)
    order = np.argsort(-wanted.astype(np.float32), kind="stable")
    np.testing.assert_allclose(found.scores[0, :count], wanted[order], rtol=1e-6)
    assert found.labels[0, :count].tolist() == kinds[order].tolist()
    rows = boxes[0].numpy()[order]
    drives, walks = kinds[order] == 0, kinds[order] == 1
    np.testing.assert_array_equal(found.boxes[0, :count, :6][drives], rows[:, :6][drives])
    np.testing.assert_array_equal(found.boxes[0, :count, 6], wrap_angle(rows[:, 6]))
    np.testing.assert_allclose(found.boxes[0, :count, 5][walks], rows[:, 5][walks] + 0.2, rtol=1e-6)
    np.testing.assert_array_equal(
        found.boxes[0, :count, 3:5][walks], np.tile(np.float32([0.8, 0.6]), (walks.sum(), 1))
    )
    np.testing.assert_array_equal(found.embeddings[0, :count], vectors[0].numpy()[order])
    assert (found.labels[1] == -1).all()


def one_box(*box: float, kind: int = 2) -> np.ndarray:
    """Return a box of a kind as it is reported."""
    given = torch.tensor([box, box], dtype=torch.float32)[:, None]
    labels = torch.full((2, 1), kind, dtype=torch.int32)
    counts, numbers = torch.ones(2, dtype=torch.int32), torch.arange(5).int()
    return reported((given, torch.full((2, 1), 0.5), labels, counts, numbers, torch.zeros(2, 1, 4))).boxes[
        0, 0
    ]


@pytest.mark.parametrize("bearing", [0.0, 0.7, math.pi, -2.0])
@pytest.mark.parametrize("turned", [0.0, math.pi])
def test_a_box_grows_away_from_the_sensor(bearing: float, turned: float) -> None:
    """The near end, both sides' mean and the bottom stay, wherever the box points."""
    towards = np.array([math.cos(bearing), math.sin(bearing)])
    yaw = bearing + turned
    found = one_box(*(20 * towards), -1.0, 2.0, 1.0, 1.6, yaw)
    near = found[:2] - towards * found[3] / 2
    np.testing.assert_allclose(near, towards * 19.0, atol=1e-5)
    np.testing.assert_allclose(found[3:6], [2.4, 1.3, 1.5], rtol=1e-6)
    assert found[2] - found[5] / 2 == pytest.approx(-1.8, abs=1e-6)


def test_a_box_beside_the_sensor_grows_to_both_ends() -> None:
    found = one_box(0.0, 10.0, 0.0, 4.0, 2.0, 1.6, 0.0)
    np.testing.assert_allclose(found[:2], [0.0, 10.0], atol=1e-6)
    nearly = one_box(1.0, 10.0, 0.0, 4.0, 2.0, 1.6, 0.0)
    np.testing.assert_allclose(nearly[:2], [1.1, 10.0], atol=1e-6)


def test_a_box_keeps_half_of_its_size() -> None:
    """Offsets that were fitted to people do not turn small boxes inside out."""
    rules = ReportRules.of(replace(CONFIG, nms=NmsConfig(size_offsets_m={"Cyclist": (-3.0, -3.0, -3.0)})))
    found = with_sizes(torch.tensor([[20.0, 0, 0, 2, 1, 1.6, 0]]), torch.tensor([2]), rules)
    np.testing.assert_allclose(found[0, :6].numpy(), [19.5, 0, -0.4, 1.0, 0.5, 0.8], rtol=1e-6)


def test_boxes_of_one_score_stay_in_their_order() -> None:
    boxes, scores, labels, *rest = frame(40)
    scores[:] = 0.5
    found = reported((boxes, scores, torch.ones_like(labels), *rest))
    np.testing.assert_array_equal(found.boxes[..., 0], boxes[..., 0].numpy())


def test_the_ends_of_scores_and_headings() -> None:
    boxes, scores, labels, *rest = frame(6)
    labels[:] = torch.tensor([0, 0, 0, 2, 2, 2])
    scores[:] = torch.tensor([0.0, 1.0, 0.5, 0.0, 1.0, 0.5])
    boxes[..., 6] = torch.tensor([math.pi, -math.pi, 3 * math.pi, -3 * math.pi, 1e6, 0.0])
    found = reported((boxes, scores, labels, *rest))
    assert np.isfinite(found.scores).all()
    assert ((found.boxes[..., 6] > -np.float32(math.pi)) & (found.boxes[..., 6] <= np.float32(math.pi))).all()


@pytest.mark.parametrize("most", [0, 1, 9, 64, 130])
@pytest.mark.gpu
def test_the_kernel_reports_the_same(most: int, cuda: torch.device) -> None:
    given = frame(most, seed=most)
    wanted = reported(given)
    on_device = tuple(part.to(cuda) for part in given)
    rules = ReportRules(RULES.table.to(cuda))
    words = fixed_report(*on_device, rules)  # type: ignore[arg-type]
    again = fixed_report(*on_device, rules)  # type: ignore[arg-type]
    assert torch.equal(words, again)
    found = ReportLayout(2, most, 5, 4).views(words.cpu().numpy())
    count = int(given[3][0]) if most else 0
    for mine, theirs in zip(found[2:], wanted[2:], strict=True):
        # Sine and cosine differ in the last bit.
        np.testing.assert_allclose(mine[0, :count], theirs[0, :count], rtol=2e-7, atol=1e-7)


def test_what_does_not_fit_is_refused() -> None:
    boxes, scores, labels, counts, numbers, vectors = frame(4)
    with pytest.raises(ValueError, match=r"boxes must be \(B, M, 7\)"):
        fixed_report(boxes[..., :6], scores, labels, counts, numbers, vectors, RULES)
    with pytest.raises(ValueError, match=r"labels must be \(2, 4\), got \(2, 3\)"):
        fixed_report(boxes, scores, labels[:, :3], counts, numbers, vectors, RULES)
    with pytest.raises(ValueError, match=r"embeddings must be \(2, 4, E\)"):
        fixed_report(boxes, scores, labels, counts, numbers, vectors[:, 0], RULES)
    with pytest.raises(TypeError, match="boxes and scores must be float32"):
        fixed_report(boxes.double(), scores, labels, counts, numbers, vectors, RULES)
    with pytest.raises(TypeError, match="labels, counts and numbers must be int32"):
        fixed_report(boxes, scores, labels.long(), counts, numbers, vectors, RULES)
    if not (module_available("triton") and interpreted()):
        with pytest.raises(ImplementationError):
            fixed_report(boxes, scores, labels, counts, numbers, vectors, RULES, impl="triton")
