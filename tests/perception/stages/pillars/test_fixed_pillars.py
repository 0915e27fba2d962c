"""Fixed pillars in plain torch: against the pillars and the encoder of the dynamic path."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from pillar_frames import batch_of, encoded, encoder_of, in_order
from torch import Tensor

from perception.config import PillarConfig
from perception.model.encoder import PillarEncoder
from perception.model.layers import fold_batch_norms
from perception.model.pillars import make_pillars
from perception.stages.pillars import (
    EncoderWeights,
    FixedPillars,
    PillarWorkspace,
    fixed_encode,
    fixed_pillars,
    locate_points,
    sort_points,
)
from sparse_core.conv.grid import grid_from_bits
from sparse_core.errors import ImplementationError

CONFIG = PillarConfig(range_m=(0.0, -8.0, -3.0, 16.0, 8.0, 1.0), pillar_size_m=0.5, channels=16)
KITTI = PillarConfig()


def cloud(count: int, seed: int, config: PillarConfig = CONFIG, *, margin_m: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.tensor([*config.range_m[:3], 0.0]), torch.tensor([*config.range_m[3:], 1.0])
    return low - margin_m + torch.rand((count, 4), generator=generator) * (high - low + 2 * margin_m)


def counts_of(pillars: FixedPillars) -> Tensor:
    return (pillars.offsets[1:] - pillars.offsets[:-1])[: int(pillars.grid.count)]


def same_as_dynamic(found: FixedPillars, frames: list[Tensor], config: PillarConfig) -> None:
    wanted = make_pillars(frames, config)
    rows = int(found.grid.count)
    assert torch.equal(found.grid.coordinates()[:rows], wanted.table.coordinates)
    assert torch.equal(counts_of(found).long(), wanted.counts)
    points = found.points[: int(found.kept)]
    found_rows = torch.repeat_interleave(counts_of(found).long())
    assert torch.equal(in_order(points, found_rows), in_order(wanted.points, wanted.rows))
    assert torch.equal(found.invalid.long(), wanted.invalid)
    assert (found.offsets[rows:] == found.kept).all()


@pytest.mark.parametrize("config", [CONFIG, KITTI, replace(KITTI, pillar_size_m=0.075)])
def test_rows_and_points_are_those_of_make_pillars(config: PillarConfig) -> None:
    bad = cloud(40, 3, config)
    bad[torch.arange(0, 40, 3), torch.arange(0, 40, 3) % 4] = torch.nan
    bad[1, 3], bad[2, 0] = torch.inf, -torch.inf
    frames = [cloud(900, 0, config), bad, cloud(0, 0), cloud(400, 1, config) * 0.02]
    same_as_dynamic(fixed_pillars(*batch_of(frames, 0.25), config, 2000), frames, config)


def test_points_on_lines_of_the_grid_and_at_its_edges() -> None:
    steps = torch.arange(497) * torch.tensor(KITTI.pillar_size_m) + torch.tensor(KITTI.range_m[1])
    around = [steps, steps.nextafter(torch.tensor(-100.0)), steps.nextafter(torch.tensor(100.0))]
    y = torch.cat(around)
    frame = torch.stack([y + 39.68, y, torch.zeros_like(y), torch.zeros_like(y)], dim=1)
    same_as_dynamic(fixed_pillars(*batch_of([frame], 0.25), KITTI, 3000), [frame], KITTI)


@pytest.mark.parametrize("folded", [False, True])
def test_features_are_those_of_the_encoder(folded: bool) -> None:
    frames = [torch.cat([cloud(900, 0), cloud(300, 1) * 0.02]), cloud(0, 0), cloud(50, 2)]
    encoder = encoder_of(CONFIG)
    with torch.no_grad():
        wanted = encoder(make_pillars(frames, CONFIG)).features
    if folded:
        fold_batch_norms(encoder)
    weights = EncoderWeights.from_encoder(encoder)
    _, found = encoded(*batch_of(frames, 0.25), CONFIG, 1500, weights)
    assert found.shape == (1500, 16)
    found = found[: len(wanted)]
    assert (found - wanted).norm() < 1e-6 * wanted.norm()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    out = torch.empty((1500, 16), dtype=torch.bfloat16)
    batch = batch_of(frames, 0.25)
    assert encoded(*batch, CONFIG, 1500, weights, dtype=torch.bfloat16, out=out)[1] is out
    torch.testing.assert_close(out[: len(wanted)].float(), wanted, rtol=1e-2, atol=1e-2)


def test_the_order_of_points_changes_no_bit() -> None:
    frame = torch.cat([cloud(500, 0), cloud(300, 1) * 0.02])
    weights = EncoderWeights.from_encoder(encoder_of(CONFIG))
    results = []
    for seed in range(4):
        order = torch.randperm(len(frame), generator=torch.Generator().manual_seed(seed))
        pillars, features = encoded(*batch_of([frame[order]], 0.25), CONFIG, 900, weights)
        # Products of matrices on a CPU may depend on the row; whole numbers and maxima may not.
        results.append((pillars, features[: int(pillars.grid.count)]))
    for pillars, features in results[1:]:
        assert torch.equal(pillars.offsets, results[0][0].offsets)
        torch.testing.assert_close(features, results[0][1], rtol=1e-6, atol=1e-6)


def test_pillars_beyond_the_capacity_are_left_out() -> None:
    frames = [cloud(300, 0), cloud(300, 1)]
    whole = fixed_pillars(*batch_of(frames, 0.25), CONFIG, 700)
    rows = int(whole.grid.count)
    for capacity in (1, 100, rows - 1, rows, rows + 1):
        pillars = fixed_pillars(*batch_of(frames, 0.25), CONFIG, capacity)
        kept = min(rows, capacity)
        assert (int(pillars.grid.count), int(pillars.grid.active)) == (kept, rows)
        assert torch.equal(pillars.offsets[: kept + 1], whole.offsets[: kept + 1])
        assert int(pillars.kept) == int(whole.offsets[kept])
        count = int(pillars.kept)
        assert torch.equal(pillars.points[:count], whole.points[:count])


def test_a_workspace_serves_many_frames() -> None:
    workspace = PillarWorkspace.make(CONFIG, 2)
    for seed in range(3):
        frames = [cloud(200, seed), cloud(100 * seed, seed + 9)]
        pillars = fixed_pillars(*batch_of(frames, 0.25), CONFIG, 400, workspace=workspace)
        same_as_dynamic(pillars, frames, CONFIG)
        assert not workspace.counts.any()
        assert not workspace.bits.any()
        assert not workspace.block_points.any()
        assert not workspace.invalid.any()
        assert not workspace.sums.any()
    located = locate_points(*batch_of(frames, 0.25), CONFIG, workspace=workspace)
    assert int(workspace.counts.sum()) == int((located.cells >= 0).sum()) > 0
    assert torch.equal(workspace.sums[:, 3], workspace.counts.long())
    assert located.bits.any()
    peaks, totals = workspace.accumulators(400, 8)
    assert (peaks.dtype, totals.dtype) == (torch.int32, torch.int64)
    assert workspace.accumulators(400, 8)[0] is peaks
    assert workspace.accumulators(401, 8)[0].shape == (401, 8)
    totals += 1
    workspace.clear()
    assert not workspace.counts.any()
    assert not workspace.sums.any()
    assert not totals.any()


def test_counters_of_blocks_are_as_many_as_a_program_adds_up() -> None:
    assert PillarWorkspace.make(CONFIG, 1).copies == 8
    small, large = PillarWorkspace.make(KITTI, 1), PillarWorkspace.make(replace(KITTI, pillar_size_m=0.04), 1)
    assert (small.copies, large.copies) == (8, 1)
    for workspace in (small, large):
        blocks = len(workspace.block_points) // workspace.copies
        assert len(workspace.block_points) <= 2048
        assert blocks * workspace.block_cells >= len(workspace.counts)


def test_bad_arguments_are_refused() -> None:
    points, lengths = batch_of([cloud(10, 0)], 0.25)
    with pytest.raises(ValueError, match=r"points must have shape \(B, P, 4\)"):
        fixed_pillars(points[0], lengths, CONFIG, 5)
    with pytest.raises(ValueError, match=r"lengths must have shape \(1,\)"):
        fixed_pillars(points, lengths.repeat(2), CONFIG, 5)
    with pytest.raises(ValueError, match="contiguous"):
        fixed_pillars(points[:, ::2], lengths, CONFIG, 5)
    with pytest.raises(TypeError, match="points must be float32"):
        fixed_pillars(points.double(), lengths, CONFIG, 5)
    with pytest.raises(TypeError, match="lengths must be int32"):
        fixed_pillars(points, lengths.long(), CONFIG, 5)
    with pytest.raises(ValueError, match="workspace is for"):
        fixed_pillars(points, lengths, CONFIG, 5, workspace=PillarWorkspace.make(KITTI, 1))
    with pytest.raises(ImplementationError, match="no vendor implementation"):
        fixed_pillars(points, lengths, CONFIG, 5, impl="vendor")
    with pytest.raises(ValueError, match=r"more than 2\^31 - 1"):
        PillarWorkspace.make(replace(CONFIG, pillar_size_m=1e-4), 100)
    located = locate_points(points, lengths, CONFIG)
    other = grid_from_bits(PillarWorkspace.make(KITTI, 1).bits, KITTI.grid_shape, 1, 5)
    with pytest.raises(ValueError, match="the points were located on"):
        sort_points(located, other)
    grid = grid_from_bits(located.bits, CONFIG.grid_shape, 1, 5)
    weights = EncoderWeights.from_encoder(encoder_of(CONFIG))
    with pytest.raises(ValueError, match="the points were located on"):
        fixed_encode(located, other, weights)
    with pytest.raises(TypeError, match="dtype must be"):
        fixed_encode(located, grid, weights, dtype=torch.float64)
    with pytest.raises(ValueError, match="out must be"):
        fixed_encode(located, grid, weights, out=torch.empty(4, 16, dtype=torch.float16))
    with pytest.raises(ValueError, match="evaluation mode"):
        EncoderWeights.from_encoder(PillarEncoder(CONFIG))
