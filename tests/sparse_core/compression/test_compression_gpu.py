"""Compressed weights on a GPU: the CPU's bytes and results, without waiting in a forward pass."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from sparse_core.compression.model import compress_model
from sparse_core.nm.layers.assembly import compressed_layers
from sparse_core.nm.packing.codebook import fit_codebook, lookup
from sparse_core.nm.packing.compress import compress
from sparse_core.nm.packing.files import load_compressed, save_compressed
from sparse_core.nm.pattern import NMPattern

# The mode that finds waits says so once a process.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode")]

CODINGS = ["float32", "float16", "bfloat16", "int8", "int4", "int4/16", "codebook16", "codebook5"]


def _weight(seed: int = 0) -> torch.Tensor:
    return torch.randn(96, 128, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("index", ["combinatorial", "slots"])
@pytest.mark.parametrize(
    "pattern", [NMPattern(2, 4), NMPattern(1, 4), NMPattern(4, 8), NMPattern(9, 32), None]
)
@pytest.mark.parametrize("coding", CODINGS)
def test_the_same_bytes_as_on_the_cpu(
    coding: str, pattern: NMPattern | None, index: str, cuda: torch.device
) -> None:
    here = compress(_weight(), pattern, coding, index=index)  # type: ignore[arg-type]
    there = compress(_weight().to(cuda), pattern, coding, index=index)  # type: ignore[arg-type]
    again = compress(_weight().to(cuda), pattern, coding, index=index)  # type: ignore[arg-type]
    there.check()
    for name, part in here.parts().items():
        found = there.parts()[name]
        assert found.device.type == cuda.type
        assert torch.equal(found, again.parts()[name]), name
        if name == "centroids":
            assert torch.allclose(found.cpu(), part, rtol=1e-6)
        else:
            assert torch.equal(found.cpu(), part), name
    assert torch.allclose(there.to_dense().cpu(), here.to_dense(), rtol=1e-6)


@pytest.mark.parametrize("entries", [2, 16, 256])
def test_codebooks_repeat_to_the_bit(entries: int, cuda: torch.device) -> None:
    values = torch.randn(40_000, generator=torch.Generator().manual_seed(1)).bfloat16().float()
    importance = torch.rand(40_000, generator=torch.Generator().manual_seed(2))
    here = fit_codebook(values, entries, importance=importance)
    books = [fit_codebook(values.to(cuda), entries, importance=importance.to(cuda)) for _ in range(3)]
    assert all(torch.equal(book.centroids, books[0].centroids) for book in books)
    assert all(torch.equal(book.codes, books[0].codes) for book in books)
    assert books[0].error == pytest.approx(here.error, rel=1e-4)


def test_gradients_of_a_codebook_repeat_to_the_bit(cuda: torch.device) -> None:
    book = fit_codebook(torch.randn(200, 300), 16)
    seed = torch.randn(200, 300)
    found = []
    for device in (torch.device("cpu"), cuda, cuda):
        centroids = book.centroids.to(device).requires_grad_()
        values = lookup(centroids, book.codes.to(device), zero=book.zero)
        found.append(torch.autograd.grad(values, centroids, seed.to(device))[0])
    assert torch.equal(found[1], found[2])
    assert torch.allclose(found[1].cpu(), found[0], rtol=1e-4, atol=1e-4)


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, groups=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 320), nn.ReLU(), nn.Linear(320, 64),
    ).eval()  # fmt: skip


@pytest.mark.parametrize("execution", ["tiled", "nm"])
@pytest.mark.parametrize("coding", ["float16", "int8", "int4/16", "codebook16"])
def test_layers_equal_those_on_the_cpu(coding: str, execution: str, cuda: torch.device) -> None:
    model, x = _network(), torch.randn(5, 8, 6, 6)
    compressed = compress_model(model, NMPattern(2, 4), coding)
    trained = coding.startswith("codebook")
    ends = []
    for device in (torch.device("cpu"), cuda, cuda):
        layers = compressed_layers(
            copy.deepcopy(model).to(device),
            compressed,
            execution=execution,  # type: ignore[arg-type]
            train_codebook=trained,
            tile_rows=48,
        )
        leaf = x.to(device).requires_grad_()
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False):
            y = layers(leaf)
            wanted = [leaf, *layers.parameters()]
            ends.append([y.detach(), *torch.autograd.grad(y.square().sum(), wanted)])
    for here, there, again in zip(*ends, strict=True):
        assert there.device.type == cuda.type
        assert torch.allclose(there.cpu(), here, rtol=1e-2, atol=1e-2 * float(here.abs().max()))
        assert torch.equal(there, again)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("execution", ["tiled", "nm"])
def test_a_forward_pass_never_waits_and_can_be_captured(
    execution: str, dtype: torch.dtype, cuda: torch.device
) -> None:
    model = nn.Sequential(nn.Linear(128, 320), nn.ReLU(), nn.Linear(320, 64))
    expected = compress_model(model, NMPattern(2, 4), "int8").load_into(copy.deepcopy(model)).to(cuda, dtype)
    layers = compressed_layers(
        copy.deepcopy(model).to(cuda),
        compress_model(model, NMPattern(2, 4), "int8"),
        execution=execution,  # type: ignore[arg-type]
    ).to(dtype)
    x = torch.randn(32, 128, device=cuda, dtype=dtype)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            layers(x)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            layers(x)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layers(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        close = 1e-2 if dtype == torch.float16 else 4e-2 if dtype == torch.bfloat16 else 1e-2
        assert torch.allclose(y.float(), expected(x).float(), rtol=close, atol=close)


def test_files_from_the_gpu_go_round(cuda: torch.device, tmp_path: Path) -> None:
    model = _network()
    here = compress_model(model, NMPattern(2, 4), "int4/16")
    there = compress_model(copy.deepcopy(model).to(cuda), NMPattern(2, 4), "int4/16")
    save_compressed(there, tmp_path / "there.safetensors")
    back = load_compressed(tmp_path / "there.safetensors").model
    for name, weight in here.weights.items():
        for part, tensor in weight.parts().items():
            assert torch.equal(back.weights[name].parts()[part], tensor), (name, part)
    twin = back.load_into(copy.deepcopy(model).to(cuda))
    assert all(torch.equal(value.cpu(), back.state_dict()[name]) for name, value in twin.state_dict().items())
