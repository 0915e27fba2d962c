"""The fast head's reference against the network it stands for, and its arguments."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from perception.config import DetectorConfig, HeadConfig
from perception.geometry import BirdsEyeGrid
from perception.model.head import CentreHead
from perception.model.network import Network
from perception.stages.head import (
    fixed_boxes,
    fixed_heat,
    fixed_peaks,
    fixed_up,
    pack_boxes,
    pack_heat,
    pack_up,
)
from sparse_core.conv import SparseTensor
from sparse_core.conv.grid import FixedGrid, grid_from_cells, linear_cells
from sparse_core.errors import ImplementationError


def as_rows(dense: Tensor) -> Tensor:
    """(B, C, H, W) to (B * H * W, C)."""
    return dense.permute(0, 2, 3, 1).flatten(0, 2)


def as_map(rows: Tensor, frames: int, shape: tuple[int, int]) -> Tensor:
    """(B * H * W, C) to (B, C, H, W)."""
    return rows.view(frames, *shape, -1).permute(0, 3, 1, 2)


def make_head(channels: int = 24, width: int = 20, top_k: int = 30) -> CentreHead:
    torch.manual_seed(0)
    config = HeadConfig(top_k=top_k, channels=width)
    head = CentreHead(
        config, in_channels=channels, grid=BirdsEyeGrid((0.0, -39.68, -3.0, 80.0, 40.0, 1.0), 0.32)
    ).eval()
    # Codes as large as trained ones, so that clamps and headings are exercised.
    torch.nn.init.normal_(head.box.weight, std=1.0)
    return head.requires_grad_(False)


def sparse_level(
    frames: int, shape: tuple[int, int], channels: int, room: int
) -> tuple[SparseTensor, FixedGrid]:
    """A third of the cells active, as a sparse tensor and as a grid with ``room`` more rows than that."""
    generator = torch.Generator().manual_seed(1)
    cells = torch.cartesian_prod(*(torch.arange(size) for size in (frames, *shape)))
    coordinates = cells[torch.rand(len(cells), generator=generator) < 0.3].to(torch.int32)
    level = SparseTensor(
        torch.randn(len(coordinates), channels, generator=generator), coordinates, shape, frames
    )
    grid = grid_from_cells(linear_cells(coordinates, shape), shape, frames, max(1, len(coordinates) + room))
    return level, grid


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@torch.no_grad()
def test_up_is_the_neck_with_the_lateral_map(tiny_network: Network, dtype: torch.dtype) -> None:
    tiny_network.fold()
    level, grid = sparse_level(2, (10, 14), 16, room=4)
    coarse = torch.randn(2, 16, 5, 7, generator=torch.Generator().manual_seed(2))
    fine = tiny_network.backbone.lateral(level).to_dense()
    wanted = torch.relu(tiny_network.neck.up(coarse, skip=fine))
    weights = pack_up(tiny_network.neck.up, tiny_network.backbone.lateral, dtype)
    rows = torch.full((grid.capacity, 16), float("nan"), dtype=dtype)
    rows[: len(level)] = level.features.to(dtype)
    found = fixed_up(as_rows(coarse).to(dtype), rows, grid, weights)
    assert found.dtype == dtype
    tolerance = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]
    torch.testing.assert_close(
        as_map(found.float(), 2, (10, 14)), wanted, atol=tolerance * float(wanted.max()), rtol=0
    )


@torch.no_grad()
def test_cells_beyond_the_capacity_get_no_lateral_part(tiny_network: Network) -> None:
    tiny_network.fold()
    level, grid = sparse_level(1, (6, 8), 16, room=-4)
    assert int(grid.active) == grid.capacity + 4
    coarse = torch.randn(12, 16, generator=torch.Generator().manual_seed(2))
    weights = pack_up(tiny_network.neck.up, tiny_network.backbone.lateral, torch.float32)
    found = fixed_up(coarse, level.features[:-4].contiguous(), grid, weights)
    kept = SparseTensor(level.features[:-4], level.coordinates[:-4], (6, 8), 1)
    fine = tiny_network.backbone.lateral(kept).to_dense()
    raised = torch.relu(tiny_network.neck.up(as_map(coarse, 1, (3, 4)), skip=fine))
    torch.testing.assert_close(as_map(found, 1, (6, 8)), raised, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_heat_is_the_sigmoid_of_the_logits(dtype: torch.dtype) -> None:
    head = make_head()
    features = torch.randn(2, 24, 6, 7, generator=torch.Generator().manual_seed(3))
    wanted = torch.sigmoid(head.heat_logits(features))
    found = fixed_heat(as_rows(features).to(dtype), pack_heat(head, dtype), spatial_shape=(6, 7))
    assert found.shape == wanted.shape
    assert found.dtype == torch.float32
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(found, wanted, atol=0, rtol=tolerance)


def naive_peaks(heat: Tensor, top_k: int) -> list[tuple[float, int, int]]:
    """Score, label and cell of one frame's peaks by definition, in loops."""
    found = []
    classes, rows, columns = heat.shape
    for label in range(classes):
        for y in range(rows):
            for x in range(columns):
                window = heat[label, max(0, y - 1) : y + 2, max(0, x - 1) : x + 2]
                score = float(heat[label, y, x])
                if score > 0 and float(window.max()) == score:
                    found.append((-score, label, y * columns + x))
    return [(-score, label, cell) for score, label, cell in sorted(found)[:top_k]]


