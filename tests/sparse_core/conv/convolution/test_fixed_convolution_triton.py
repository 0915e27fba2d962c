from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import compare_both_ways, interpreted_and_compiled

from sparse_core.conv import (
    ConvolutionConfig,
    SparseTensor,
    fixed_convolution,
    sparse_convolution,
)
from sparse_core.conv.convolution.plan import Shape, candidates
from sparse_core.errors import ImplementationError

Sparse = Callable[..., SparseTensor]
SCRIPT = Path(__file__).with_name("compare_fixed_convolution.py")
TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def check(report: dict[str, Any], *, types: int) -> None:
    assert len(report["forward"]) == 4 * (types + 1)
    assert len(report["wide"]) == 4
    assert len(report["named"]) == 8
    assert len(report["gradients"]) == types + 1
    assert len(report["wide gradients"]) == 1
    for part in ("forward", "wide", "named"):
        for name, difference in report[part].items():
            assert difference <= TOLERANCES[name.rpartition(".")[2]], (part, name, difference)
    for part in ("gradients", "wide gradients"):
        for name, differences in report[part].items():
            assert len(differences) == 4
            largest = max(differences, key=lambda value: math.inf if math.isnan(value) else value)
            assert largest <= TOLERANCES[name.rpartition(".")[2]], (part, name, differences)


@interpreted_and_compiled
def test_kernels_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret, sizes=(20, 5000))
    check(report, types=2 if interpret else 3)


def _layer(
    cuda: torch.device, rows: int, channels: int, dtype: torch.dtype = torch.float16
) -> dict[str, torch.Tensor]:
    """Return a layer whose last hundred rows are unused: undefined, and read by no entry."""
    generator = torch.Generator().manual_seed(1)
    count = rows - 100
    return {
        "features": torch.randn(rows, channels, generator=generator).to(cuda, dtype),
        "weight": (torch.randn(9, channels, channels, generator=generator) / 20).to(cuda, dtype),
        "neighbours": torch.randint(-rows // 3, count, (9, rows), generator=generator).int().to(cuda),
        "count": torch.tensor([count], dtype=torch.int32, device=cuda),
    }


@pytest.mark.gpu
def test_captured_layers_give_the_same_bits_in_every_replay(cuda: torch.device) -> None:
    pytest.importorskip("triton")
    layer = _layer(cuda, 3000, 64)
    config = ConvolutionConfig("preloaded", 32, 32, 64, 4, 5)
    features = layer.pop("features")

    def network() -> torch.Tensor:
        middle = features
        for _ in range(6):
            middle = fixed_convolution(middle, **layer, relu=True, config=config)
        return middle

    expected = network()[:2900]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = network()
    for _ in range(100):
        graph.replay()
        assert torch.equal(found[:2900], expected)
    assert float(expected.abs().max()) > 0


@pytest.mark.gpu
def test_unused_rows_change_nothing(cuda: torch.device) -> None:
    """Check that NaN in unused rows changes no bit of a layer, eager or captured."""
    pytest.importorskip("triton")
    layer = _layer(cuda, 3000, 64)
    results = []
    for poison in (0.0, math.nan, math.inf):
        layer["features"][2900:] = poison
        out = torch.full((3000, 64), poison, dtype=torch.float16, device=cuda)
        results.append(fixed_convolution(**layer, relu=True, out=out)[:2900].clone())
        assert torch.equal(out[2900:].nan_to_num(7.0), torch.full_like(out[2900:], poison).nan_to_num(7.0))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("rows", "channels"), [(3000, 64), (700, 128), (15000, 32)])
def test_no_tile_changes_a_bit(cuda: torch.device, rows: int, channels: int, dtype: torch.dtype) -> None:
    """Check all tiles that the tuner may choose, and the default."""
    pytest.importorskip("triton")
    layer = _layer(cuda, rows, channels, dtype)
    tiles = candidates(Shape(rows, channels, channels, 9, dtype))
    assert len(tiles) > 5
    results = [fixed_convolution(**layer, relu=True, config=tile)[: rows - 100] for tile in tiles]
    other = [tile for tile, found in zip(tiles, results, strict=True) if not torch.equal(found, results[0])]
    assert other == []


@pytest.mark.gpu
def test_auto_on_cuda_is_triton_except_for_float64(cuda: torch.device, random_sparse: Sparse) -> None:
    pytest.importorskip("triton")
    inputs = random_sparse((12, 13), 8, dtype=torch.float64)
    moved = SparseTensor(inputs.features.to(cuda), inputs.coordinates.to(cuda), (12, 13), 2)
    neighbours = moved.submanifold_table((3, 3))
    weight = torch.randn(6, 3, 3, 8, dtype=torch.float64, device=cuda)
    double = sparse_convolution(moved.features, weight, neighbours)
    single, wanted = (
        sparse_convolution(moved.features.float(), weight.float(), neighbours, impl=impl)
        for impl in ("auto", "triton")
    )
    assert torch.equal(single, wanted)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)
    with pytest.raises(ImplementationError, match="features and weight of one type"):
        sparse_convolution(moved.features, weight, neighbours, impl="triton")


@pytest.mark.gpu
def test_measured_choice_is_kept_and_right(cuda: torch.device, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from sparse_core.conv import convolution_tuning

    layer = _layer(cuda, 500, 32)
    expected = fixed_convolution(**layer, impl="reference")[:400].float()
    with convolution_tuning("measure", folder=tmp_path):
        found = fixed_convolution(**layer)[:400].float()
    assert len(list(tmp_path.glob("convolution-*.json"))) == 1
    assert float((found - expected).abs().max()) <= 2e-3 * float(expected.abs().max())
