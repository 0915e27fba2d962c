"""Steps of a frame for export: tensor operations only, with symbolic sizes.

They combine the network's layers with reference operations of its stages, on the cells of
:mod:`perception.export.cells`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.errors import CheckpointError, ConfigError
from perception.export.cells import CellPillars, Cells, CellTensor
from perception.export.neck import CellNeck
from perception.model.backbone import BackboneMaps, SparseBackbone
from perception.model.network import Network
from perception.model.refine import RefineStage, turned
from perception.model.segments import repeat_rows
from perception.run.program import Steps, run_frame
from perception.stages.nms import fixed_suppress
from perception.stages.report import ReportRules
from perception.stages.report.reference import mapped_scores, with_sizes

#: Placeholder for unused boxes, out of every range.
_NOWHERE = (-1e6, -1e6, 0.0, 1.0, 1.0, 1.0, 0.0)


class ExportLevels(NamedTuple):
    """Pillar features, then the backbone's output: of cells, or whole maps."""

    pillars: CellPillars
    features: CellTensor | tuple[CellTensor, CellTensor] | BackboneMaps


class ExportMap(NamedTuple):
    """Map (1, C, H, W) that head and refinement read, and logits (1, classes, H, W) of its heat map."""

    pillars: CellPillars
    features: Tensor
    heat: Tensor


class ExportBoxes(NamedTuple):
    """A fixed number of boxes, best first.

    Attributes:
        map: map that the boxes come from.
        boxes: (K, 7); scores: (K,); labels: (K,) int32, -1 for no box.
        fit_logits: (K,); None before the refinement.
    """

    map: ExportMap
    boxes: Tensor
    scores: Tensor
    labels: Tensor
    fit_logits: Tensor | None = None


