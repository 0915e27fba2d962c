"""A detector's network with fixed shapes: points on the device to boxes on the device.

Every step works on buffers whose size is known beforehand and on counts that stay on the device, so that a
whole frame is one CUDA graph. The plain-torch implementations run the same composition anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from perception.config import DetectorConfig
from perception.model.layers import SparseBlock, SparseUnit
from perception.model.network import Network
from perception.model.refine import RefineStage
from perception.stages.backbone.units import Unit, pack_block, pack_unit, usual_rows
from perception.stages.head import (
    fixed_boxes,
    fixed_peaks,
    fixed_up,
    pack_boxes,
    pack_heat,
    pack_up,
)
from perception.stages.neck import MapConvolution, NearNeck, NeckWeights
from perception.stages.nms import Suppressed, fixed_suppress
from perception.stages.pillars import (
    EncoderWeights,
    PillarWorkspace,
    fixed_encode,
    locate_points,
    sort_points,
)
from perception.stages.refine import RefineWorkspace, fixed_refine, pack_refine
from sparse_core.conv.convolution import fixed_convolution
from sparse_core.conv.grid import DenseGrid, FixedGrid, GridLevel, TableRequest, neighbour_tables, pyramid
from sparse_core.op import Impl

#: Called with the name of a stage and what runs it.
StageRunner = Callable[[str, Callable[[], None]], None]

_KERNEL = (3, 3)
_LEVEL = GridLevel()


class FastBoxes(NamedTuple):
    """What a frame, or a batch of them, gives; all on the device.

    Attributes:
        boxes: (B, M, 7) float32, LiDAR frame, best score first; zeros behind the last.
        scores: (B, M) float32; labels: (B, M) int32, -1 behind the last.
        counts: (B,) int32 boxes of each frame.
        numbers: (2 B + levels + lists,) int32: invalid points of each frame, pillars before each frame,
            active cells of each level and cells of each list near them, of all frames together.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    counts: Tensor
    numbers: Tensor


@dataclass
class _State:
    """Everything that passes between the stages of one batch; no stage overwrites what another reads."""

    points: Tensor
    lengths: Tensor
    values: dict[str, Any] = field(default_factory=dict)


class _Output(NamedTuple):
    """Table and rows in use of a convolution, and how many these are as a rule."""

    table: Tensor
    used: Tensor | None
    rows: int


