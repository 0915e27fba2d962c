"""Targets and losses of both stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from perception.boxes import box_corners_3d, rotated_iou_pairs
from perception.model.head import CentreHead, Proposals
from perception.model.network import Network, NetworkMaps
from perception.model.pillars import Pillars
from perception.model.refine import apply_residuals, residuals_between
from perception.train.data.batches import Batch
from perception.train.data.frames import IGNORED
from perception.train.ranks import ALONE, Ranks


class HeatTargets(NamedTuple):
    """Targets of the first stage.

    Attributes:
        heat: (B, classes, H, W) in [0, 1], 1 at the centre cell of each object.
        ignored: (B, 1, H, W) bool: cells of ignored objects.
        cells: (P, 3) int64 cells that predict a box: those around each centre.
        boxes: (P, 7) the box of each; labels: (P,); weights: (P,) in (0, 1].
    """

    heat: Tensor
    ignored: Tensor
    cells: Tensor
    boxes: Tensor
    labels: Tensor
    weights: Tensor


#: Least Gaussian value of cells that predict the object's box.
_POSITIVE = 0.4


def heat_targets(head: CentreHead, batch: Batch, map_shape: tuple[int, int]) -> HeatTargets:
    """Return Gaussians around object centres.

    Args:
        head: geometry and classes.
        batch: ground truth.
        map_shape: rows and columns of the heat map.
    """
    peaks = batch.boxes[..., :2]
    rows, columns = map_shape
    device = batch.boxes.device
    classes = len(head.config.classes)
    frames, objects = batch.labels.shape
    x, y = (
        (torch.arange(count, dtype=torch.float32, device=device) + 0.5) * head.grid.cell_m + low
        for count, low in zip((columns, rows), head.grid.origin_m, strict=True)
    )
    dx = (x - peaks[..., 0:1])[:, :, None, :]
    dy = (y - peaks[..., 1:2])[:, :, :, None]
    sigma = (0.25 * torch.sqrt(batch.boxes[..., 3] * batch.boxes[..., 4])).clamp(min=0.7 * head.grid.cell_m)
    bell = torch.exp(-(dx * dx + dy * dy) / (2 * sigma * sigma)[..., None, None])
    column, row = head.grid.position_of(peaks).unbind(-1)
    inside = (column >= 0) & (column < columns) & (row >= 0) & (row < rows) & (batch.labels >= 0)
    # The cell that contains the centre is the peak, wherever the centre is in it.
    nearest = bell.flatten(2).argmax(dim=2, keepdim=True)
    bell = bell.flatten(2).scatter(2, nearest, 1.0).view(frames, objects, rows, columns)
    bell = torch.where(inside[..., None, None], bell, 0.0)
    heat = torch.stack(
        [
            torch.where((batch.labels == index)[..., None, None], bell, 0.0).amax(dim=1)
            for index in range(classes)
        ],
        dim=1,
    )
    ignored = ((batch.labels == IGNORED)[..., None, None] & (dx * dx + dy * dy < 4.0)).any(dim=1)[:, None]
    frame, owner, iy, ix = (bell >= _POSITIVE).nonzero(as_tuple=True)
    return HeatTargets(
        heat,
        ignored,
        torch.stack([frame, iy, ix], dim=1),
        batch.boxes[frame, owner],
        batch.labels[frame, owner],
        bell[frame, owner, iy, ix],
    )


def _unlabelled(batch: Batch, classes: int) -> Tensor:
    """Return a (B, classes, 1, 1) mask of the classes that the labels of each frame cannot have."""
    rows = torch.arange(classes, device=batch.unlabelled.device)
    return (batch.unlabelled[:, :, None] == rows).any(dim=1)[:, :, None, None]


def focal_loss(logits: Tensor, targets: Tensor, ignored: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Return the penalty-reduced focal loss (CornerNet, Law and Deng 2018, equation 1), per peak."""
    logits = logits.float()
    probability = torch.sigmoid(logits)
    peak = targets == 1.0
    positive = -F.logsigmoid(logits) * (1 - probability) ** 2
    negative = -F.logsigmoid(-logits) * probability**2 * (1 - targets) ** 4
    loss = torch.where(peak, positive, torch.where(ignored, 0.0, negative))
    return loss.sum() / ranks.total(peak.sum()).clamp(min=1)


