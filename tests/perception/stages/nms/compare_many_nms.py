"""Compare NMS of many boxes, with and without its hash, with the exact one; prints a JSON of the cases."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from compare_nms import DEVICE, case, crowd, take_larger_programs
from torch import Tensor

from perception.stages.nms import fixed_nms, many_triton

Case = dict[str, Any]
Boxes = tuple[Tensor, Tensor, Tensor]


@contextmanager
def hashed(**constants: int) -> Iterator[None]:
    """The hash for any number of boxes, and other constants of the module."""
    constants = {"_HASHED_FROM": 0} | constants
    before = {name: getattr(many_triton, name) for name in constants}
    for name, value in constants.items():
        setattr(many_triton, name, value)
    yield
    for name, value in before.items():
        setattr(many_triton, name, value)


def scored(boxes: Tensor, seed: int, labels: int = 1) -> Boxes:
    """Boxes (B, K, 7) with scores and labels."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, labels, boxes.shape[:2], generator=generator, dtype=torch.int32)
    return boxes, torch.rand(boxes.shape[:2], generator=generator), drawn


def mixed(count: int, seed: int) -> Boxes:
    """Sizes from millimetres to a hundred kilometres, sizes of 0, and places up to the largest field."""
    boxes, scores, labels = crowd(1, count, seed)
    boxes = boxes.double()
    factors = torch.ones(count, dtype=torch.float64)
    factors[::5], factors[3::50], factors[4::40] = 0.003, 6.0, 40.0
    factors[7::60], factors[8::70] = 3e4, 0.0
    boxes[0, :, 3:5] *= factors[:, None]
    boxes[0, 9::60, 0], boxes[0, 10::60, :2], boxes[0, 11::60, 0] = 1e9, -1e30, 1e100
    boxes[0, 12::60, 3:5], boxes[0, 13, 3:5], boxes[0, 14::70, 1] = 1e30, 1e100, math.nan
    # On both sides of where single precision ends.
    boxes[0, 20:22], labels[0, 20:22] = 1e15, 0
    boxes[0, 20:22, 0] = torch.tensor([0.99995e18, 1.00005e18], dtype=torch.float64)
    return boxes, scores, labels


def levels(count: int, seed: int) -> Boxes:
    """Boxes of neighbouring sizes that overlap, with equal scores among them."""
    boxes, scores, labels = crowd(1, count, seed, tied=True)
    generator = torch.Generator().manual_seed(seed)
    boxes[..., 3:5] *= 0.4 + 1.6 * torch.rand(1, count, 1, generator=generator)
    return boxes, scores, labels


def tips(count: int, seed: int) -> Boxes:
    """Rows of boxes whose diagonals lie along x or y and overlap by their tips, across all borders of cells.

    Half of them have a diagonal of just half a cell.
    """
    boxes = torch.zeros(1, count, 7, dtype=torch.float64)
    half = count // 2
    line = torch.arange(half, dtype=torch.float64) - half // 2
    for part, (length, axis) in enumerate(((4.5, 0), (4.4, 1))):
        own = boxes[0, part * half : (part + 1) * half]
        own[:, 3], own[:, 4], own[:, 5] = length, length * 0.75, 1.0
        own[:, axis] = line * (length * 1.25 - 1e-4)
        own[:, 1 - axis] = 1000.0 * part
        own[:, 6] = axis * math.pi / 2 - math.atan2(0.75, 1.0)
    return scored(boxes, seed)


