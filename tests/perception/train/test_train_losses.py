"""Targets and losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from perception.config import DetectorConfig, TrainConfig
from perception.model.head import CentreHead
from perception.model.network import Network
from perception.model.pillars import make_pillars
from perception.train.data.batches import Batch, collate
from perception.train.data.frames import IGNORED, TrainingFrame
from perception.train.losses import (
    LOSS_WEIGHTS,
    focal_loss,
    heat_targets,
    network_losses,
    refine_samples,
    velocity_loss,
)

Street = Callable[[int], TrainingFrame]


@pytest.fixture
def head(tiny_config: DetectorConfig) -> CentreHead:
    return Network(tiny_config).head  # cells of 1 m from (0, -8)


def one_frame(boxes: list[list[float]], labels: list[int]) -> Batch:
    unknown = torch.full((1, len(boxes), 2), torch.nan)
    return Batch(
        [torch.zeros(0, 4)], torch.tensor([boxes]), torch.tensor([labels]), unknown, torch.zeros(1, 0).long()
    )


def car(x: float, y: float) -> list[float]:
    return [x, y, -0.9, 3.9, 1.6, 1.5, 0.3]


def test_the_peak_is_the_centre_cell(head: CentreHead) -> None:
    targets = heat_targets(head, one_frame([car(5.9, 0.2), car(12.0, -3.0)], [0, 1]), (16, 16))
    assert targets.heat.shape == (1, 2, 16, 16)
    assert targets.heat.max() <= 1
    assert (targets.heat == 1).nonzero().tolist()[0] == [0, 0, 8, 5]
    assert int((targets.heat == 1).sum()) == 2
    assert targets.heat[0, 0, 8, 6] > targets.heat[0, 0, 8, 4]  # the centre lies toward that side
    assert not targets.ignored.any()


def test_cells_around_the_centre_learn_its_box(head: CentreHead) -> None:
    batch = one_frame([car(5.5, 0.5), car(11.5, -3.5)], [0, 1])
    targets = heat_targets(head, batch, (16, 16))
    for row in range(2):
        mine = targets.labels == row
        assert mine.any()
        assert torch.equal(targets.boxes[mine], batch.boxes[0, row].expand(int(mine.sum()), 7))
        spot = targets.cells[mine][targets.weights[mine].argmax(), 1:]
        assert spot.tolist() == [[8, 5], [4, 11]][row]
    assert ((targets.weights > 0) & (targets.weights <= 1)).all()


def test_ignored_and_padded_objects_and_those_outside_leave_no_heat(head: CentreHead) -> None:
    labels = [IGNORED, -2, 0]
    targets = heat_targets(head, one_frame([car(5.5, 0.5), [0.0] * 7, car(40.0, 0.0)], labels), (16, 16))
    assert not targets.heat.any()
    assert len(targets.cells) == 0
    assert targets.ignored[0, 0, 8, 5]
    assert 1 < int(targets.ignored.sum()) < 20
    assert not targets.ignored[0, 0, 0, 0]


def test_focal_loss_wants_peaks_and_skips_ignored_cells() -> None:
    targets = torch.zeros(1, 1, 4, 4)
    targets[0, 0, 1, 1] = 1.0
    nowhere = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    right = torch.full((1, 1, 4, 4), -8.0)
    right[0, 0, 1, 1] = 8.0
    assert focal_loss(right, targets, nowhere) < 1e-4
    assert focal_loss(-right, targets, nowhere) > 10
    alarm = right.clone()
    alarm[0, 0, 3, 3] = 5.0
    there = nowhere.clone()
    there[0, 0, 3, 3] = True
    assert focal_loss(alarm, targets, nowhere) > 1
    torch.testing.assert_close(
        focal_loss(alarm, targets, there), focal_loss(right, targets, nowhere), atol=1e-6, rtol=1e-3
    )


def losses_of(network: Network, frames: list[TrainingFrame], seed: int = 0) -> dict[str, torch.Tensor]:
    batch = collate(frames)
    pillars = make_pillars(batch.clouds, network.config.pillars)
    return network_losses(network, pillars, batch, torch.Generator().manual_seed(seed))


def test_losses_are_finite_and_repeatable(tiny_config: DetectorConfig, street: Street) -> None:
    torch.manual_seed(0)
    network = Network(tiny_config).train()
    frames = [street(0), street(1)]
    first, second = losses_of(network, frames), losses_of(network, frames)
    assert set(first) == set(LOSS_WEIGHTS) - {"teacher_heat", "teacher_map", "velocity"}
    assert all(value.isfinite() and value > 0 for value in first.values())
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_every_parameter_learns(tiny_config: DetectorConfig, street: Street) -> None:
    torch.manual_seed(0)
    network = Network(tiny_config).train()
    losses = losses_of(network, [street(0), street(1)])
    torch.stack(list(losses.values())).sum().backward()
    without = [
        name for name, value in network.named_parameters() if value.grad is None or not value.grad.any()
    ]
    assert without == []
    assert all(value.grad.isfinite().all() for value in network.parameters() if value.grad is not None)


@pytest.mark.parametrize("points", [None, 0, 1])
def test_a_batch_without_objects(
    tiny_config: DetectorConfig, without_objects: TrainingFrame, points: int | None
) -> None:
    torch.manual_seed(0)
    network = Network(tiny_config).train()
    frame = replace(without_objects, points=without_objects.points[:points])
    losses = losses_of(network, [frame, frame] if points is None else [frame])
    torch.stack(list(losses.values())).sum().backward()
    assert all(value.isfinite() for value in losses.values())
    assert losses["box"] == losses["residual"] == losses["flip"] == 0
    gradients = [value.grad for value in network.parameters() if value.grad is not None]
    assert all(grad.isfinite().all() for grad in gradients)
    assert all(value.isfinite().all() for value in network.state_dict().values())


def test_without_refinement_there_are_two_losses(tiny_config: DetectorConfig, street: Street) -> None:
    config = replace(tiny_config, refine=replace(tiny_config.refine, enabled=False))
    assert set(losses_of(Network(config).train(), [street(0)])) == {"heat", "box"}


def test_refinement_learns_from_the_right_objects(tiny_config: DetectorConfig, street: Street) -> None:
    torch.manual_seed(0)
    network = Network(tiny_config).eval()
    frames = [street(0), street(1)]
    batch = collate(frames)
    with torch.no_grad():
        proposals = network.propose(network.maps(make_pillars(batch.clouds, tiny_config.pillars)))
    samples = refine_samples(proposals, batch, torch.Generator().manual_seed(0), keep=5, jitters=3)
    assert len(samples.boxes) == 2 * 5 + 8 * 3
    assert ((samples.overlap >= 0) & (samples.overlap <= 1)).all()
    copies = slice(10, None)
    truth = torch.cat([batch.boxes[0], batch.boxes[1]]).repeat_interleave(3, dim=0)
    assert (samples.overlap[copies] > 0.3).float().mean() > 0.7
    matched = samples.overlap[copies] > 0
    assert torch.equal(samples.objects[copies][matched], truth[matched])
    assert torch.equal(samples.frames[copies], torch.tensor([0, 1]).repeat_interleave(12))


def test_one_street_can_be_learned(tiny_training: TrainConfig, street: Street) -> None:
    torch.manual_seed(0)
    network = Network(tiny_training.detector).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    totals = []
    for step in range(15):
        losses = losses_of(network, [street(0)], seed=step)
        total = torch.stack([losses[name] * LOSS_WEIGHTS[name] for name in losses]).sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(float(total.detach()))
    assert np.isfinite(totals).all()
    assert np.mean(totals[-3:]) < 0.6 * np.mean(totals[:3])


def test_velocities_are_learned_where_they_are_known(tiny_config: DetectorConfig, street: Street) -> None:
    torch.manual_seed(0)
    config = replace(tiny_config, head=replace(tiny_config.head, velocity=True))
    network = Network(config).train()
    frame = street(0)
    assert losses_of(network, [frame])["velocity"] == 0
    known = frame.velocities.copy()
    known[0] = [5.0, 0.0]
    loss = losses_of(network, [replace(frame, velocities=known)])["velocity"]
    assert loss > 1
    loss.backward()
    assert network.velocity is not None
    assert network.velocity.out.weight.grad is not None
    assert network.velocity.out.weight.grad.any()
    # The features of the refinement learn motion, too.
    assert network.encoder.points.linear.weight.grad is not None
    assert all(value.grad.isfinite().all() for value in network.parameters() if value.grad is not None)


def test_the_loss_of_velocities_ignores_the_unknown_and_poor_boxes() -> None:
    found = torch.tensor([[1.0, 0.0], [9.0, 9.0], [7.0, 7.0]], requires_grad=True)
    wanted = torch.tensor([[2.0, 0.0], [torch.nan, 0.0], [0.0, 0.0]])
    loss = velocity_loss(found, wanted, torch.tensor([True, True, False]))
    assert float(loss.detach()) == pytest.approx(0.75)
    loss.backward()
    assert found.grad is not None
    assert found.grad[1:].tolist() == [[0, 0], [0, 0]]


def test_a_class_that_the_labels_cannot_have_teaches_nothing(
    tiny_config: DetectorConfig, street: Street
) -> None:
    """Pedestrians without labels: neither their heat nor boxes of their class count as false."""
    torch.manual_seed(0)
    network = Network(tiny_config).eval()
    frame = street(0)
    cars = frame.labels == 0
    bare = replace(frame, boxes=frame.boxes[cars], labels=frame.labels[cars])
    unlabelled = replace(bare, unlabelled=(1,))
    gradients = {}
    for name, given in (("background", bare), ("unlabelled", unlabelled)):
        network.zero_grad()
        losses = losses_of(network, [given])
        losses["heat"].backward(retain_graph=True)
        assert network.head.heat.bias.grad is not None
        gradients[name] = network.head.heat.bias.grad.clone()
    assert gradients["background"][0] == gradients["unlabelled"][0]
    assert gradients["background"][1] > 0
    assert gradients["unlabelled"][1] == 0
    batch = collate([unlabelled, frame])
    assert batch.unlabelled.tolist() == [[1], [-2]]
    with torch.no_grad():
        proposals = network.propose(network.maps(make_pillars(batch.clouds, tiny_config.pillars)))
    proposals = proposals._replace(labels=torch.arange(proposals.labels.numel()).view(2, -1) % 2)
    samples = refine_samples(proposals, batch, torch.Generator().manual_seed(0), keep=6, jitters=1)
    assert samples.counted is not None
    assert torch.equal(samples.counted, (samples.frames == 1) | (samples.labels == 0))
    assert not samples.counted.all()
    # A pasted pedestrian is known all the same.
    pasted = collate([replace(frame, unlabelled=(1,))])
    copies = refine_samples(proposals._replace(
        boxes=proposals.boxes[:1], scores=proposals.scores[:1], labels=proposals.labels[:1]
    ), pasted, torch.Generator().manual_seed(0), keep=0, jitters=1)  # fmt: skip
    assert copies.counted is not None
    assert (copies.labels == 1).any()
    assert copies.counted[copies.overlap > 0].all()
    # Its heat is a peak, too.
    heat = losses_of(network, [replace(frame, unlabelled=(1,))])["heat"]
    assert heat > losses_of(network, [unlabelled])["heat"]
