"""Centre head: codes, peaks and patches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from perception.config import HeadConfig
from perception.geometry import BirdsEyeGrid
from perception.model.head import CentreHead, _patches


def make_head(top_k: int = 10, channels: int = 6) -> CentreHead:
    torch.manual_seed(0)
    config = HeadConfig(top_k=top_k, channels=channels)
    return CentreHead(config, in_channels=4, grid=BirdsEyeGrid((2.0, -4.0, -3.0, 80.0, 40.0, 1.0), 0.5))


def cells_and_boxes(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randint(0, 16, (count, 3), generator=generator)
    labels = torch.randint(0, 3, (count,), generator=generator)
    boxes = torch.rand(count, 7, generator=generator) * torch.tensor([12, 8, 4, 5, 2, 2, 6.28])
    boxes[:, 3:6] += 0.6
    boxes[:, 6] -= math.pi
    return cells, labels, boxes


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_decode_inverts_encode(seed: int) -> None:
    head = make_head()
    cells, labels, boxes = cells_and_boxes(9, seed)
    torch.testing.assert_close(
        head.decode(head.encode(boxes, cells, labels), cells, labels), boxes, atol=1e-4, rtol=1e-4
    )


def test_code_of_a_box_at_the_middle_of_a_cell() -> None:
    head = make_head()
    box = torch.tensor([[2.0 + 3.5 * 0.5, -4.0 + 1.5 * 0.5, -1.0, 3.9, 1.6, 1.56, math.pi / 2]])
    code = head.encode(box, torch.tensor([[0, 1, 3]]), torch.tensor([0]))
    torch.testing.assert_close(code, torch.tensor([[0, 0, -1.0, 0, 0, 0, 1, 0]]), atol=1e-6, rtol=0)


def heat_with(peaks: dict[tuple[int, int, int, int], float], batch: int = 2) -> Tensor:
    logits = torch.full((batch, 3, 8, 9), -9.0)
    for (frame, label, iy, ix), score in peaks.items():
        logits[frame, label, iy, ix] = torch.logit(torch.tensor(score))
    return logits


def test_proposals_are_the_peaks_best_first() -> None:
    head = make_head(top_k=3)
    peaks = {
        (0, 0, 2, 3): 0.9,
        (0, 0, 2, 4): 0.8,  # beside a higher one of its class: no peak
        (0, 1, 2, 4): 0.7,  # the same cell, another class
        (0, 2, 7, 8): 0.6,
        (1, 2, 0, 0): 0.5,
    }
    proposals = head.propose(torch.randn(2, 4, 8, 9), heat_with(peaks))
    torch.testing.assert_close(proposals.scores[0], torch.tensor([0.9, 0.7, 0.6]))
    assert proposals.labels[0].tolist() == [0, 1, 2]
    assert proposals.labels[1, 0] == 2
    assert proposals.boxes.shape == (2, 3, 7)


def test_a_box_is_read_at_its_own_cell_and_frame() -> None:
    head = make_head(top_k=2)
    features = torch.randn(2, 4, 8, 9, generator=torch.Generator().manual_seed(1))
    proposals = head.propose(features, heat_with({(0, 1, 5, 6): 0.9, (1, 2, 1, 0): 0.8}))
    for frame, label, iy, ix in ((0, 1, 5, 6), (1, 2, 1, 0)):
        cell = torch.tensor([[frame, iy, ix]])
        code = head.box_codes(features, cell, torch.tensor([label]))
        torch.testing.assert_close(
            proposals.boxes[frame, 0], head.decode(code, cell, torch.tensor([label]))[0]
        )


@pytest.mark.parametrize("top_k", [1, 50, 10_000])
def test_scores_do_not_rise_whatever_top_k(top_k: int) -> None:
    head = make_head(top_k=top_k)
    logits = torch.randn(3, 3, 8, 9, generator=torch.Generator().manual_seed(0))
    proposals = head.propose(torch.randn(3, 4, 8, 9), logits)
    assert proposals.scores.shape == (3, min(top_k, 3 * 8 * 9))
    assert (proposals.scores.diff(dim=1) <= 0).all()
    assert proposals.boxes.isfinite().all()
    assert (proposals.boxes[..., 3:6] > 0).all()


def test_patches_are_those_of_unfold_with_zeros_outside() -> None:
    features = torch.randn(2, 4, 5, 6)
    cells = torch.cartesian_prod(torch.arange(2), torch.arange(5), torch.arange(6))
    windows = F.unfold(features, 3, padding=1).view(2, 4, 9, 30)
    expected = windows.permute(0, 3, 2, 1).reshape(60, 36)
    assert torch.equal(_patches(features, cells), expected)


def test_no_cell() -> None:
    codes = make_head().box_codes(
        torch.randn(1, 4, 8, 9), torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    )
    assert codes.shape == (0, 8)
