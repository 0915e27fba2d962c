"""A frame from points to boxes as tensors alone: what is exported, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.errors import CheckpointError, ConfigError
from perception.export.cells import Cells, Chunks
from perception.export.layers import BackboneRows, GatheredBackbone, Rows
from perception.export.neck import NearNeck
from perception.export.refinement import Refinement, SortedPoints
from perception.export.suppression import first_kept, survivors
from perception.model.backbone import BackboneMaps, DenseBackbone, SparseBackbone
from perception.model.network import Network
from perception.model.refine import RefineStage, apply_residuals, turned
from perception.run.program import Steps, run_frame
from perception.stages.report import ReportRules
from perception.stages.report.reference import mapped_scores, with_footprints

#: Points of a pillar that are looked at together.
_CHUNK = 4


class Located(NamedTuple):
    """Points by pillar.

    Attributes:
        sorted: points of the frame.
        cells: active pillars.
        counts: (M,) int64 points of each.
    """

    sorted: SortedPoints
    cells: Cells
    counts: Tensor


class Levels(NamedTuple):
    """Pillar features (M, C) at first, then what the neck joins."""

    located: Located
    features: Tensor | BackboneMaps | BackboneRows


class Map(NamedTuple):
    """The map (1, C, H, W) that head and refinement read, and logits (1, classes, H, W) of its heat map."""

    located: Located
    features: Tensor
    heat: Tensor


class Boxes(NamedTuple):
    """A fixed number of boxes, best first, and which of them are any.

    Attributes:
        map: what they come from.
        boxes: (K, 7); scores: (K,); labels: (K,) int64; used: (K,) bool.
        fit_logits: (K,), or None before a refinement.
    """

    map: Map
    boxes: Tensor
    scores: Tensor
    labels: Tensor
    used: Tensor
    fit_logits: Tensor | None = None


class Found(NamedTuple):
    """What a frame gives.

    Attributes:
        boxes: (M, 7) float32, LiDAR frame; scores: (M,) float32; labels: (M,) int64 numbers of classes.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor


