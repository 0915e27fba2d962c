"""Compare fixed-shape rotated NMS in Triton with the exact one; prints a JSON of the cases."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

import torch
from torch import Tensor

from perception.stages.nms import fixed_nms, fixed_suppress, many_triton

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") else "cuda"


def crowd(frames: int, count: int, seed: int, *, classes: int = 3, tied: bool = False) -> list[Tensor]:
    """Boxes around objects, as a detector proposes them."""
    generator = torch.Generator().manual_seed(seed)
    objects = torch.rand(frames, max(1, count // 8), 2, generator=generator) * math.sqrt(count) * 2
    own = torch.randint(0, objects.shape[1], (frames, count), generator=generator)
    centre = objects.gather(1, own[..., None].expand(-1, -1, 2))
    centre = centre + 0.4 * torch.randn(frames, count, 2, generator=generator)
    size = torch.tensor([3.9, 1.6, 1.5]) * (0.8 + 0.4 * torch.rand(frames, count, 3, generator=generator))
    height, yaw = (
        torch.randn(frames, count, 1, generator=generator),
        torch.rand(frames, count, 1, generator=generator) * 6.3,
    )
    scores = torch.rand(frames, count, generator=generator)
    if tied:
        scores = (scores * 4).floor() / 4
    labels = torch.randint(0, classes, (frames, count), generator=generator, dtype=torch.int32)
    return [torch.cat([centre, height, size, yaw], 2), scores, labels]


def take_larger_programs() -> None:
    """The interpreter takes as long for a program as for its numbers; no result depends on the cut."""
    if DEVICE == "cpu":
        many_triton._LOOKING, many_triton._PAIRS = 8, 128
        many_triton._DECIDED, many_triton._RANK_ROWS = 32, 32


def case(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    *,
    iou: float = 0.3,
    score: float = 0.0,
    most: int | None = None,
    metric: Any = "bev",
    room: int = 16,
) -> dict[str, Any]:
    """Whether both keep the same boxes in the same order, in every frame, and on a GPU twice."""
    given = [part.to(DEVICE) for part in (boxes, scores, labels)]
    options: dict[str, Any] = {
        "iou_threshold": iou,
        "score_threshold": score,
        "max_output": most,
        "metric": metric,
        "pairs_a_box": room,
    }
    ours = fixed_nms(*given, **options, impl="triton")
    # The interpreter runs one program after the other.
    again = fixed_nms(*given, **options, impl="triton") if DEVICE == "cuda" else ours
    exact = fixed_nms(boxes, scores, labels, **options, impl="reference")
    same = all(torch.equal(a.cpu(), b) for a, b in zip(ours[:2], exact[:2], strict=True))
    repeated = all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
    return {
        "same": same,
        "repeated": repeated,
        "kept": int(exact.counts.sum()),
        "overflow": int(ours.overflow.sum()),
    }


def suppress_case(boxes: Tensor, scores: Tensor, labels: Tensor, *, weight: float) -> dict[str, Any]:
    """The same with scores joined and boxes given back."""
    generator = torch.Generator().manual_seed(9)
    fit = torch.randn(scores.shape, generator=generator) if weight else None
    options: dict[str, Any] = {
        "iou_threshold": 0.2,
        "score_threshold": 0.3,
        "max_output": 25,
        "fit_weight": weight,
    }
    exact = fixed_suppress(boxes, scores, labels, **options, fit_logits=fit, impl="reference")
    ours = fixed_suppress(
        *(part.to(DEVICE) for part in (boxes, scores, labels)),
        **options,
        fit_logits=None if fit is None else fit.to(DEVICE),
        impl="triton",
    )
    same = torch.equal(ours.labels.cpu(), exact.labels) and torch.equal(ours.counts.cpu(), exact.counts)
    same = same and torch.equal(ours.boxes.cpu(), exact.boxes)
    same = same and torch.allclose(ours.scores.cpu(), exact.scores, rtol=2e-6, atol=0)
    return {"same": same, "repeated": True, "kept": int(exact.counts.sum()), "overflow": 0}


def report(*, everything: bool) -> dict[str, Any]:
    """All cases, or those that take the interpreter seconds."""
    one = torch.tensor([[[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.3]]])
    size = 100 if DEVICE == "cuda" else 40
    few, crowded = crowd(2, size, 0), crowd(1, 150, 1)
    chain = torch.zeros(1, 24, 7)
    chain[0, :, 0] = torch.arange(24) * 2.0
    chain[0, :, 3:6] = torch.tensor([4.0, 2.0, 1.0])
    falling = torch.linspace(1, 0.5, 24)[None]
    long_chain = torch.zeros(1, 140, 7)
    long_chain[0, :, 0] = torch.arange(140) * 2.0
    long_chain[0, :, 3:6] = torch.tensor([4.0, 2.0, 1.0])
    zeros = torch.zeros(1, 24, dtype=torch.int32)
    absent = [part.clone() for part in few]
    absent[2][:, ::3] = -1
    absent[0][0, 1, 0], absent[1][0, 4], absent[0][1, 7, 3] = math.nan, math.nan, -1.0
    touching = torch.zeros(1, 4, 7)
    touching[0, :, 3:6] = 2.0
    touching[0, 1, 0], touching[0, 2, 1], touching[0, 3, 0] = 2.0, 2.0, 1.9999
    same = torch.ones(1, 140, 7)
    later: dict[str, Any] = {
        "one": lambda: case(one, torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int32)),
        "few": lambda: case(*few),
        "few, ties": lambda: case(*crowd(1, 40, 3, tied=True), iou=0.1),
        "few, at most": lambda: case(*few, most=7, score=0.2),
        "few, 3d": lambda: case(*few, metric="3d"),
        "few, absent": lambda: case(*absent),
        "few, all absent": lambda: case(few[0], few[1], few[2] * 0 - 1),
        "few, double": lambda: case(few[0].double(), few[1].double(), few[2].long()),
        "chain": lambda: case(chain, falling, zeros, iou=0.2),
        "touching": lambda: case(touching, torch.tensor([[0.9, 0.8, 0.7, 0.6]]), zeros[:, :4], iou=0.0),
        "far": lambda: case(few[0] + torch.tensor([5e6, -3e6, 0, 0, 0, 0, 0]), few[1], few[2]),
        "suppress": lambda: suppress_case(*few, weight=0.0),
        "suppress, joined": lambda: suppress_case(*few, weight=0.5),
        "suppress, other weight": lambda: suppress_case(*few, weight=0.3),
        "many": lambda: case(*crowded),
        "many, ties": lambda: case(*crowd(1, 130, 5, tied=True), iou=0.1),
        "many, at most": lambda: case(*crowded, most=20, score=0.3),
        "many, 3d": lambda: case(*crowded, metric="3d", iou=0.1),
        "many, chain": lambda: case(
            long_chain, torch.linspace(1, 0.5, 140)[None], torch.zeros(1, 140, dtype=torch.int32), iou=0.2
        ),
        "many, overflow": lambda: case(
            same, torch.rand(1, 140), torch.zeros(1, 140, dtype=torch.int32), room=4
        ),
    }
    if not everything:
        for name in ("few, 3d", "few, double", "many, ties", "many, at most", "many, 3d", "many, chain"):
            del later[name]
    cases = {name: make() for name, make in later.items()}
    if DEVICE == "cuda":
        cases["4096"] = case(*crowd(1, 4096, 7), iou=0.1, room=64)
        cases["4 frames of 500"] = case(*crowd(4, 500, 8), iou=0.5, room=64)
    return cases


if __name__ == "__main__":
    take_larger_programs()
    print(json.dumps(report(everything="--everything" in sys.argv)))
    sys.exit(0)
