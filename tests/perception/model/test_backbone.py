"""Backbones: sparse against masked dense arithmetic, against spconv, and against the dense twin."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.config import BackboneConfig
from perception.model.backbone import DenseBackbone, SparseBackbone
from perception.model.layers import DenseUnit, PointUnit, SparseBlock, SparseUnit, fold_batch_norms
from perception.registry import KINDS
from sparse_core.conv import SparseTensor

CONFIG = BackboneConfig(channels=(8, 12, 16), blocks=(1, 2, 1), impl="reference")
WIDTHS = {"in_channels": 8, "fine_channels": 10, "coarse_channels": 14}


def backbone(config: BackboneConfig = CONFIG, seed: int = 0) -> SparseBackbone | DenseBackbone:
    torch.manual_seed(seed)
    made: SparseBackbone | DenseBackbone = KINDS[config.kind].network.backbone_type(config, **WIDTHS)
    for part in made.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, std=0.1)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.1)
    return made.eval()


def active_cells(share: float, *, batch: int = 2, size: int = 32, seed: int = 0) -> SparseTensor:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(batch, size, size, generator=generator) < share
    features = torch.randn(int(mask.sum()), 8, generator=generator)
    return SparseTensor(features, mask.nonzero().int(), (size, size), batch)


def masked_unit(
    unit: SparseUnit, dense: Tensor, mask: Tensor, skip: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A sparse unit as a dense convolution whose result is kept at the active cells only."""
    weight = unit.conv.weight.permute(0, 3, 1, 2)
    stride, padding = unit.conv.stride, unit.conv.padding
    output = F.conv2d(dense, weight, stride=stride, padding=padding)
    if stride[0] == 2:
        mask = F.max_pool2d(mask, 3, stride=2, padding=1)
    norm = unit.norm
    output = F.batch_norm(output, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
    output = output if skip is None else output + skip
    output = torch.relu(output) if unit.relu else output
    return output * mask, mask


@torch.no_grad()
def by_masks(made: SparseBackbone, pillars: SparseTensor) -> tuple[Tensor, Tensor]:
    dense = pillars.to_dense()
    mask = pillars.with_features(torch.ones(len(pillars), 1)).to_dense()
    for stage in made.stages:
        for layer in stage:
            if isinstance(layer, SparseBlock):
                hidden, _ = masked_unit(layer.first, dense, mask)
                dense, mask = masked_unit(layer.second, hidden, mask, dense)
            else:
                dense, mask = masked_unit(layer, dense, mask)
    return masked_unit(made.lateral, dense, mask)[0], masked_unit(made.down, dense, mask)[0]


@pytest.mark.parametrize("share", [0.0, 0.03, 0.3, 1.0])
def test_sparse_equals_masked_dense(share: float) -> None:
    made, pillars = backbone(), active_cells(share)
    with torch.no_grad():
        maps = made(pillars)
    fine, coarse = by_masks(made, pillars)
    assert maps.fine.shape == (2, 10, 8, 8)
    assert maps.coarse.shape == (2, 14, 4, 4)
    torch.testing.assert_close(maps.fine, fine, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(maps.coarse, coarse, atol=1e-4, rtol=1e-4)


def test_nothing_is_computed_beside_active_cells() -> None:
    one = SparseTensor(torch.ones(1, 8), torch.tensor([[0, 16, 16]], dtype=torch.int32), (32, 32), 1)
    assert 0 < int((backbone()(one).fine != 0).any(dim=1).sum()) <= 9


@pytest.mark.parametrize("share", [0.02, 0.4])
def test_vendor_equals_reference(share: float) -> None:
    pytest.importorskip("spconv", exc_type=ImportError)
    reference, vendor = backbone(), backbone(replace(CONFIG, impl="vendor"), seed=1)
    vendor.load_state_dict(reference.state_dict())
    assert {unit.conv.impl for unit in vendor.modules() if isinstance(unit, SparseUnit)} == {"vendor"}
    pillars = active_cells(share)
    with torch.no_grad():
        expected, found = reference(pillars), vendor(active_cells(share))
    torch.testing.assert_close(found.fine, expected.fine, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.coarse, expected.coarse, atol=1e-4, rtol=1e-4)


def as_dense_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.permute(0, 3, 1, 2) if value.ndim == 4 else value for name, value in state.items()}


def test_dense_twin_is_the_same_network() -> None:
    sparse, dense = backbone(), backbone(replace(CONFIG, kind="dense"))
    assert isinstance(sparse, SparseBackbone)
    assert isinstance(dense, DenseBackbone)
    counts = [sum(value.numel() for value in made.parameters()) for made in (sparse, dense)]
    assert counts[0] == counts[1]
    dense.load_state_dict(as_dense_weights(sparse.state_dict()))
    everywhere = active_cells(1.0)
    with torch.no_grad():
        for found, expected in zip(sparse(everywhere), dense(everywhere), strict=True):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_folding_changes_nothing(kind: str) -> None:
    made, pillars = backbone(replace(CONFIG, kind=kind)), active_cells(0.1)
    with torch.no_grad():
        before = made(pillars)
        fold_batch_norms(made)
        after = made(pillars)
        fold_batch_norms(made)  # nothing is left to fold
        again = made(pillars)
    assert not any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in made.modules())
    for first, second, third in zip(before, after, again, strict=True):
        torch.testing.assert_close(second, first, atol=1e-4, rtol=1e-4)
        assert torch.equal(second, third)


def test_folding_needs_evaluation_mode() -> None:
    with pytest.raises(ValueError, match=r"\.eval\(\)"):
        fold_batch_norms(backbone().train())


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_gradient_reaches_every_parameter(kind: str) -> None:
    made = backbone(replace(CONFIG, kind=kind)).train()
    maps = made(active_cells(0.2))
    (maps.fine.square().sum() + maps.coarse.square().sum()).backward()
    without = [name for name, value in made.named_parameters() if value.grad is None or not value.grad.any()]
    assert without == []


def test_frames_of_a_batch_do_not_mix() -> None:
    both = active_cells(0.1)
    made = backbone()
    with torch.no_grad():
        together = made(both)
        for frame in range(2):
            mine = both.coordinates[:, 0] == frame
            coordinates = both.coordinates[mine].clone()
            coordinates[:, 0] = 0
            alone = made(SparseTensor(both.features[mine], coordinates, (32, 32), 1))
            torch.testing.assert_close(together.fine[frame : frame + 1], alone.fine, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_dense_unit_folds(transposed: bool) -> None:
    unit = DenseUnit(3, 5, stride=2, transposed=transposed).eval()
    nn.init.normal_(unit.norm.running_mean)
    nn.init.uniform_(unit.norm.running_var, 0.5, 2.0)
    inputs = torch.randn(2, 3, 8, 8)
    before = unit(inputs)
    unit.fold()
    torch.testing.assert_close(unit(inputs), before, atol=1e-5, rtol=1e-5)


def test_a_lone_row_can_be_trained_on() -> None:
    unit = PointUnit(3, 4).train()
    expected = unit.eval()(torch.ones(1, 3))
    assert torch.allclose(unit.train()(torch.ones(1, 3)), expected, atol=1e-6)
    assert torch.equal(unit.norm.running_mean, torch.zeros(4))
