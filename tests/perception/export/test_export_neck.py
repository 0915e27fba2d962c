"""The exported neck, near active cells only, against the dense layers on the whole map."""

from __future__ import annotations

import pytest
import torch

from perception.config import HeadConfig, NeckConfig, PillarConfig
from perception.export.cells import Cells, CellTensor
from perception.export.neck import CellNeck
from perception.model.backbone import BackboneMaps
from perception.model.head import CentreHead
from perception.model.layers import fold_batch_norms
from perception.model.neck import Neck


def listed(mask: torch.Tensor, channels: int) -> CellTensor:
    cells = Cells.where(mask)
    return CellTensor.at(cells, torch.randn(len(cells.active), channels))


@pytest.mark.parametrize(
    ("shape", "share"), [((20, 13), 0.05), ((14, 31), 0.3), ((5, 7), 0.2), ((13, 12), 0.0), ((16, 16), 1.0)]
)
@torch.no_grad()
def test_maps_are_those_of_the_dense_layers(shape: tuple[int, int], share: float) -> None:
    torch.manual_seed(2)
    neck = Neck(NeckConfig(channels=12, blocks=2, out_channels=8))
    config = HeadConfig(classes=("Car", "Van"), channels=10)
    head = CentreHead(config, in_channels=8, grid=PillarConfig().grid)
    for part in (*neck.modules(), *head.modules()):
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(part.running_mean, std=0.3)
            torch.nn.init.normal_(part.bias, std=0.3)
    neck, head = neck.eval(), head.eval()
    fold_batch_norms(neck)
    fold_batch_norms(head)
    rows, columns = shape
    coarse = listed(torch.rand(shape) < share, 12)
    parents = (coarse.cells.places[1:-1, 1:-1] < len(coarse.features)).repeat_interleave(2, 0)
    fine = listed(parents.repeat_interleave(2, 1) & (torch.rand(2 * rows, 2 * columns) < 0.6), 8)

    features, heat = CellNeck(neck, head, shape)(fine, coarse)

    maps = BackboneMaps(fine.to_dense(), coarse.to_dense())
    expected = neck(maps)
    assert torch.allclose(features, expected, atol=1e-5, rtol=1e-5)
    assert torch.allclose(heat, head.heat_logits(expected), atol=1e-5, rtol=1e-5)
