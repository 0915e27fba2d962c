"""Labels without headings: nothing turns boxes, and no heading is learned or reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from perception import Detector
from perception.boxes import points_in_boxes
from perception.config import AugmentConfig, TrainConfig
from perception.train.data.augment import augment
from perception.train.data.frames import TrainingFrame
from perception.train.data.objects import object_bank
from perception.train.trainer import Trainer

Street = Callable[[int], TrainingFrame]
QUARTERS = AugmentConfig(
    quarter_turns=True, rotation_rad=0.0, scale=0.0, translation_m=0.0, object_noise_m=0.0, drop_points=0.0,
    paste={"Car": 6}, thin_objects=0.0, shift_m=3.0,
)  # fmt: skip


def along(frame: TrainingFrame) -> TrainingFrame:
    """The frame with points and boxes turned so that each box lies along the axes."""
    points, boxes = [], frame.boxes.copy()
    for box in boxes:
        mine = frame.points[points_in_boxes(frame.points[:, :3], box[None])[0]].copy()
        cosine, sine = np.cos(box[6]), np.sin(box[6])
        x, y = mine[:, 0] - box[0], mine[:, 1] - box[1]
        mine[:, 0], mine[:, 1] = cosine * x + sine * y + box[0], cosine * y - sine * x + box[1]
        points.append(mine)
    boxes[:, 6] = 0
    return replace(frame, points=np.concatenate(points), boxes=boxes)


def test_quarter_turns_keep_boxes_along_the_axes(street: Street) -> None:
    frame = along(street(0))
    bank = object_bank([along(street(1))])
    swapped, moved = set(), set()
    for seed in range(12):
        made = augment(frame, bank, QUARTERS, ("Car", "Pedestrian"), np.random.default_rng(seed))
        assert (made.boxes[:, 6] == 0).all()
        inside = points_in_boxes(made.points[:, :3], made.boxes * np.float32([1, 1, 1, 1.01, 1.01, 1.01, 1]))
        assert inside.any(axis=0).mean() > 0.99
        # The whole scene is shifted by up to 3 m along each axis.
        assert np.abs(np.hypot(*made.boxes[0, :2]) - np.hypot(*frame.boxes[0, :2])) < 3 * 1.5
        moved.add(round(float(np.hypot(*made.boxes[0, :2])), 3))
        cars = made.boxes[made.labels == 0]
        swapped.update((cars[:, 3] > cars[:, 4]).tolist())
    assert swapped == {True, False}
    assert len(moved) > 6


def test_no_heading_is_learned_or_reported(
    tiny_training: TrainConfig, street: Street, tmp_path: Path
) -> None:
    """Not even from boxes that do have one."""
    detector = tiny_training.detector
    config = replace(
        tiny_training,
        detector=replace(detector, head=replace(detector.head, headings=False)),
        augment=QUARTERS,
    )
    made = Trainer(config, tmp_path, [street(number) for number in range(3)])
    before = made.network.head.box.weight.detach().clone()
    assert made.run(show_progress=False)
    assert not torch.equal(made.network.head.box.weight, before)
    network = made.averaged_network()
    torch.nn.init.zeros_(network.head.heat.bias)
    found = Detector(network).with_score_threshold(0.0)(street(0).points)
    assert len(found) > 0
    assert (found.boxes[:, 6] == 0).all()


def test_other_networks_learn_headings(tiny_training: TrainConfig, street: Street, tmp_path: Path) -> None:
    made = Trainer(tiny_training, tmp_path, [street(number) for number in range(3)])
    assert made.run(show_progress=False)
    network = made.averaged_network()
    torch.nn.init.zeros_(network.head.heat.bias)
    found = Detector(network).with_score_threshold(0.0)(street(0).points)
    assert np.ptp(found.boxes[:, 6]) > 0