def soft_focal_loss(
    logits: Tensor, teacher_logits: Tensor, peaks: Tensor, ignored: Tensor, ranks: Ranks = ALONE
) -> Tensor:
    """Return the quality focal loss (Li et al., NeurIPS 2020, equation 6) towards a teacher's heat, per peak.

    Args:
        logits, teacher_logits: (B, classes, H, W).
        peaks: the same shape, bool: centre cells of the objects.
        ignored: (B, 1 or classes, H, W) bool cells that do not count.
    """
    logits, target = logits.float(), torch.sigmoid(teacher_logits.float())
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    loss = torch.where(ignored, 0.0, entropy * (target - torch.sigmoid(logits)) ** 2)
    return loss.sum() / ranks.total(peaks.sum()).clamp(min=1)


#: Least heat, of the targets or of the teacher, of cells whose features follow the teacher's.
_TAUGHT = 0.1


def map_loss(
    maps: NetworkMaps,
    taught: NetworkMaps,
    targets: HeatTargets,
    ranks: Ranks = ALONE,
    *,
    rows: Sequence[int] | None = None,
) -> Tensor:
    """Return the squared difference to a teacher's features near objects and at its peaks, over their square.

    Cells of an empty scene are left out, because a sparse network has no features there.

    Args:
        maps, taught: of the network and of its teacher.
        targets: of the batch.
        ranks: processes that train together.
        rows: class indices whose objects and peaks count; cells near objects of other classes are left out.
            None: all classes.
    """
    own_rows = list(range(targets.heat.shape[1]) if rows is None else rows)
    other_rows = [row for row in range(targets.heat.shape[1]) if row not in own_rows]
    heat = torch.maximum(targets.heat, torch.sigmoid(taught.heat_logits.float()))[:, own_rows].amax(dim=1)
    chosen = (heat > _TAUGHT) & ~targets.ignored[:, 0]
    if other_rows:
        chosen &= targets.heat[:, other_rows].amax(dim=1) <= _TAUGHT
    own, wanted = (part.features.permute(0, 2, 3, 1)[chosen].float() for part in (maps, taught))
    return ((own - wanted) ** 2).sum() / ranks.total((wanted**2).sum()).clamp(min=1e-3)


def box_loss(head: CentreHead, features: Tensor, targets: HeatTargets, ranks: Ranks = ALONE) -> Tensor:
    """Return the L1 loss of box codes, weighted by the closeness of cell and centre."""
    codes = head.box_codes(features, targets.cells, targets.labels)
    wanted = head.encode(targets.boxes, targets.cells, targets.labels)
    difference = (codes - wanted).abs().mean(dim=1)
    return (difference * targets.weights).sum() / ranks.total(targets.weights.sum()).clamp(min=1)


class RefineSamples(NamedTuple):
    """Training boxes of the second stage, with their target objects.

    Attributes:
        boxes: (R, 7); frames: (R,); labels: (R,).
        objects: (R, 7) best object of the same class and frame.
        overlap: (R,) 3D IoU with it, 0 without an object.
        velocities: (R, 2) its velocity, m/s; NaN if unknown.
        counted: (R,) bool, False for boxes of a class that the labels of the frame cannot have; None: all
            count.
    """

    boxes: Tensor
    frames: Tensor
    labels: Tensor
    objects: Tensor
    overlap: Tensor
    velocities: Tensor
    counted: Tensor | None = None


