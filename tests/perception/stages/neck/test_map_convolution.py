"""Convolutions of whole maps: plain torch and the CUDA kernel against torch's own convolution."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from perception.config import HeadConfig
from perception.geometry import BirdsEyeGrid
from perception.model.head import CentreHead
from perception.stages.backbone.units import Unit
from perception.stages.head import fixed_heat, pack_heat
from perception.stages.head.types import HeatWeights
from perception.stages.neck import MapConvolution
from sparse_core.conv.grid import DenseGrid, TableRequest, neighbour_tables
from sparse_core.errors import ImplementationError


def unit_of(
    channels_in: int, channels_out: int, *, bias: bool = True, relu: bool = True, seed: int = 0
) -> Unit:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn((9, channels_in, channels_out), generator=generator) / (9 * channels_in) ** 0.5
    return Unit(weight, torch.randn(channels_out, generator=generator) if bias else None, relu)


def maps_of(batch_size: int, shape: tuple[int, int], channels: int, seed: int = 1) -> Tensor:
    cells = batch_size * shape[0] * shape[1]
    return torch.randn((cells, channels), generator=torch.Generator().manual_seed(seed))


def table_of(batch_size: int, shape: tuple[int, int], device: torch.device | str = "cpu") -> Tensor:
    grid = DenseGrid(shape, batch_size)
    return neighbour_tables([TableRequest(grid, grid, (3, 3), (1, 1), (1, 1))], device=torch.device(device))[
        0
    ]


def heat_of(channels: int, dtype: torch.dtype, classes: int = 3) -> HeatWeights:
    torch.manual_seed(2)
    config = replace(HeadConfig(), classes=tuple(f"kind {number}" for number in range(classes)))
    return pack_heat(
        CentreHead(
            config, in_channels=channels, grid=BirdsEyeGrid((0.0, 0.0, -3.0, 80.0, 40.0, 1.0), 0.32)
        ).eval(),
        dtype,
    )


def convolved(features: Tensor, unit: Unit, shape: tuple[int, int], residual: Tensor | None = None) -> Tensor:
    """By torch, in float64."""
    channels_in, channels_out = unit.weight.shape[1:]
    image = features.double().view(-1, *shape, channels_in).permute(0, 3, 1, 2)
    kernel = unit.weight.double().view(3, 3, channels_in, channels_out).permute(3, 2, 0, 1)
    bias = None if unit.bias is None else unit.bias.double()
    found = nn.functional.conv2d(image, kernel, bias, padding=1).permute(0, 2, 3, 1).flatten(0, 2)
    if residual is not None:
        found = found + residual.double()
    return found.relu() if unit.relu else found


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("batch_size", "shape"), [(1, (5, 7)), (3, (4, 1))])
def test_the_reference_is_a_convolution(batch_size: int, shape: tuple[int, int], bias: bool) -> None:
    unit, features = unit_of(16, 24, bias=bias, relu=bias), maps_of(batch_size, shape, 16)
    residual = maps_of(batch_size, shape, 24, 5)
    made = MapConvolution(
        unit, table_of(batch_size, shape), spatial_shape=shape, batch_size=batch_size, impl="reference"
    )
    assert not made.fused
    for addend in (None, residual):
        wanted = convolved(features, unit, shape, addend).float()
        torch.testing.assert_close(made(features, addend), wanted, rtol=1e-5, atol=1e-5)


def test_the_heat_map_is_that_of_the_result() -> None:
    shape, unit = (6, 4), unit_of(96, 96)
    heat = heat_of(96, torch.float32)
    made = MapConvolution(unit, table_of(2, shape), spatial_shape=shape, batch_size=2, heat=heat)
    found, scores = made.with_heat(maps_of(2, shape, 96))
    assert torch.equal(found, made(maps_of(2, shape, 96)))
    assert torch.equal(scores, fixed_heat(found, heat, spatial_shape=shape))
    assert scores.shape == (2, heat.classes, *shape)


def test_bad_arguments_are_refused() -> None:
    unit = unit_of(16, 16)
    with pytest.raises(
        ValueError, match=r"a table of \(9, 20\) for 1 maps of \(4, 5\), got 9 taps and \(9, 24\)"
    ):
        MapConvolution(unit, table_of(1, (4, 6)), spatial_shape=(4, 5))
    with pytest.raises(ValueError, match="got 8 taps"):
        MapConvolution(unit._replace(weight=unit.weight[1:]), table_of(1, (4, 5)), spatial_shape=(4, 5))
    made = MapConvolution(unit, table_of(1, (4, 5)), spatial_shape=(4, 5))
    with pytest.raises(ValueError, match="was made without heat"):
        made.with_heat(maps_of(1, (4, 5), 16))
    with pytest.raises(ImplementationError, match=r"needs CUDA tensors|not installed"):
        MapConvolution(unit, table_of(1, (4, 5)), spatial_shape=(4, 5), impl="triton")(maps_of(1, (4, 5), 16))


def on_gpu(unit: Unit, dtype: torch.dtype, device: torch.device) -> Unit:
    return Unit(unit.weight.to(device, dtype), None if unit.bias is None else unit.bias.to(device), unit.relu)


CASES = [
    (1, (62, 54), 128, 128),
    (1, (124, 108), 96, 96),
    (1, (1, 1), 64, 64),
    (3, (7, 9), 16, 192),
    (2, (8, 33), 48, 64),
    (1, (80, 56), 128, 64),
]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("batch_size", "shape", "channels_in", "channels_out"), CASES)
def test_the_cuda_kernel_equals_the_reference(
    cuda: torch.device,
    batch_size: int,
    shape: tuple[int, int],
    channels_in: int,
    channels_out: int,
    dtype: torch.dtype,
) -> None:
    if torch.cuda.get_device_capability(cuda) != (9, 0):
        pytest.skip("the kernel is for Hopper GPUs")
    table = table_of(batch_size, shape, cuda)
    for bias, relu, added in ((True, True, True), (False, False, False)):
        unit = on_gpu(unit_of(channels_in, channels_out, bias=bias, relu=relu), dtype, cuda)
        features = maps_of(batch_size, shape, channels_in).to(cuda, dtype)
        residual = maps_of(batch_size, shape, channels_out, 5).to(cuda, dtype) if added else None
        made = MapConvolution(unit, table, spatial_shape=shape, batch_size=batch_size)
        assert made.fused
        found = made(features, residual)
        wanted = convolved(features, unit, shape, residual)
        scale = float(wanted.abs().max())
        limit = {torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
        assert float((found.double() - wanted).abs().max()) < limit * scale
        assert all(torch.equal(found, made(features, residual)) for _ in range(20))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("batch_size", "shape", "classes"), [(1, (124, 108), 3), (2, (9, 30), 1), (1, (3, 5), 8)]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_cuda_kernel_makes_the_heat_map(
    cuda: torch.device, batch_size: int, shape: tuple[int, int], classes: int, dtype: torch.dtype
) -> None:
    if torch.cuda.get_device_capability(cuda) != (9, 0):
        pytest.skip("the kernel is for Hopper GPUs")
    unit = on_gpu(unit_of(96, 96), dtype, cuda)
    heat = heat_of(96, dtype, classes)
    for name in ("hidden", "heat", "hidden_bias", "heat_bias"):
        heat = heat._replace(**{name: getattr(heat, name).to(cuda)})
    table = table_of(batch_size, shape, cuda)
    made = MapConvolution(unit, table, spatial_shape=shape, batch_size=batch_size, heat=heat)
    assert made.fused
    features = maps_of(batch_size, shape, 96).to(cuda, dtype)
    found, scores = made.with_heat(features)
    wanted = fixed_heat(found, heat, spatial_shape=shape, impl="reference")
    torch.testing.assert_close(scores, wanted, rtol=0, atol=2e-3 if dtype == torch.float16 else 2e-2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = made.with_heat(features)
    for _ in range(5):
        graph.replay()
        assert torch.equal(again[0], found)
        assert torch.equal(again[1], scores)


@pytest.mark.gpu
def test_the_cuda_kernel_refuses_other_maps(cuda: torch.device) -> None:
    if torch.cuda.get_device_capability(cuda) != (9, 0):
        pytest.skip("the kernel is for Hopper GPUs")
    unit = on_gpu(unit_of(64, 64), torch.float16, cuda)
    made = MapConvolution(unit, table_of(1, (4, 5), cuda), spatial_shape=(4, 5))
    features = maps_of(1, (4, 5), 64).to(cuda, torch.float16)
    with pytest.raises(ValueError, match=r"features must be \(20, 64\)"):
        made(features[:10])
    with pytest.raises(ValueError, match=r"residual must be \(20, 64\)"):
        made(features, features.float())
    # Single precision and large maps stay with Triton.
    single = on_gpu(unit_of(64, 64), torch.float32, cuda)
    assert not MapConvolution(single, table_of(1, (4, 5), cuda), spatial_shape=(4, 5)).fused
    assert not MapConvolution(unit, table_of(1, (300, 300), cuda), spatial_shape=(300, 300)).fused
