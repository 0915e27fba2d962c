from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparse_core.conv import SparseTensor, build_table

Sparse = Callable[..., SparseTensor]
Cells = Callable[..., Tensor]


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 5)])
@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
@pytest.mark.usefixtures("poisoned_memory")
def test_to_dense_places_every_row(random_cells: Cells, shape: tuple[int, ...], density: float) -> None:
    cells = random_cells(shape, density=density)
    features = torch.randn(len(cells), 3)
    dense = SparseTensor(features, cells, shape, 2).to_dense()
    expected = torch.zeros(2, 3, *shape)
    for row, cell in zip(features, cells.tolist(), strict=True):
        expected[(cell[0], slice(None), *cell[1:])] = row
    assert torch.equal(dense, expected)
    assert dense.is_contiguous()


def test_to_dense_channels_last_and_gradient(random_sparse: Sparse) -> None:
    inputs = random_sparse((4, 5), 3)
    features = inputs.features.requires_grad_()
    dense = inputs.to_dense(channels_last=True)
    assert dense.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(dense, inputs.to_dense())
    weight = torch.randn_like(dense)
    (dense * weight).sum().backward()
    assert features.grad is not None
    assert torch.equal(features.grad, weight.movedim(1, -1)[inputs.coordinates.long().unbind(1)])


def test_sorted_rows_keep_features_with_their_cells(random_cells: Cells) -> None:
    cells = random_cells((6, 7), density=0.5)
    scattered = SparseTensor(torch.randn(len(cells), 2), cells, (6, 7), 2)
    ordered = scattered.sorted_rows()
    assert torch.equal(ordered.to_dense(), scattered.to_dense())
    assert torch.equal(ordered.coordinates, build_table(cells, (6, 7)).coordinates)
    assert torch.equal(ordered.table().rows[torch.argsort(ordered.table().rows)], torch.arange(len(cells)))
    assert torch.equal(ordered.sorted_rows().features, ordered.features)


def test_table_is_built_once_and_shared(random_sparse: Sparse) -> None:
    inputs = random_sparse((6, 7), 2)
    fresh = SparseTensor(inputs.features, inputs.coordinates, (6, 7), 2)
    assert fresh.table() is fresh.table()
    assert fresh.with_features(fresh.features * 2).table() is fresh.table()
    assert len(fresh) == len(fresh.table())


def test_maps_are_cached_by_their_geometry(random_sparse: Sparse) -> None:
    inputs = random_sparse((6, 7), 2)
    assert inputs.submanifold_table((3, 3)) is inputs.submanifold_table([3, 3])
    assert inputs.submanifold_table((3, 3)) is not inputs.submanifold_table((1, 3))
    first, _ = inputs.strided_table((3, 3), (2, 2), (1, 1))
    assert inputs.strided_table((3, 3), (2, 2), (1, 1))[0] is first
    assert inputs.strided_table((3, 3), (2, 2), (1, 1), dilating=False)[0] is not first


@pytest.mark.parametrize(
    ("features", "coordinates", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(3, 3), "one row per coordinate"),
        (torch.zeros(3), torch.zeros(3, 3), r"features must be \(M, C\)"),
        (torch.zeros(2, 3), torch.zeros(2, 4), r"coordinates must be \(M, 3\) for a 2-D grid, got \(2, 4\)"),
    ],
)
def test_wrong_shapes(features: Tensor, coordinates: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseTensor(features, coordinates.int(), (6, 7), 1)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ([2, 0, 0], r"coordinates\[1\] = \(2, 0, 0\) \(batch, \*cell\) lies outside a batch of 2 frames"),
        ([-1, 0, 0], "outside a batch of 2 frames"),
        ([1, 6, 0], r"outside a grid of \(6, 7\) cells"),
        ([1, 0, -3], r"\(1, 0, -3\).* outside a grid"),
    ],
)
def test_cells_outside(cell: list[int], message: str, device: torch.device) -> None:
    cells = torch.tensor([[0, 5, 6], cell], dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match=message):
        SparseTensor(torch.zeros(2, 1, device=device), cells, (6, 7), 2)


def test_a_table_of_more_frames_than_the_batch() -> None:
    table = build_table(torch.tensor([[0, 0, 0], [3, 1, 1]]), (6, 7))
    with pytest.raises(ValueError, match="the table has cells of frame 3"):
        SparseTensor.from_table(torch.zeros(2, 1), table, 3)
    assert len(SparseTensor.from_table(torch.zeros(2, 1), table, 4)) == 2


def test_moved_and_converted(random_sparse: Sparse, device: torch.device) -> None:
    inputs = random_sparse((6, 7), 2)
    table = inputs.table()
    assert (inputs.half().dtype, inputs.float().dtype, inputs.half().double().dtype) == (
        torch.float16,
        torch.float32,
        torch.float64,
    )
    assert inputs.half().table() is table
    moved = inputs.to(device, torch.float32)
    assert (moved.device.type, moved.coordinates.device.type) == (device.type, device.type)
    assert torch.equal(moved.to("cpu").to_dense(), inputs.float().to_dense())


def test_torch_modules_accept_sparse_tensors(random_sparse: Sparse) -> None:
    inputs = random_sparse((6, 7), 4)
    layers = [
        nn.BatchNorm1d(4),
        nn.ReLU(),
        nn.LeakyReLU(),
        nn.GELU(),
        nn.SiLU(),
        nn.Sigmoid(),
        nn.Tanh(),
        nn.Dropout(0.0),
        nn.LayerNorm(4),
        nn.Linear(4, 4),
        nn.Softplus(),
        nn.Hardswish(),
        nn.Identity(),
    ]
    network = nn.Sequential(*layers).double()
    found = network(inputs)
    assert isinstance(found, SparseTensor)
    assert found.coordinates is inputs.coordinates
    assert torch.equal(found.features, copy.deepcopy(network)(inputs.features))
    assert torch.equal(torch.relu(inputs).features, torch.relu(inputs.features))
    assert torch.equal(F.relu(input=inputs).features, torch.relu(inputs.features))
    for wrong in (lambda: torch.softmax(inputs, 0), lambda: F.linear(inputs.features, inputs)):  # type: ignore[arg-type,call-overload]
        with pytest.raises(TypeError, match="with_features"):
            wrong()


def test_repeated_cells() -> None:
    repeated = SparseTensor(torch.zeros(2, 1), torch.zeros(2, 3, dtype=torch.int32), (6, 7), 1)
    with pytest.raises(ValueError, match="must be distinct"):
        repeated.sorted_rows()
    with pytest.raises(ValueError, match="must be distinct and in key order"):
        repeated.table()


def test_torch_cat_names_the_function_for_sparse_tensors(random_sparse: Sparse) -> None:
    maps = random_sparse((6, 6), 3)
    with pytest.raises(TypeError, match=r"cat does not support a SparseTensor: use sparse_core.conv.cat"):
        torch.cat([maps, maps], 1)  # type: ignore[call-overload]
