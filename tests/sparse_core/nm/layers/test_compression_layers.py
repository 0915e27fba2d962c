"""Layers that run from the packed form: against the dense product, with gradients, by tiles."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparse_core.compression.model import compress_model
from sparse_core.nm.layers.assembly import compressed_layers
from sparse_core.nm.layers.compressed_layers import CompressedConv2d, CompressedLinear
from sparse_core.nm.linear import UnpackedWarning
from sparse_core.nm.packing.compress import compress
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.files import load_compressed, save_compressed
from sparse_core.nm.pattern import TWO_FOUR, NMPattern


@pytest.fixture(autouse=True)
def _no_notes_on_speed() -> None:
    warnings.simplefilter("ignore", UnpackedWarning)


def weight_of(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize("coding", ["float16", "int8", "int4/8", "codebook16"])
@pytest.mark.parametrize("tile_rows", [1, 4, 7, 100])
@pytest.mark.parametrize("execution", ["tiled", "nm"])
def test_linear_is_the_dense_product(coding: str, tile_rows: int, execution: str) -> None:
    found = compress(weight_of(11, 24), TWO_FOUR, coding)
    bias = weight_of(11)
    layer = CompressedLinear(found, bias, tile_rows=tile_rows, execution=execution)  # type: ignore[arg-type]
    x = torch.randn((2, 3, 24), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        assert torch.allclose(layer(x), F.linear(x, found.to_dense(), bias), atol=1e-6)
        half = layer(x.bfloat16())
    assert half.dtype == torch.bfloat16
    expected = F.linear(x.bfloat16(), found.to_dense().bfloat16(), bias.bfloat16())
    assert torch.allclose(half.float(), expected.float(), atol=0.1)
    assert layer(torch.zeros(0, 24)).shape == (0, 11)


def test_padded_and_dense_weights_run_tiled() -> None:
    x = torch.randn((5, 10), generator=torch.Generator().manual_seed(5))
    for found in (
        compress(weight_of(6, 10), NMPattern(2, 4), "int8", pad=True),
        compress(weight_of(6, 10), None),
    ):
        assert torch.allclose(CompressedLinear(found, tile_rows=4)(x), x @ found.to_dense().T, atol=1e-6)
        with pytest.raises(ValueError, match="use execution='tiled'"):
            CompressedLinear(found, execution="nm")


def test_no_more_rows_are_unpacked_than_a_tile_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compress(weight_of(100, 32), TWO_FOUR, "int4")
    seen: list[int] = []
    plain = CompressedWeight.rows

    def counted(self: CompressedWeight, *arguments: Any, **options: Any) -> Tensor:
        rows = plain(self, *arguments, **options)
        seen.append(len(rows))
        return rows

    monkeypatch.setattr(CompressedWeight, "rows", counted)
    layer = CompressedLinear(found, tile_rows=16)
    x = torch.ones((2, 32), requires_grad=True)
    layer(x).sum().backward()
    assert max(seen) == 16
    assert sum(seen) == 200  # Once on the way there, once on the way back: none is kept in between.
    assert x.grad is not None
    monkeypatch.undo()
    assert torch.allclose(x.grad[0], found.to_dense().sum(dim=0), atol=1e-5)


@pytest.mark.parametrize("layout", ["unfold", "channels_last"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("tile_rows", [3, 64])
def test_convolution_is_the_dense_one(layout: str, groups: int, tile_rows: int) -> None:
    torch.manual_seed(0)
    dense = nn.Conv2d(8, 10, 3, stride=2, padding=1, dilation=1, groups=groups)
    model = nn.Sequential(dense)
    compressed = compress_model(model, NMPattern(2, 4, layout), "int8")  # type: ignore[arg-type]
    expected = compressed.load_into(copy.deepcopy(model))
    packed = compressed_layers(copy.deepcopy(model), compressed, tile_rows=tile_rows)
    assert isinstance(packed[0], CompressedConv2d)  # type: ignore[index]
    x = torch.randn((2, 8, 9, 7), generator=torch.Generator().manual_seed(1), requires_grad=True)
    y = packed(x)
    assert torch.allclose(y, expected(x), atol=1e-6)
    (gradient,) = torch.autograd.grad(y.square().sum(), x)
    (wanted,) = torch.autograd.grad(expected(x).square().sum(), x)
    assert torch.allclose(gradient, wanted, atol=1e-4)
    assert torch.allclose(packed(x[0]), expected(x[0]), atol=1e-6)


@pytest.mark.parametrize("execution", ["tiled", "nm"])
def test_gradient_of_a_centroid_is_the_sum_of_its_weights(execution: str) -> None:
    found = compress(weight_of(9, 16).double().float(), TWO_FOUR, "codebook8")
    layer = CompressedLinear(found, tile_rows=4, execution=execution, train_codebook=True)  # type: ignore[arg-type]
    x = torch.randn((6, 16), generator=torch.Generator().manual_seed(2))
    layer(x).pow(2).sum().backward()
    dense = found.to_dense().requires_grad_()
    F.linear(x, dense).pow(2).sum().backward()
    assert dense.grad is not None
    assert found.centroids is not None
    wanted = torch.stack([dense.grad[found.to_dense() == value].sum() for value in found.centroids])
    assert layer.centroids.grad is not None
    assert torch.allclose(layer.centroids.grad, wanted, rtol=1e-4, atol=1e-4)


def test_casting_a_model_leaves_what_is_stored() -> None:
    found = compress(weight_of(8, 16), TWO_FOUR, "int8/4")
    layer = CompressedLinear(found, weight_of(8)).half()
    assert layer.compressed.scale is not None
    assert found.scale is not None
    assert layer.compressed.scale.dtype == found.scale.dtype
    assert torch.equal(layer.weight, found.to_dense())
    assert layer.bias is not None
    assert layer.bias.dtype == torch.float16
    book = CompressedLinear(compress(weight_of(8, 16), TWO_FOUR, "codebook4"), train_codebook=True).half()
    assert book.centroids.dtype == torch.float32


def test_loaded_state_replaces_what_was_unpacked() -> None:
    first, second = (compress(weight_of(8, 16) * scale, TWO_FOUR, "int8") for scale in (1, 3))
    layer = CompressedLinear(first, execution="nm")
    x = torch.ones(2, 16)
    before = layer(x)
    layer.load_state_dict(CompressedLinear(second).state_dict())
    assert torch.allclose(layer(x), 3 * before, rtol=1e-3)


def test_a_model_from_a_file_runs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10), nn.BatchNorm1d(10)
    )
    model.eval()
    file = save_compressed(compress_model(model, TWO_FOUR, "int4/32"), tmp_path / "m.safetensors")
    found = load_compressed(file).model
    dense = found.load_into(copy.deepcopy(model))
    for execution in ("tiled", "nm"):
        packed = compressed_layers(copy.deepcopy(model), found, execution=execution)  # type: ignore[arg-type]
        x = torch.randn(3, 4, 6, 6)
        assert torch.allclose(packed(x), dense(x), atol=1e-5)
        assert "int4/32" in repr(packed)
        assert not packed.training
        assert sum(tensor.nbytes for tensor in packed.state_dict().values()) < 2200


def test_bad_arguments_are_refused() -> None:
    found = compress(weight_of(8, 16), TWO_FOUR, "int8")
    with pytest.raises(ValueError, match="tile_rows"):
        CompressedLinear(found, tile_rows=0)
    with pytest.raises(ValueError, match="bias must have shape"):
        CompressedLinear(found, torch.ones(3))
    with pytest.raises(ValueError, match="stored as a codebook, this is int8"):
        CompressedLinear(found, train_codebook=True)
    with pytest.raises(ValueError, match="execution must be one of"):
        CompressedLinear(found, execution="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the compressed weight has shape"):
        CompressedConv2d(found, nn.Conv2d(4, 4, 3))
    with pytest.raises(ValueError, match="padding_mode='zeros'"):
        CompressedConv2d(
            compress(weight_of(4, 4, 3, 3)), nn.Conv2d(4, 4, 3, padding_mode="reflect", padding=1)
        )


def test_options_reach_the_layers_that_they_fit() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 1), nn.Linear(16, 8), nn.Linear(10, 4))
    coding = {"0": "codebook4", "1": "int8", "2": "codebook4", "3": "int8"}
    compressed = compress_model(model, TWO_FOUR, coding, pad=True)
    made = compressed_layers(model, compressed, tile_rows=3, execution="nm", train_codebook=True)
    assert [layer.tile_rows for layer in made] == [3, 3, 3, 3]
    # The last layer's groups reach beyond its columns.
    assert [layer.execution for layer in made[2:]] == ["nm", "tiled"]
    trained = {name for name, _ in made.named_parameters() if not name.endswith("bias")}
    assert trained == {"0.centroids", "2.centroids"}


def test_transformer_encoders_call_their_compressed_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    compressed = compress_model(model, select="linear")
    expected = compressed.load_into(copy.deepcopy(model))
    packed = compressed_layers(model, compressed)
    calls: list[nn.Module] = []
    forward = CompressedLinear.forward
    monkeypatch.setattr(CompressedLinear, "forward", lambda self, x: calls.append(self) or forward(self, x))
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(packed(x), expected(x), rtol=1e-4, atol=1e-5)
    assert calls == [packed.linear1, packed.linear2]