class ExportResult(NamedTuple):
    """Result of a frame.

    Attributes:
        boxes: (M, 7) float32, LiDAR frame; scores: (M,) float32; labels: (M,) int64 class indices.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor


class ExportSteps(
    nn.Module, Steps[Tensor, CellPillars, ExportLevels, ExportMap, ExportBoxes, ExportBoxes, ExportResult]
):
    """Steps of a frame without host operations.

    The number of pillars (``pillars.max_pillars``) and of points per refined box is not limited.

    Args:
        network: folded network on the CPU.

    Raises:
        ConfigError: an unbounded range, an unsupported kind, or strided layers that do not dilate.
        CheckpointError: foreign layers.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.config = network.config
        self.rules = ReportRules.of(network.config)
        _check(network)
        self.proposals = network.head
        self.grid = self.config.pillars.closed_grid
        self.encoder, self.backbone = network.encoder, network.backbone
        self.map: CellNeck | nn.Module = network.neck
        if isinstance(network.backbone, SparseBackbone):
            rows, columns = (side // self.config.backbone.stride for side in self.grid.shape)
            self.map = CellNeck(network.neck, network.head, (rows, columns))
        self.stages = nn.ModuleList(stage for stage in network.refinements if isinstance(stage, RefineStage))

    def locate(self, scans: Tensor) -> CellPillars:
        """Group points (N, 4) by pillar; drop points out of range or not finite."""
        finite = torch.isfinite(scans).all(dim=1)
        inside = finite & self.grid.contains(*scans[:, :3].unbind(1))
        points = scans.index_select(0, inside.nonzero()[:, 0])
        rows, columns = self.grid.shape
        row, column = self.grid.cell_of(points[:, 0], points[:, 1])
        cell = row.long() * columns + column.long()
        # Integers below 2**24 are exact in single precision, which more libraries can sort.
        order = torch.sort(cell.float()).indices
        held = torch.zeros(rows * columns, dtype=torch.int64).index_add(0, cell, torch.ones_like(cell))
        cells = Cells.where(held.view(rows, columns) > 0)
        counts, none = held.index_select(0, cells.active), held.new_zeros(1)
        return CellPillars(
            points=points.index_select(0, order),
            frames=torch.zeros_like(cell),
            rows=repeat_rows(counts).owner,
            table=cells.table(),
            counts=counts,
            batch_size=1,
            grid=self.grid,
            invalid=none,
            overflow=none,
            far=none,
            cells=cells,
            ends=torch.nn.functional.pad(torch.cumsum(held, 0), (1, 0)),
        )

    def encode(self, located: CellPillars) -> ExportLevels:
        """Compute the features of the pillars."""
        return ExportLevels(located, CellTensor.at(located.cells, self.encoder.rows(located)))

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[ExportLevels], ExportLevels]]]:
        """The backbone as a whole."""
        return (("backbone", self._backbone),)

    def _backbone(self, levels: ExportLevels) -> ExportLevels:
        cells = levels.features
        if not isinstance(self.backbone, SparseBackbone):
            return ExportLevels(levels.pillars, self.backbone(cells))
        assert isinstance(cells, CellTensor)
        fine, coarse = self.backbone.cells(cells)
        assert isinstance(fine, CellTensor)
        assert isinstance(coarse, CellTensor)
        return ExportLevels(levels.pillars, (fine, coarse))

    def neck(self, levels: ExportLevels) -> ExportMap:
        """Compute the whole map."""
        if isinstance(self.map, CellNeck):
            assert isinstance(levels.features, tuple)
            return ExportMap(levels.pillars, *self.map(*levels.features))
        features = self.map(levels.features)
        return ExportMap(levels.pillars, features, self.proposals.heat_logits(features))

    def head(self, features: ExportMap) -> ExportBoxes:
        """Read boxes at the peaks; a frame without points has none."""
        head, above = self.proposals, torch.tensor(self.config.proposal_scores, dtype=torch.float32)
        most = self.config.limits.peaks
        proposals = head.propose(features.features, features.heat, top_k=most, above=above)
        boxes, scores, labels = (part[0] for part in proposals)
        used = (scores > 0) & (features.pillars.ends[-1] > 0)
        return ExportBoxes(features, boxes, scores, torch.where(used, labels, -1).int())

    def propose(self, peaks: ExportBoxes) -> ExportBoxes:
        """Remove duplicate boxes."""
        return self._distinct(peaks, self.config.nms.proposal_iou, 0.0, self.config.limits.proposals)

    def _distinct(self, boxes: ExportBoxes, iou_threshold: float, least: float, most: int) -> ExportBoxes:
        kept = fixed_suppress(
            boxes.boxes[None],
            boxes.scores[None],
            boxes.labels[None],
            iou_threshold=iou_threshold,
            score_threshold=least,
            max_output=min(most, boxes.scores.shape[0]),
            fit_logits=None if boxes.fit_logits is None else boxes.fit_logits[None],
            fit_weight=self.config.head.iou_weight,
            impl="reference",
        )
        return ExportBoxes(boxes.map, kept.boxes[0], kept.scores[0], kept.labels[0])

    @property
    def refinements(self) -> Sequence[Callable[[ExportBoxes], ExportBoxes]]:
        """One step per stage; the last also resolves the heading."""
        return [partial(self._refine, number) for number in range(len(self.stages))]

    def _refine(self, number: int, boxes: ExportBoxes) -> ExportBoxes:
        stage, used = self.stages[number], boxes.labels >= 0
        assert isinstance(stage, RefineStage)
        given = torch.where(used[:, None], boxes.boxes, torch.tensor(_NOWHERE, dtype=torch.float32))
        labels = boxes.labels.clamp(min=0).long()
        frames = torch.zeros_like(labels)
        refined, output = stage.refined(boxes.map.pillars, boxes.map.features, given, frames, labels)
        if number == len(self.stages) - 1:
            refined = turned(refined, output.flip_logits)
        return boxes._replace(boxes=refined, fit_logits=output.fit_logits)

    def suppress(self, boxes: ExportBoxes) -> ExportResult:
        """Suppress overlapping boxes, and report as :class:`~perception.detector.Detector` does."""
        nms = self.config.nms
        best = self._distinct(boxes, nms.iou, nms.score_threshold, self.config.limits.boxes)
        used, labels, scores = best.labels >= 0, best.labels.clamp(min=0).long(), best.scores
        if nms.score_maps:
            scores = mapped_scores(scores, labels, self.rules)
        least = torch.tensor(
            [nms.report_thresholds.get(name, 0.0) for name in self.config.head.classes], dtype=torch.float32
        )
        used &= scores >= least[labels]
        order = torch.arange(scores.shape[0])
        if nms.score_maps:
            order = torch.topk(torch.where(used, scores, -1.0), scores.shape[0]).indices
        rows = order.index_select(0, used.index_select(0, order).nonzero()[:, 0])
        labels = labels.index_select(0, rows)
        found = with_sizes(best.boxes.index_select(0, rows), labels, self.rules)
        return ExportResult(found, scores.index_select(0, rows), labels)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Detect objects in points (N, 4); return the fields of :class:`ExportResult`."""
        boxes, scores, labels = run_frame(self, points)
        return boxes, scores, labels


def _check(network: Network) -> None:
    backbone, pillars = network.config.backbone, network.config.pillars
    if pillars.sweeps > 1:
        raise ConfigError(
            "cannot export a detector that reads several sweeps (pillars.sweeps). Run it with this package."
        )
    if pillars.shrink != 1 or pillars.cube_m:
        raise ConfigError(
            "cannot export a detector that shrinks or thins scans (pillars.shrink, pillars.cube_m). Run it"
            " with this package."
        )
    if backbone.kind not in ("sparse", "dense"):
        raise ConfigError(
            f"cannot export backbone.kind {backbone.kind!r}; supported kinds are 'sparse' and 'dense'"
        )
    if backbone.kind == "sparse" and not backbone.dilating:
        raise ConfigError(
            "cannot export a network with backbone.dilating: false; its strided layers must dilate"
        )
    for name, part in network.named_modules():
        if not type(part).__module__.startswith(("torch.nn.", "perception.model.", "sparse_core.conv.")):
            raise CheckpointError(
                f"cannot export {name}, a foreign layer ({type(part).__name__}); export weights without it"
            )