@settings(max_examples=30)
@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([1, 7, 400]),
)
def test_peaks_by_definition(seed: int, classes: int, rows: int, columns: int, top_k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # A few levels only, so that there are ties, plateaus and zeros.
    heat = torch.randint(0, 6, (2, classes, rows, columns), generator=generator) / 8
    peaks = fixed_peaks(heat, top_k)
    assert all(part.shape == (2, top_k) for part in peaks)
    for frame in range(2):
        wanted = naive_peaks(heat[frame], top_k)
        wanted += [(0.0, -1, 0)] * (top_k - len(wanted))
        assert list(zip(*(part[frame].tolist() for part in peaks), strict=True)) == wanted


def test_not_a_number_and_its_neighbours_are_no_peaks() -> None:
    heat = torch.zeros(1, 1, 5, 9)
    heat[0, 0, 2, 2], heat[0, 0, 2, 3], heat[0, 0, 2, 7] = float("nan"), 0.9, 0.5
    peaks = fixed_peaks(heat, 3)
    assert peaks.labels.tolist() == [[0, -1, -1]]
    assert peaks.cells.tolist() == [[2 * 9 + 7, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_heat_peaks_and_boxes_are_the_proposals(dtype: torch.dtype) -> None:
    head, shape = make_head(), (9, 11)
    features = torch.randn(2, 24, *shape, generator=torch.Generator().manual_seed(4)).to(dtype).float()
    rounded = make_head().to(dtype).float()
    wanted = rounded.propose(features, rounded.heat_logits(features))
    rows = as_rows(features).to(dtype)
    peaks = fixed_peaks(fixed_heat(rows, pack_heat(head, dtype), spatial_shape=shape), 30)
    boxes = fixed_boxes(rows, peaks.cells, peaks.labels, pack_boxes(head, dtype), spatial_shape=shape)
    if dtype == torch.float32:
        torch.testing.assert_close(peaks.scores, wanted.scores, atol=1e-6, rtol=1e-5)
        assert torch.equal(peaks.labels, wanted.labels.to(torch.int32))
        torch.testing.assert_close(boxes, wanted.boxes, atol=1e-4, rtol=1e-5)
        return
    # Rounded hidden layers may exchange neighbours in the order; codes are read at the same cells.
    assert (peaks.labels >= 0).all()
    cells = torch.stack(
        [torch.arange(2)[:, None].expand(2, 30), peaks.cells // shape[1], peaks.cells % shape[1]], dim=2
    ).view(-1, 3)
    labels = peaks.labels.flatten().long()
    decoded = rounded.decode(rounded.box_codes(features, cells, labels), cells, labels).view(2, 30, 7)
    torch.testing.assert_close(boxes[..., :6], decoded[..., :6], atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(boxes[..., 6].sin(), decoded[..., 6].sin(), atol=5e-2, rtol=0)


def test_no_box_where_there_is_no_label() -> None:
    head, shape = make_head(), (4, 5)
    rows = torch.randn(20, 24, generator=torch.Generator().manual_seed(5))
    cells = torch.tensor([[0, 19, 7]], dtype=torch.int32)
    labels = torch.tensor([[2, 0, -1]], dtype=torch.int32)
    boxes = fixed_boxes(rows, cells, labels, pack_boxes(head, torch.float32), spatial_shape=shape)[0]
    assert boxes[2].tolist() == [0.0] * 7
    where = torch.tensor([[0, 0, 0], [0, 3, 4]])
    wanted = head.decode(
        head.box_codes(as_map(rows, 1, shape), where, labels[0, :2].long()), where, labels[0, :2]
    )
    torch.testing.assert_close(boxes[:2], wanted, atol=1e-5, rtol=1e-5)


def test_weights_are_packed_once_and_padded_with_zeros() -> None:
    head = make_head(channels=40, width=20)
    weights = pack_boxes(head, torch.float16)
    assert weights.hidden.shape == (9, 64, 32)
    assert weights.middle.shape == (32, 32)
    assert weights.box.shape == (32, 32)
    matrix = head.box_hidden.weight.view(20, 9, 40).half()
    assert torch.equal(weights.hidden[:, :40, :20], matrix.permute(1, 2, 0))
    assert int(weights.hidden.count_nonzero()) == int(matrix.count_nonzero())
    assert weights.hidden_bias.dtype == torch.float32
    assert pack_heat(head, torch.float16).heat.shape == (32, 16)


def test_packing_refuses_what_the_kernels_do_not_compute(tiny_network: Network) -> None:
    up, lateral = tiny_network.neck.up, tiny_network.backbone.lateral
    with pytest.raises(ValueError, match=r"neck\.up has a batch norm"):
        pack_up(up, lateral, torch.float16)
    tiny_network.fold()
    with pytest.raises(TypeError, match=r"float16, bfloat16 or float32, got torch\.float64"):
        pack_up(up, lateral, torch.float64)
    with pytest.raises(ValueError, match="must be a transposed 2x2"):
        pack_up(tiny_network.neck.out, lateral, torch.float16)
    with pytest.raises(ValueError, match="must be a 1x1 convolution"):
        pack_up(up, tiny_network.backbone.down, torch.float16)


def test_arguments_that_do_not_fit(tiny_network: Network, tiny_config: DetectorConfig) -> None:
    tiny_network.fold()
    weights = pack_up(tiny_network.neck.up, tiny_network.backbone.lateral, torch.float32)
    level, grid = sparse_level(1, (6, 8), 16, room=0)
    coarse = torch.zeros(12, 16)
    with pytest.raises(ValueError, match="coarse must have 12 rows"):
        fixed_up(coarse[:-1], level.features, grid, weights)
    with pytest.raises(ValueError, match="fine must have the grid's"):
        fixed_up(coarse, level.features[:-1], grid, weights)
    with pytest.raises(TypeError, match=r"the weights' type torch\.float32, got torch\.float16"):
        fixed_up(coarse.half(), level.features, grid, weights)
    with pytest.raises(ValueError, match="even number of rows and columns"):
        fixed_up(coarse, level.features, sparse_level(1, (5, 8), 16, room=0)[1], weights)
    head = make_head()
    with pytest.raises(ValueError, match=r"features must be \(rows, 24\)"):
        fixed_heat(torch.zeros(12, 23), pack_heat(head, torch.float32), spatial_shape=(3, 4))
    with pytest.raises(ValueError, match=r"a multiple of 3 \* 5 rows, got 12"):
        fixed_heat(torch.zeros(12, 24), pack_heat(head, torch.float32), spatial_shape=(3, 5))
    boxes = pack_boxes(head, torch.float32)
    with pytest.raises(TypeError, match="cells must be int32"):
        fixed_boxes(torch.zeros(12, 24), torch.zeros(1, 2), torch.zeros(1, 2), boxes, spatial_shape=(3, 4))
    number = torch.zeros(2, 2, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"cells must be \(1, K\)"):
        fixed_boxes(torch.zeros(12, 24), number, number, boxes, spatial_shape=(3, 4))
    with pytest.raises(TypeError, match="heat must be float32"):
        fixed_peaks(torch.zeros(1, 1, 2, 2, dtype=torch.float64), 1)
    with pytest.raises(ValueError, match="top_k must be at least 1"):
        fixed_peaks(torch.zeros(1, 1, 2, 2), 0)
    with pytest.raises(ValueError, match=r"counters must be \(1, 2\) int32, got torch.int64 \(1, 2\)"):
        fixed_peaks(torch.zeros(1, 1, 2, 2), 1, counters=torch.zeros((1, 2), dtype=torch.int64))
    with pytest.raises(ValueError, match="not empty"):
        fixed_peaks(torch.zeros(0, 1, 2, 2), 1)


def test_implementations_that_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    heat = torch.zeros(1, 1, 2, 2)
    with pytest.raises(ImplementationError, match="no vendor implementation"):
        fixed_peaks(heat, 1, impl="vendor")
    with pytest.raises(ValueError, match="impl must be one of"):
        fixed_peaks(heat, 1, impl="fast")  # type: ignore[arg-type]
    monkeypatch.setattr("sparse_core.kernels.op.module_available", lambda name: False)
    with pytest.raises(ImplementationError, match="needs triton, which is not installed"):
        fixed_peaks(heat, 1, impl="triton")