def refine_samples(
    proposals: Proposals,
    batch: Batch,
    generator: torch.Generator,
    *,
    keep: int = 48,
    jitters: int = 4,
    turn: bool = True,
    ranks: Ranks = ALONE,
) -> RefineSamples:
    """Return the best proposals of each frame, and disturbed copies of its objects, also turned ones."""
    frames, count = proposals.scores.shape
    keep = min(keep, count)
    device = batch.boxes.device
    truth_frame, truth_row = (batch.labels >= 0).nonzero(as_tuple=True)
    truth, truth_labels = batch.boxes[truth_frame, truth_row], batch.labels[truth_frame, truth_row]
    truth_velocities = batch.velocities[truth_frame, truth_row]
    copies = _disturbed(truth.repeat_interleave(jitters, dim=0), generator, ranks, turn=turn)
    boxes = torch.cat([proposals.boxes[:, :keep].reshape(-1, 7), copies]).detach()
    box_frames = torch.cat(
        [
            torch.arange(frames, device=device).repeat_interleave(keep),
            truth_frame.repeat_interleave(jitters),
        ]
    )
    labels = torch.cat([proposals.labels[:, :keep].reshape(-1), truth_labels.repeat_interleave(jitters)])
    counted = None
    if batch.unlabelled.shape[1]:
        counted = (batch.unlabelled[box_frames] != labels[:, None]).all(dim=1)
    same = (box_frames[:, None] == truth_frame) & (labels[:, None] == truth_labels)
    close = torch.cdist(boxes[:, :2], truth[:, :2]) < 8.0
    row, column = (same & close).nonzero(as_tuple=True)
    overlap = torch.zeros(same.shape, device=device, dtype=torch.float32)
    overlap[row, column] = rotated_iou_pairs(boxes[row], truth[column], metric="3d").float()
    if len(truth) == 0:
        unknown = boxes.new_full((len(boxes), 2), torch.nan)
        nothing = overlap.new_zeros(len(boxes))
        return RefineSamples(boxes, box_frames, labels, boxes, nothing, unknown, counted)
    best, owner = overlap.max(dim=1)
    if counted is not None:
        # A pasted object is known, whatever the labels can have.
        counted |= best > 0
    return RefineSamples(boxes, box_frames, labels, truth[owner], best, truth_velocities[owner], counted)


def _disturbed(boxes: Tensor, generator: torch.Generator, ranks: Ranks, *, turn: bool) -> Tensor:
    """Move, resize and (``turn``) rotate boxes at random, from slightly to strongly.

    Every rank draws the numbers for all boxes of the batch and uses its own.
    """
    first, total = ranks.place(len(boxes))
    own = slice(first, first + len(boxes))

    def normal(columns: int) -> Tensor:
        return torch.randn(total, columns, generator=generator, device=boxes.device, dtype=torch.float32)[own]

    def uniform() -> Tensor:
        return torch.rand(total, 1, generator=generator, device=boxes.device, dtype=torch.float32)[own]

    strength = uniform() * 1.5
    shift = normal(3) * strength * 0.12 * boxes[:, 3:6].clamp(min=0.8)
    sizes = boxes[:, 3:6] * torch.exp(normal(3) * strength * 0.08)
    angle = normal(1) * strength * 0.12
    flip = (uniform() < 0.15).float() * math.pi
    yaw = boxes[:, 6:] + angle + flip if turn else boxes[:, 6:]
    return torch.cat([boxes[:, :3] + shift, sizes, yaw], dim=1)


def refine_losses(
    network: Network,
    pillars: Pillars,
    maps: NetworkMaps,
    samples: RefineSamples,
    ranks: Ranks = ALONE,
) -> dict[str, Tensor]:
    """Return the losses of every refinement step; step i + 1 starts from the detached boxes of step i.

    The velocity head learns from the last step.
    """
    losses = {name: maps.features.new_zeros((), dtype=torch.float32) for name in ("residual", "fit", "flip")}
    boxes = samples.boxes
    small = torch.minimum(samples.objects[:, 3], samples.objects[:, 4]) < 1.2
    good = samples.overlap > torch.full_like(samples.overlap, 0.35).masked_fill_(small, 0.25)
    count = ranks.total(good.sum()).clamp(min=1)
    share = len(boxes) / ranks.place(len(boxes)).total
    for stage in network.refinements:
        output = stage(pillars, maps.features, boxes, samples.frames, samples.labels)
        wanted, flipped = residuals_between(boxes, samples.objects)
        if network.velocity is not None and stage is network.refinements[-1]:
            velocities = network.velocity(output.features, boxes)
            losses["velocity"] = velocity_loss(velocities, samples.velocities, good, ranks)
        refined = apply_residuals(boxes, output.residuals)
        error = F.smooth_l1_loss(output.residuals, wanted, beta=0.05, reduction="none").sum(dim=1)
        corners = _corner_loss(refined, samples.objects)
        losses["residual"] = losses["residual"] + (torch.where(good, error + corners, 0.0)).sum() / count
        flip = F.binary_cross_entropy_with_logits(output.flip_logits, flipped.float(), reduction="none")
        losses["flip"] = losses["flip"] + torch.where(good, flip, 0.0).sum() / count
        boxes = refined.detach()
        fit = _fit_target(boxes, samples, small)
        weight = None if samples.counted is None else samples.counted.float()
        error = F.binary_cross_entropy_with_logits(output.fit_logits, fit, weight)
        losses["fit"] = losses["fit"] + error * share
    return losses