def one_place(count: int, seed: int) -> Boxes:
    """All boxes at one place, in as many labels as keep to the room for lists."""
    boxes = torch.tensor([[[3.0, -2.0, 0.0, 4.0, 2.0, 1.5, 0.3]]]).repeat(1, count, 1)
    return scored(boxes, seed, labels=max(4, count // 30))


def moved(boxes: Tensor, x: float, y: float) -> Tensor:
    """Boxes elsewhere."""
    return boxes + boxes.new_tensor([x, y, 0.0, 0.0, 0.0, 0.0, 0.0])


def labels_beyond_32_bits(count: int) -> Boxes:
    """Double precision, and labels that differ only in bits of no int32."""
    boxes, scores, labels = crowd(1, count, 4)
    return boxes.double(), scores.double(), labels.long() << 32


def settled_late(count: int) -> Boxes:
    """A chain in which every decision waits for the one before, in no order of places."""
    generator = torch.Generator().manual_seed(2)
    boxes = torch.zeros(1, count, 7)
    boxes[0, :, 0] = torch.arange(count) * 2.0
    boxes[0, :, 3:6] = torch.tensor([4.0, 2.0, 1.0])
    order = torch.randperm(count, generator=generator)
    return (
        boxes[:, order],
        torch.linspace(1, 0.5, count)[None, order],
        torch.zeros(1, count, dtype=torch.int32),
    )


def at_least(threshold: float) -> Case:
    """Scores in double precision just at the threshold, which single precision could not tell apart."""
    boxes, scores, labels = crowd(1, 130, 6)
    scores = torch.full_like(scores, threshold, dtype=torch.float64)
    scores[0, ::2] = math.nextafter(threshold, 0.0)
    return case(boxes, scores, labels, score=threshold)


def overflown(count: int) -> Case:
    """Lists that are too short say how much, and the frame is decided without them."""
    boxes, scores, labels = one_place(count, 1)
    given = [part.to(DEVICE) for part in (boxes, scores, labels * 0)]
    found = fixed_nms(*given, iou_threshold=0.3, pairs_a_box=count, impl="triton")
    # Of the boxes before it, every box has room for 64.
    lost = sum(range(count)) - sum(min(better, many_triton._DEGREE) for better in range(count))
    best = int(scores.argmax())
    same = int(found.overflow) == lost and int(found.counts) == 1 and int(found.indices[0, 0]) == best
    return {"same": same, "repeated": True, "kept": 1, "overflow": 0}


def within(metres: float, count: int, seed: int, *, tied: bool = False) -> Boxes:
    """Boxes of three classes anywhere on a square."""
    boxes, scores, labels = crowd(1, count, seed, tied=tied)
    generator = torch.Generator().manual_seed(seed)
    boxes[..., :2] = torch.rand(1, count, 2, generator=generator) * metres
    return boxes, scores, labels


def crowded(count: int, seed: int, *, double: bool = False, tied: bool = False, **options: Any) -> Case:
    """Two frames, the first with more pairs and longer lists than there is room for: both exact, one told.

    4,096 boxes of it stand on 15 m x 15 m.
    """
    side = 15.0 * math.sqrt(count / 4096)
    frames = within(side, count, seed, tied=tied), within(30.0 * side, count, seed + 1, tied=tied)
    boxes, scores, labels = (torch.cat(parts) for parts in zip(*frames, strict=True))
    if double:
        boxes, scores, labels = boxes.double(), scores.double(), labels.long()
    found = case(boxes, scores, labels, **options)
    single = case(boxes[:1], scores[:1], labels[:1], **options)
    right = single["same"] and found["overflow"] == single["overflow"] > 0
    return {**found, "same": found["same"] and right, "overflow": 0}


def quick() -> dict[str, Callable[[], Case]]:
    """Cases that take the interpreter seconds."""
    return {
        "hashed": lambda: case(*crowd(1, 150, 1)),
        "frames": lambda: case(*crowd(2, 130, 2), iou=0.1, metric="3d"),
        "mixed": lambda: case(*mixed(140, 3), room=64),
        "levels": lambda: case(*levels(140, 3), iou=0.1),
        "tips": lambda: case(*tips(130, 3), iou=0.0),
        "aside and collisions": lambda: _with(
            lambda: case(*crowd(1, 140, 3), most=200), _SLOTS=4, _BOXES_A_BUCKET=256
        ),
    }


def slow() -> dict[str, Callable[[], Case]]:
    """Further cases."""
    proposals = crowd(1, 150, 4)
    return {
        "negative": lambda: case(moved(proposals[0], -9.3, -20.0), *proposals[1:], score=0.2),
        "far": lambda: case(moved(proposals[0].double(), 5e5, -5e6), *proposals[1:]),
        "one place": lambda: case(*one_place(140, 3), room=64),
        "one place, aside": lambda: _with(lambda: case(*one_place(140, 3), room=64), _SLOTS=2),
        "mixed, aside": lambda: _with(lambda: case(*mixed(140, 5), room=64), _SLOTS=1),
        "labels": lambda: case(*labels_beyond_32_bits(140)),
        "scores at the threshold": lambda: at_least(0.7),
        "late": lambda: case(*settled_late(140), iou=0.2),
        "late, several blocks": lambda: _with(lambda: case(*settled_late(200), iou=0.2), _DECIDED_PROGRAMS=3),
        "too many better ones": lambda: overflown(140),
        "no room": lambda: crowded(140, 2, score=0.2, room=4),
        "no room, ties": lambda: crowded(140, 3, tied=True, room=8, most=11),
        "no room, 3d": lambda: crowded(140, 4, room=4, metric="3d", iou=0.05),
        "no room, double": lambda: crowded(140, 5, double=True, room=4, iou=0.2),
        "no room, late": lambda: {**case(*settled_late(140), iou=0.2, room=1), "overflow": 0},
    }


def large() -> dict[str, Callable[[], Case]]:
    """Cases for a GPU, with the constants as they are."""
    return {
        "mixed 2048": lambda: case(*mixed(2048, 1), room=256),
        "levels 4096": lambda: case(*levels(4096, 1), iou=0.1, room=64),
        "tips 4096": lambda: case(*tips(4096, 1), iou=0.0),
        "one place 4096": lambda: case(*one_place(4096, 1), room=64),
        "negative 4096": lambda: case(
            moved(crowd(1, 4096, 2)[0], -70.0, -9e3), *crowd(1, 4096, 2)[1:], room=64
        ),
        "many frames": lambda: case(*crowd(24, 600, 3), iou=0.1, room=64),
        "late 3000": lambda: case(*settled_late(3000), iou=0.2),
        "crowded 4096": lambda: case(
            crowd(1, 4096, 5)[0] * torch.tensor([0.5, 0.5, 1, 1, 1, 1, 1]), *crowd(1, 4096, 5)[1:], room=128
        ),
        "no room 4096": lambda: crowded(4096, 6, room=64),
        "no room 4096, ties": lambda: crowded(4096, 7, tied=True, room=64, most=300),
    }


def _with(run: Callable[[], Case], **constants: int) -> Case:
    with hashed(**constants):
        return run()


def main() -> None:
    take_larger_programs()
    with hashed():
        made = quick() | (slow() if "--everything" in sys.argv else {})
        cases = {name: run() for name, run in made.items()}
    if DEVICE == "cuda":
        cases |= {name: run() for name, run in large().items()}
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
