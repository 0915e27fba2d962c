"""Neck and heat map near active cells for export; other cells have the values of an empty scene."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.export.cells import Cells, CellTensor
from perception.model.head import CentreHead
from perception.model.layers import DenseBlock, DenseUnit
from perception.model.neck import Neck
from perception.stages.neck.empty import EmptyMaps, EmptyScene, dilated, list_reach


class _RowLayer(nn.Module):
    """A folded layer as a matrix product of rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        assert bias is not None
        self.register_buffer("weight", weight.detach().clone())
        self.register_buffer("bias", bias.detach().clone())
        self.weight: Tensor
        self.bias: Tensor

    def forward(self, rows: Tensor) -> Tensor:
        """Compute (M, C_out) from rows of K values, of any shape."""
        return F.linear(rows.reshape(-1, self.weight.shape[1]), self.weight, self.bias)


class CellNeck(nn.Module):
    """A folded neck and its heat map.

    Args:
        neck, head: parts of the network.
        shape: rows and columns of the coarse map.
    """

    def __init__(self, neck: Neck, head: CentreHead, shape: tuple[int, int]) -> None:
        super().__init__()
        geometry = EmptyMaps(shape, list_reach(len(neck.blocks)))
        blocks = [block for block in neck.blocks if isinstance(block, DenseBlock)]
        self.blocks = nn.ModuleList(
            nn.ModuleList([_windows(block.first), _windows(block.second)]) for block in blocks
        )
        up = neck.up.conv
        assert up.bias is not None
        self.up = _RowLayer(up.weight.permute(2, 3, 1, 0).flatten(0, 2), up.bias.repeat(4))
        self.out = _windows(neck.out)
        self.heat_hidden, self.heat = _point(head.heat_hidden), _point(head.heat)
        with torch.no_grad():
            empty = EmptyScene.of(neck, head, geometry.small)
        for number, layer in enumerate([*empty.inputs, empty.raised]):
            # The last row of zeros is for cells beyond the edge.
            self.register_buffer(f"empty_{number}", F.pad(layer, (0, 0, 0, 1)).contiguous())
        self.register_buffer("empty_features", empty.features.contiguous())
        self.empty_features: Tensor
        # Index into the empty map for each cell of the padded large map; the border has the row of zeros.
        places = {"elsewhere": geometry.every_cell(), "elsewhere_fine": geometry.every_finer_cell()}
        for (name, cells), count in zip(places.items(), (geometry.cells, 4 * geometry.cells), strict=True):
            self.register_buffer(name, F.pad(cells, (1, 1, 1, 1), value=count))
        self.elsewhere: Tensor
        self.elsewhere_fine: Tensor

    def forward(self, fine: CellTensor, coarse: CellTensor) -> tuple[Tensor, Tensor]:
        """Compute the map (1, C, H, W) and its heat logits (1, classes, H, W) from the backbone's output."""
        cells, values = self._filled(coarse.cells, self.elsewhere), self._table(coarse.features, 0)
        for number, block in enumerate(self.blocks):
            assert isinstance(block, nn.ModuleList)
            first, second = block
            middle = self._wider(cells)
            after = self._wider(middle)
            hidden = self._table(
                torch.relu(first(F.embedding(middle.around(cells, 1), values))), 2 * number + 1
            )
            # The centre of a window is the cell itself.
            skip = F.embedding(after.around(cells, 1)[:, 4], values)
            made = torch.relu(second(F.embedding(after.around(middle, 1), hidden)) + skip)
            cells, values = after, self._table(made, 2 * number + 2)
        below = self._below(cells)
        sides = F.pad(fine.features, (0, 0, 0, 1))
        raised = self.up(values[: cells.active.shape[0]]).reshape(-1, sides.shape[1])
        raised = torch.relu(raised + F.embedding(self._sides(cells, fine.cells), sides))
        last = Cells.where(dilated((below < raised.shape[0])[None])[0])
        table = self._table(raised, 2 * len(self.blocks) + 1)
        windows = last.around(Cells(last.active, self._edged(below, table), last.shape), 1)
        features = torch.cat([torch.relu(self.out(F.embedding(windows, table))), self.empty_features])
        logits = self.heat(torch.relu(self.heat_hidden(features)))
        places = self._filled(last, self.elsewhere_fine).places[1:-1, 1:-1]
        return _map(features, places), _map(logits, places)

    def _table(self, rows: Tensor, layer: int) -> Tensor:
        """Append the rows of the empty scene and a row of zeros to the rows of a layer."""
        empty = getattr(self, f"empty_{layer}")
        assert isinstance(empty, Tensor)
        return torch.cat([rows, empty])

    @staticmethod
    def _filled(cells: Cells, elsewhere: Tensor) -> Cells:
        """Point inactive cells to the rows of the empty scene."""
        count = cells.active.shape[0]
        return cells._replace(places=torch.where(cells.places < count, cells.places, elsewhere + count))

    def _wider(self, cells: Cells) -> Cells:
        """Return the cells within one cell of these."""
        near = cells.places[1:-1, 1:-1] < cells.active.shape[0]
        return self._filled(Cells.where(dilated(near[None])[0]), self.elsewhere)

    @staticmethod
    def _below(cells: Cells) -> Tensor:
        """Return (2H, 2W) rows of the finer cells: ``4 * row + parity`` of their coarse cell."""
        rows, columns = cells.shape
        parity = torch.tensor([[0, 1], [2, 3]])[None, :, None]
        fourfold = 4 * cells.places[1:-1, 1:-1].reshape(rows, 1, columns, 1)
        return (fourfold + parity).reshape(2 * rows, 2 * columns)

    @staticmethod
    def _edged(places: Tensor, table: Tensor) -> Tensor:
        """Pad places with the last row of a table."""
        last = table.shape[0] - 1
        return F.pad(places - last, (1, 1, 1, 1)) + last

    @staticmethod
    def _sides(cells: Cells, fine: Cells) -> Tensor:
        """Return (4 M,) fine rows of the four cells below each cell; one past the end for inactive ones."""
        columns = cells.shape[1]
        row, column = cells.active // columns * 2 + 1, cells.active % columns * 2 + 1
        width = fine.shape[1] + 2
        corners = torch.tensor([0, 1, width, width + 1])
        return fine.places.reshape(-1)[((row * width + column)[:, None] + corners).reshape(-1)]


def _windows(unit: DenseUnit) -> _RowLayer:
    """Convert a 3x3 layer."""
    return _RowLayer(unit.conv.weight.permute(0, 2, 3, 1).flatten(1), unit.conv.bias)


def _point(layer: nn.Conv2d) -> _RowLayer:
    """Convert a 1x1 layer."""
    return _RowLayer(layer.weight[:, :, 0, 0], layer.bias)


def _map(rows: Tensor, places: Tensor) -> Tensor:
    """Arrange rows as a map (1, C, H, W) by places (H, W)."""
    return F.embedding(places, rows)[None].permute(0, 3, 1, 2)