def velocity_loss(velocities: Tensor, wanted: Tensor, good: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Return the smooth L1 loss of velocities (R, 2) of boxes that are good and whose velocity is known."""
    known = good & torch.isfinite(wanted).all(dim=1)
    # Zeros in place of NaN, whose gradient would be NaN even where it does not count.
    wanted = torch.where(known[:, None], wanted, 0.0)
    error = F.smooth_l1_loss(velocities, wanted, beta=0.5, reduction="none").sum(dim=1)
    return torch.where(known, error, 0.0).sum() / ranks.total(known.sum()).clamp(min=1)


def _corner_loss(boxes: Tensor, objects: Tensor) -> Tensor:
    """Return the (R,) mean smooth distance of corners in metres, for the better of the two headings."""
    corners = box_corners_3d(boxes)
    turned = torch.cat([objects[:, :6], objects[:, 6:] + math.pi], dim=1)
    distances = [
        F.smooth_l1_loss(corners, box_corners_3d(target).to(corners.dtype), beta=0.2, reduction="none")
        .sum(-1)
        .mean(-1)
        for target in (objects, turned)
    ]
    return torch.minimum(*distances)


def _fit_target(refined: Tensor, samples: RefineSamples, small: Tensor) -> Tensor:
    """Return the (R,) overlap of refined boxes, rescaled so that 0.5 is close to KITTI's match threshold."""
    matched = samples.overlap > 0.05
    overlap = torch.zeros_like(samples.overlap)
    overlap[matched] = rotated_iou_pairs(refined[matched], samples.objects[matched], metric="3d").float()
    low = torch.full_like(overlap, 0.45).masked_fill_(small, 0.25)
    return ((overlap - low) / 0.45).clamp(0.0, 1.0)


#: Weights of the losses in the minimised sum.
LOSS_WEIGHTS = {
    "heat": 1.0, "box": 4.0, "residual": 0.5, "fit": 1.0, "flip": 0.3,
    "teacher_heat": 1.0, "teacher_map": 1.0, "velocity": 0.2,
}  # fmt: skip


def network_losses(
    network: Network,
    pillars: Pillars,
    batch: Batch,
    generator: torch.Generator,
    ranks: Ranks = ALONE,
    *,
    teacher: Network | None = None,
    teacher_classes: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Return all unweighted losses of a batch; a rank returns its share.

    Args:
        network: the trained network.
        pillars: of the batch's clouds.
        batch: ground truth.
        generator: of disturbed boxes.
        ranks: processes that train together.
        teacher: network from :func:`~perception.train.teacher.load_teacher`.
        teacher_classes: classes that it teaches; empty: all.
    """
    maps = network.maps(pillars)
    rows, columns = maps.heat_logits.shape[2:]
    targets = heat_targets(network.head, batch, (rows, columns))
    ignored = targets.ignored
    if batch.unlabelled.shape[1]:
        ignored = ignored | _unlabelled(batch, len(network.head.config.classes))
    losses = {
        "heat": focal_loss(maps.heat_logits, targets.heat, ignored, ranks),
        "box": box_loss(network.head, maps.features, targets, ranks),
    }
    if teacher is not None:
        with torch.no_grad():
            taught = teacher.maps(pillars)
        classes = network.config.head.classes
        rows_taught = [classes.index(name) for name in teacher_classes or classes]
        own, wanted = (part.heat_logits[:, rows_taught] for part in (maps, taught))
        peaks_taught = targets.heat[:, rows_taught] == 1.0
        # One mask for all classes, or one per class.
        unscored = ignored if ignored.shape[1] == 1 else ignored[:, rows_taught]
        losses["teacher_heat"] = soft_focal_loss(own, wanted, peaks_taught, unscored, ranks)
        losses["teacher_map"] = map_loss(maps, taught, targets, ranks, rows=rows_taught)
    if len(network.refinements):
        with torch.no_grad():
            proposals = network.propose(maps)
            turn = network.config.head.headings
            samples = refine_samples(proposals, batch, generator, turn=turn, ranks=ranks)
        losses.update(refine_losses(network, pillars, maps, samples, ranks))
    return losses