class FastNetwork:
    """The sparse detector of a folded network, for batches of one size and fixed capacities.

    Args:
        network: folded, with a sparse backbone, on the device to run on.
        batch_size: frames of a call.
        capacities: active cells of each level of the backbone that there is room for, all frames together.
        nearby: cells of each list of cells near active ones that there is room for (see
            :class:`~perception.stages.neck.NearNeck`): neck and heat map are computed there only; none: they
            are computed everywhere.
        dtype: of the features: float16, bfloat16 or float32.
        impl: of every step: ``"reference"``, ``"triton"`` or ``"auto"``.
        config: the network's own with other thresholds; None: the network's own.

    Raises:
        ValueError: a dense backbone, or capacities for another number of levels or lists.
    """

    def __init__(
        self,
        network: Network,
        *,
        batch_size: int,
        capacities: tuple[int, ...],
        nearby: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float16,
        impl: Impl = "auto",
        config: DetectorConfig | None = None,
    ) -> None:
        config = config or network.config
        levels = len(config.backbone.channels)
        if config.backbone.kind != "sparse" or not config.backbone.dilating:
            raise ValueError("the fast path is for sparse backbones whose strided layers dilate")
        if len(capacities) != levels:
            raise ValueError(f"{levels} levels need as many capacities, got {len(capacities)}")
        self.config: DetectorConfig = config
        self.batch_size, self.capacities, self.dtype, self.impl = batch_size, capacities, dtype, impl
        self.nearby = nearby
        #: Rows that tiles are chosen for, of each level.
        self._rows = [usual_rows(0, capacity) for capacity in capacities]
        device = next(network.parameters()).device
        self.device = device
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        rows, columns = config.pillars.grid_shape
        self.fine_shape = (2 * rows // config.backbone.stride, 2 * columns // config.backbone.stride)
        self.coarse_shape = (rows // config.backbone.stride, columns // config.backbone.stride)
        #: A proposal's score must exceed a quarter of the final threshold; in single precision.
        least = torch.tensor(config.nms.score_threshold * 0.25)
        self.least_score = float(torch.nextafter(least, torch.tensor(math.inf)))
        self.encoder = EncoderWeights.from_encoder(network.encoder, device=device)
        self.stages = [self._units(stage) for stage in network.backbone.stages]
        self.down = pack_unit(network.backbone.down, dtype)
        self.blocks = [pack_block(block, dtype) for block in network.neck.blocks]
        self.up = pack_up(network.neck.up, network.backbone.lateral, dtype)
        self.out = pack_unit(network.neck.out, dtype)
        self.heat = pack_heat(network.head, dtype)
        self.boxes = pack_boxes(network.head, dtype)
        self.refinements = [
            pack_refine(stage, dtype=dtype) for stage in network.refinements if isinstance(stage, RefineStage)
        ]
        self.pillar_workspace = PillarWorkspace.make(config.pillars, batch_size, device=device)
        self.peak_counters = torch.zeros((batch_size, 2), dtype=torch.int32, device=device)
        self.refine_workspace = (
            RefineWorkspace.make(batch_size * config.refine.proposals, self.refinements[0], device=device)
            if self.refinements
            else None
        )
        self.near: NearNeck | None = None
        if nearby:
            self.near = NearNeck(
                NeckWeights(self.down, self.blocks, self.up, self.out, self.heat),
                shape=self.coarse_shape,
                batch_size=batch_size,
                capacities=nearby,
                impl=impl,
            )
            return
        dense = [
            TableRequest(DenseGrid(shape, batch_size), DenseGrid(shape, batch_size), _KERNEL, (1, 1), (1, 1))
            for shape in (self.coarse_shape, self.fine_shape)
        ]
        coarse, fine = neighbour_tables(dense, impl=impl, device=device)
        options: dict[str, Any] = {"batch_size": batch_size, "impl": impl}
        self.block_maps = [
            [MapConvolution(unit, coarse, spatial_shape=self.coarse_shape, **options) for unit in block]
            for block in self.blocks
        ]
        self.out_map = MapConvolution(
            self.out, fine, spatial_shape=self.fine_shape, heat=self.heat, **options
        )

    def choose_tiles(self, active: Sequence[int]) -> None:
        """Choose tiles for batches like one before; they decide how long a batch takes, not what it gives.

        Args:
            active: cells of each level and list of that batch, as at the end of ``FastBoxes.numbers``.
        """
        levels = len(self.capacities)
        self._rows = [usual_rows(*pair) for pair in zip(active[:levels], self.capacities, strict=True)]
        if self.near is not None:
            self.near.choose_tiles(active[levels:])

    def __call__(self, points: Tensor, lengths: Tensor) -> FastBoxes:
        """Detect objects in a batch of frames.

        Args:
            points: (B, P, 4) float32 x, y, z (metres, LiDAR frame), intensity, on the device.
            lengths: (B,) int32 points of each frame.
        """
        return self.run(points, lengths, lambda _, stage: stage())

    def run(self, points: Tensor, lengths: Tensor, on_stage: StageRunner) -> FastBoxes:
        """As a call, each stage through ``on_stage``, which must run it."""
        state = _State(points, lengths)
        steps: list[tuple[str, Callable[[_State], None]]] = [
            ("pillars", self._pillars),
            ("encoder", self._encode),
            *((f"backbone 1/{2**level}", self._level(level)) for level in range(len(self.stages))),
            ("neck", self._neck),
            ("head", self._head),
            ("proposals", self._propose),
            *((f"refine {step + 1}", self._refine(step)) for step in range(len(self.refinements))),
            ("NMS", self._suppress),
        ]
        for name, step in steps:
            on_stage(name, lambda step=step: step(state))  # type: ignore[misc]
        found: FastBoxes = state.values["found"]
        return found

    def _units(self, stage: nn.Module) -> list[Unit | tuple[Unit, Unit]]:
        parts: list[Unit | tuple[Unit, Unit]] = []
        for part in stage.children():
            if isinstance(part, SparseBlock):
                parts.append(pack_block(part, self.dtype))
            else:
                assert isinstance(part, SparseUnit)
                parts.append(pack_unit(part, self.dtype))
        return parts

    def _pillars(self, state: _State) -> None:
        values = state.values
        values["located"] = locate_points(
            state.points,
            state.lengths,
            self.config.pillars,
            workspace=self.pillar_workspace,
            impl=self.impl,
        )
        grids = self._grids(values["located"].bits)
        if self.near is not None:
            values["near"] = grids.pop()
        values["grids"] = grids

    def _grids(self, bits: Tensor) -> list[FixedGrid]:
        return pyramid(
            bits,
            self.config.pillars.grid_shape,
            self.batch_size,
            # The neck's cells are one more level where it is computed at lists of them.
            [*self.capacities, *self.nearby[:1]],
            [_LEVEL] * (len(self.capacities) - 1 + len(self.nearby[:1])),
            impl=self.impl,
        )

    def _tables(self, values: dict[str, Any], grids: list[FixedGrid]) -> None:
        requests = [TableRequest(grid, grid, _KERNEL, (1, 1), (1, 1)) for grid in grids]
        requests += [
            TableRequest(before, after, _KERNEL, _LEVEL.stride, _LEVEL.padding)
            for before, after in pairwise(grids)
        ]
        into = "all" if self.near is None else values["near"]
        requests.append(TableRequest(grids[-1], into, _KERNEL, _LEVEL.stride, _LEVEL.padding))
        tables = neighbour_tables(requests, impl=self.impl)
        values["own"], values["strided"] = tables[: len(grids)], tables[len(grids) :]

    def _beside(self) -> AbstractContextManager[Any]:
        """Work on a second stream, after what was asked for so far; see :meth:`_join`."""
        if self._side is None:
            return nullcontext()
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self._side)

    def _join(self) -> None:
        """Wait for the second stream."""
        if self._side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side)

    def _encode(self, state: _State) -> None:
        values = state.values
        grids = values["grids"]
        with self._beside():
            self._tables(values, grids)
        values["level -1"] = fixed_encode(
            values["located"], grids[0], self.encoder, dtype=self.dtype, impl=self.impl
        )
        self._join()

    def _level(self, level: int) -> Callable[[_State], None]:
        def run(state: _State) -> None:
            grids: list[FixedGrid] = state.values["grids"]
            own, strided = state.values["own"], state.values["strided"]
            features = state.values[f"level {level - 1}"]
            planning = level == 0 and self.near is not None
            if planning:
                with self._beside():
                    # The neck's lists are made during the first convolutions.
                    assert self.near is not None
                    state.values["plan"] = self.near.plan(state.values["near"])
            for index, part in enumerate(self.stages[level]):
                entering = index == 0 and level > 0
                table = strided[level - 1] if entering else own[level]
                # The tables were made beside the encoder: only the first layer may come right after them.
                ready = level > 0 or index > 0
                output = _Output(table, grids[level].count, self._rows[level])
                features = self._apply(part, features, output, ready)
            state.values[f"level {level}"] = features
            if planning:
                self._join()

        return run

    def _sort(self, values: dict[str, Any]) -> None:
        grids = values["grids"]
        values["pillars"] = sort_points(values["located"], grids[0], impl=self.impl)
        before = grids[0].words.view(self.batch_size, -1, 2)[:, 0, 1]
        numbers = [values["pillars"].invalid, before, *(grid.active for grid in grids)]
        if self.near is not None:
            numbers += [entry.active for entry in values["plan"].lists]
        values["numbers"] = torch.cat(numbers)

    def _apply(
        self, part: Unit | tuple[Unit, Unit], features: Tensor, output: _Output, ready: bool
    ) -> Tensor:
        if isinstance(part, Unit):
            return self._convolve(part, features, output, ready=ready)
        first, second = part
        hidden = self._convolve(first, features, output, ready=ready)
        return self._convolve(second, hidden, output, residual=features)

    def _convolve(
        self,
        unit: Unit,
        features: Tensor,
        output: _Output,
        *,
        residual: Tensor | None = None,
        zero_empty: bool = False,
        ready: bool = True,
    ) -> Tensor:
        return fixed_convolution(
            features,
            unit.weight,
            output.table,
            output.used,
            bias=unit.bias,
            residual=residual,
            relu=unit.relu,
            zero_empty=zero_empty,
            ready=ready,
            impl=self.impl,
            config=unit.tiles(output.rows),
        )

    def _neck(self, state: _State) -> None:
        values = state.values
        sparse = values[f"level {len(self.stages) - 1}"]
        if self.near is not None:
            values["map"] = self.near.map(sparse, values["strided"][-1], values["grids"][-1], values["plan"])
            return
        output = _Output(values["strided"][-1], None, self.batch_size * math.prod(self.coarse_shape))
        coarse = self._convolve(self.down, sparse, output, zero_empty=True)
        for first, second in self.block_maps:
            coarse = second(first(coarse), coarse)
        raised = fixed_up(coarse, sparse, values["grids"][-1], self.up, impl=self.impl)
        values["map"], values["heat"] = self.out_map.with_heat(raised)

    def _head(self, state: _State) -> None:
        values = state.values
        with self._beside():
            # Only the refinement needs points in order, and peaks leave most processors free.
            self._sort(values)
        if self.near is not None:
            values["heat"] = self.near.heat()
        peaks = fixed_peaks(
            values["heat"],
            self.config.head.top_k,
            minimum=self.least_score,
            counters=self.peak_counters,
            impl=self.impl,
        )
        boxes = fixed_boxes(
            values["map"],
            peaks.cells,
            peaks.labels,
            self.boxes,
            spatial_shape=self.fine_shape,
            impl=self.impl,
        )
        values["peaks"], values["boxes"] = peaks, boxes
        self._join()

    def _propose(self, state: _State) -> None:
        settings = self.config.nms
        peaks = state.values["peaks"]
        state.values["proposals 0"] = fixed_suppress(
            state.values["boxes"],
            peaks.scores,
            peaks.labels,
            iou_threshold=settings.proposal_iou,
            score_threshold=self.least_score,
            max_output=self.config.refine.proposals,
            impl=self.impl,
        )

    def _refine(self, step: int) -> Callable[[_State], None]:
        def run(state: _State) -> None:
            proposals: Suppressed = state.values[f"proposals {step}"]
            refined = fixed_refine(
                state.values["pillars"],
                state.values["map"],
                proposals.boxes,
                proposals.labels,
                self.refinements[step],
                map_shape=self.fine_shape,
                pillar_size_m=self.config.pillars.pillar_size_m,
                turn=step == len(self.refinements) - 1,
                workspace=self.refine_workspace,
                impl=self.impl,
            )
            state.values[f"proposals {step + 1}"] = proposals._replace(boxes=refined.boxes)
            state.values["fit"] = refined.fit_logits

        return run

    def _suppress(self, state: _State) -> None:
        settings = self.config.nms
        values = state.values
        proposals: Suppressed = values[f"proposals {len(self.refinements)}"]
        final = fixed_suppress(
            proposals.boxes,
            proposals.scores,
            proposals.labels,
            iou_threshold=settings.iou,
            score_threshold=settings.score_threshold,
            max_output=settings.max_boxes,
            fit_logits=values.get("fit"),
            fit_weight=self.config.head.iou_weight,
            impl=self.impl,
        )
        values["found"] = FastBoxes(final.boxes, final.scores, final.labels, final.counts, values["numbers"])