class ExportSteps(nn.Module, Steps[Tensor, Located, Levels, Map, Boxes, Boxes, Found]):
    """The steps of a frame, none of which needs a host.

    There is no limit of pillars (``pillars.max_pillars``), and none of points that a refinement looks at.

    Args:
        network: folded, on the CPU.

    Raises:
        ConfigError: a detector without a range, of a kind that has steps of its own, or whose strided layers
            do not dilate.
        CheckpointError: layers that are not the network's own.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.config = network.config
        self.rules = ReportRules.of(network.config)
        _check(network)
        self.proposals = network.head
        self.grid = self.config.pillars.closed_grid
        self.points, self.pillars = Rows(network.encoder.points), Rows(network.encoder.pillars)
        backbone = network.backbone
        self.backbone: nn.Module = backbone
        self.map: nn.Module = network.neck
        if isinstance(backbone, SparseBackbone):
            self.backbone = GatheredBackbone(backbone)
            rows, columns = (side // self.config.backbone.stride for side in self.grid.shape)
            self.map = NearNeck(network.neck, network.head, (rows, columns))
        stages = [stage for stage in network.refinements if isinstance(stage, RefineStage)]
        self.steps = nn.ModuleList(Refinement(stage) for stage in stages)

    def locate(self, scans: Tensor) -> Located:
        """Points (N, 4) by pillar; those out of range or not finite are left out."""
        finite = torch.isfinite(scans).all(dim=1)
        inside = finite & self.grid.contains(*scans[:, :3].unbind(1))
        points = scans.index_select(0, inside.nonzero()[:, 0])
        rows, columns = self.grid.shape
        row, column = self.grid.cell_of(points[:, 0], points[:, 1])
        cell = row.long() * columns + column.long()
        # Numbers below 2**24 are exact in single precision, whose sort more libraries have.
        order = torch.sort(cell.float()).indices
        held = torch.zeros(rows * columns, dtype=torch.int64).index_add(0, cell, torch.ones_like(cell))
        cells = Cells.where(held.view(rows, columns) > 0)
        ends = torch.nn.functional.pad(torch.cumsum(held, 0), (1, 0))
        sorted_points = SortedPoints(points.index_select(0, order), ends, self.grid)
        return Located(sorted_points, cells, held.index_select(0, cells.active))

    def encode(self, located: Located) -> Levels:
        """Features of the pillars, as :class:`~perception.model.encoder.PillarEncoder` makes them."""
        points, cells, counts = located.sorted.points, located.cells, located.counts
        chunks = Chunks.of(torch.cumsum(counts, 0) - counts, counts, _CHUNK)
        slots = points[chunks.rows].view(-1, 4)
        owner = chunks.owner[:, None].expand(-1, _CHUNK).reshape(-1)
        columns = cells.shape[1]
        places = torch.stack([cells.active % columns, cells.active // columns], dim=1)
        centre = self.grid.metres_of(self.grid.positions_of_cells(places) + 0.5)
        mean = chunks.mean(slots[:, :3], counts)
        hidden = self.points(
            torch.cat(
                [
                    slots[:, :2] / 40.0,
                    slots[:, 2:4],
                    (slots[:, :2] - centre.index_select(0, owner)) / self.config.pillars.pillar_size_m,
                    slots[:, :3] - mean.index_select(0, owner),
                ],
                dim=1,
            )
        )
        peak, average = chunks.maximum(hidden, counts), chunks.mean(hidden, counts)
        summary = torch.cat([peak, average, mean[:, 2:3], torch.log(counts.float())[:, None]], dim=1)
        return Levels(located, self.pillars(summary))

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[Levels], Levels]]]:
        """The backbone as a whole."""
        return (("backbone", self._backbone),)

    def _backbone(self, levels: Levels) -> Levels:
        cells, features = levels.located.cells, levels.features
        assert isinstance(features, Tensor)
        if isinstance(self.backbone, DenseBackbone):
            return Levels(levels.located, self.backbone.maps(cells.canvas(features)))
        return Levels(levels.located, self.backbone(cells, features))

    def neck(self, levels: Levels) -> Map:
        """The whole map."""
        if isinstance(self.map, NearNeck):
            return Map(levels.located, *self.map(levels.features))
        features = self.map(levels.features)
        return Map(levels.located, features, self.proposals.heat_logits(features))

    def head(self, features: Map) -> Boxes:
        """Boxes at the peaks; none of a frame without points."""
        head, above = self.proposals, torch.tensor(self.config.proposal_scores, dtype=torch.float32)
        most = self.config.limits.peaks
        proposals = head.propose(features.features, features.heat, top_k=most, above=above)
        boxes, scores, labels = (part[0] for part in proposals)
        some = features.located.sorted.ends[-1] > 0
        return Boxes(features, boxes, scores, labels, (scores > 0) & some)

    def propose(self, peaks: Boxes) -> Boxes:
        """Distinct boxes."""
        return _distinct(peaks, self.config.nms.proposal_iou, self.config.limits.proposals)

    @property
    def refinements(self) -> Sequence[Callable[[Boxes], Boxes]]:
        """One for each stage; the last turns boxes to their headings."""
        return [self._refinement(number) for number in range(len(self.steps))]

    def _refinement(self, number: int) -> Callable[[Boxes], Boxes]:
        def refine(boxes: Boxes) -> Boxes:
            located, features, _ = boxes.map
            output = self.steps[number](located.sorted, features, boxes.boxes, boxes.labels, boxes.used)
            refined = apply_residuals(boxes.boxes, output.residuals)
            if number == len(self.steps) - 1:
                refined = turned(refined, output.flip_logits)
            return boxes._replace(boxes=refined, fit_logits=output.fit_logits)

        return refine

    def suppress(self, boxes: Boxes) -> Found:
        """What is reported: as :class:`~perception.detector.Detector` does."""
        nms, head = self.config.nms, self.config.head
        scores = boxes.scores
        if boxes.fit_logits is not None:
            fit = torch.sigmoid(boxes.fit_logits)
            scores = scores ** (1 - head.iou_weight) * fit**head.iou_weight
        scores = torch.where(boxes.used, scores, -1.0)
        order = torch.topk(scores, scores.shape[0]).indices
        ranked = boxes._replace(
            boxes=boxes.boxes.index_select(0, order),
            scores=scores.index_select(0, order),
            labels=boxes.labels.index_select(0, order),
        )
        ranked = ranked._replace(used=ranked.scores >= nms.score_threshold)
        best = _distinct(ranked, nms.iou, self.config.limits.boxes)
        scores = best.scores
        if nms.score_maps:
            scores = mapped_scores(scores, best.labels, self.rules)
        least = torch.tensor(
            [nms.report_thresholds.get(name, 0.0) for name in head.classes], dtype=torch.float32
        )
        kept = best.used & (scores >= least[best.labels])
        if nms.score_maps:
            order = torch.topk(torch.where(kept, scores, -1.0), scores.shape[0]).indices
            best, scores, kept = _ordered(best, order), scores[order], kept[order]
        rows = kept.nonzero()[:, 0]
        labels = best.labels.index_select(0, rows)
        found = with_footprints(best.boxes.index_select(0, rows), labels, self.rules)
        return Found(found, scores.index_select(0, rows), labels)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What is found.

        Args:
            points: (N, 4) float32 x, y, z (metres, LiDAR frame), intensity.

        Returns:
            Boxes, scores and labels, see :class:`Found`.
        """
        boxes, scores, labels = run_frame(self, points)
        return boxes, scores, labels


def _check(network: Network) -> None:
    backbone = network.config.backbone
    if backbone.kind not in ("sparse", "dense"):
        raise ConfigError(
            f"backbone.kind {backbone.kind!r} has steps of its own; 'sparse' and 'dense' are exported"
        )
    if backbone.kind == "sparse" and not backbone.dilating:
        raise ConfigError(
            "backbone.dilating is false; only networks whose strided layers dilate are exported"
        )
    for name, part in network.named_modules():
        if not type(part).__module__.startswith(("torch.nn.", "perception.model.", "sparse_core.conv.")):
            raise CheckpointError(
                f"{name} is a {type(part).__name__}, no layer of the network's own; export weights without it"
            )


def _ordered(boxes: Boxes, order: Tensor) -> Boxes:
    return boxes._replace(
        boxes=boxes.boxes.index_select(0, order),
        scores=boxes.scores.index_select(0, order),
        labels=boxes.labels.index_select(0, order),
        used=boxes.used.index_select(0, order),
    )


def _distinct(boxes: Boxes, iou_threshold: float, most: int) -> Boxes:
    """The first ``most`` boxes that no better one of their class overlaps."""
    kept = survivors(boxes.boxes, boxes.labels, boxes.used, iou_threshold=iou_threshold)
    order, used = first_kept(kept, most)
    return _ordered(boxes, order)._replace(used=used)
