"""The folded layers of a network over lists of cells: a gather and one matrix product each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.export.cells import CellRows, Cells
from perception.model.backbone import SparseBackbone
from perception.model.layers import PointUnit, SparseBlock, SparseUnit


class BackboneRows(NamedTuple):
    """What a sparse backbone gives at its last two resolutions."""

    fine: CellRows
    coarse: CellRows


class Rows(nn.Module):
    """A folded :class:`~perception.model.layers.PointUnit` of any number of rows.

    Args:
        unit: of the network.
    """

    def __init__(self, unit: PointUnit) -> None:
        super().__init__()
        weight, bias = unit.folded()
        self.register_buffer("weight", weight.detach().clone())
        self.register_buffer("bias", bias.detach().clone())
        self.weight: Tensor
        self.bias: Tensor

    def forward(self, rows: Tensor) -> Tensor:
        """(N, C_in) to (N, C_out), not negative."""
        return torch.relu(F.linear(rows, self.weight, self.bias))


class Gathered(nn.Module):
    """A folded :class:`~perception.model.layers.SparseUnit`.

    Args:
        unit: of the network.
    """

    def __init__(self, unit: SparseUnit) -> None:
        super().__init__()
        weight = unit.conv.weight.detach()
        self.relu = unit.relu
        self.register_buffer("weight", weight.reshape(len(weight), -1).clone())
        assert unit.conv.bias is not None
        self.register_buffer("bias", unit.conv.bias.detach().clone())
        self.weight: Tensor
        self.bias: Tensor

    def forward(self, features: Tensor, around: Tensor | None, skip: Tensor | None = None) -> Tensor:
        """Features at the output's cells.

        Args:
            features: (M, C_in).
            around: (M', 9) rows of ``features``, M for none; None of a layer that looks at its own cell only.
            skip: (M', C_out) added.
        """
        rows = features
        if around is not None:
            # Not index_select of a flat index: AOTInductor (torch 2.13) computes other products after it.
            rows = F.embedding(around, F.pad(features, (0, 0, 0, 1))).reshape(-1, self.weight.shape[1])
        made = F.linear(rows, self.weight, self.bias)
        made = made if skip is None else made + skip
        return torch.relu(made) if self.relu else made


class GatheredBackbone(nn.Module):
    """A folded sparse backbone, from active cells to what the neck joins.

    Args:
        backbone: of the network.
    """

    def __init__(self, backbone: SparseBackbone) -> None:
        super().__init__()
        self.stages = nn.ModuleList()
        for stage in backbone.stages:
            assert isinstance(stage, nn.Sequential)
            units: list[nn.Module] = []
            for layer in stage:
                if isinstance(layer, SparseBlock):
                    units.append(nn.ModuleList([Gathered(layer.first), Gathered(layer.second)]))
                else:
                    assert isinstance(layer, SparseUnit)
                    units.append(Gathered(layer))
            self.stages.append(nn.ModuleList(units))
        self.lateral, self.down = Gathered(backbone.lateral), Gathered(backbone.down)

    def forward(self, cells: Cells, features: Tensor) -> BackboneRows:
        """From (M, C) features of the active pillars."""
        for number, stage in enumerate(self.stages):
            assert isinstance(stage, nn.ModuleList)
            if number > 0:
                coarser = cells.reached()
                strided = coarser.around(cells, 2)
                cells = coarser
            own = cells.around(cells, 1)
            for place, layer in enumerate(stage):
                if isinstance(layer, Gathered):
                    features = layer(features, strided if number > 0 and place == 0 else own)
                else:
                    assert isinstance(layer, nn.ModuleList)
                    first, second = layer
                    features = second(first(features, own), own, skip=features)
        coarse = cells.reached()
        down = self.down(features, coarse.around(cells, 2))
        return BackboneRows(CellRows(cells, self.lateral(features, None)), CellRows(coarse, down))
