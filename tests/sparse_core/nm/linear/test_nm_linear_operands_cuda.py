"""Operands whose memory a kernel could misread, on a GPU: strides, alignment, copies, threads, devices."""

from __future__ import annotations

import copy
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sparse_core.nm.linear import nm_linear, tuning
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.training import SparseTrainingLinear

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _own_table(tmp_path: Path):
    with tuning(folder=tmp_path):
        yield


def packed_weight(out: int, columns: int, device: torch.device, seed: int = 0) -> PackedNM:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out, columns, generator=generator).bfloat16()
    order = torch.rand(out, columns // 4, 4, generator=generator).argsort(dim=2)
    return PackedNM.from_dense(weight, mask=(order < 2).reshape(out, columns)).to(device)


def check(y: Tensor, x: Tensor, packed: PackedNM, bias: Tensor | None = None) -> None:
    expected = x.double() @ packed.to_dense().double().T
    if bias is not None:
        expected = expected + bias.double()
    assert float((y.double() - expected).abs().max()) <= 2**-7 * float(expected.abs().max())


IMPLS = ["auto", "cuda", "vendor", "dense"]


@pytest.mark.parametrize("impl", IMPLS)
def test_bias_with_strides_or_not_aligned(cuda: torch.device, impl: str) -> None:
    packed = packed_weight(256, 512, cuda)
    x = torch.randn(16, 512, device=cuda).bfloat16()
    memory = (10 * torch.randn(1024, device=cuda)).bfloat16()
    whole = memory[:256]
    # The first call makes the plan that the others find.
    for bias in (whole, memory[::4], memory[1:257], memory.flip(0)[:256], memory[:1].expand(256)):
        for _ in range(2):
            check(nm_linear(x, packed, bias, impl=impl), x, packed, bias)


@pytest.mark.parametrize("impl", ["auto", "vendor", "dense"])
def test_scale_with_strides(cuda: torch.device, impl: str) -> None:
    weight = torch.randint(-9, 10, (256, 512), dtype=torch.int8)
    mask = torch.tensor([True, False, False, True]).repeat(256, 128)
    packed = PackedNM.from_dense(weight, mask=mask).to(cuda)
    x = torch.randint(-9, 10, (32, 512), dtype=torch.int8, device=cuda)
    scale = torch.rand(512, device=cuda)[::2]
    bias = torch.nn.Parameter(torch.randn(256, device=cuda))
    y = nm_linear(x, packed, bias, scale=scale, out_dtype=torch.bfloat16, impl=impl)
    assert not y.requires_grad
    expected = x.double() @ packed.to_dense().double().T * scale.double() + bias.detach().double()
    assert float((y.double() - expected).abs().max()) <= 2**-7 * float(expected.abs().max())


@pytest.mark.parametrize("rows", [8, 64])
def test_values_with_strides_or_not_aligned(cuda: torch.device, rows: int) -> None:
    packed = packed_weight(256, 512, cuda)
    x = torch.randn(rows, 512, device=cuda).bfloat16()
    strided = packed.with_values(packed.values.T.contiguous().T)
    check(nm_linear(x, strided), x, packed)
    with torch.no_grad():
        strided.values.mul_(2)
    check(nm_linear(x, strided), x, strided)
    memory = torch.empty(packed.values.numel() + 1, device=cuda, dtype=torch.bfloat16)
    shifted = packed.with_values(memory[1:].view(packed.values.shape).copy_(packed.values))
    for _ in range(2):
        check(nm_linear(x, shifted), x, packed)


def test_a_wrong_option_is_noticed_after_a_right_call(cuda: torch.device) -> None:
    packed = packed_weight(256, 512, cuda)
    x = torch.randn(16, 512, device=cuda).bfloat16()
    bias = torch.zeros(256, device=cuda).bfloat16()
    nm_linear(x, packed, bias)
    with pytest.raises(ValueError, match="needs an int8 weight"):
        nm_linear(x, packed, bias, out_dtype=torch.float32)
    with pytest.raises(ValueError, match="bias is on cpu"):
        nm_linear(x, packed, bias.cpu())
    with pytest.raises(TypeError, match=r"bias is torch\.float32"):
        nm_linear(x, packed, bias.float())
    with pytest.raises(ValueError, match="impl must be one of"):
        nm_linear(x, packed, bias, impl="fast")


@pytest.mark.parametrize("impl", IMPLS)
def test_a_copied_weight_has_its_own_values(cuda: torch.device, impl: str) -> None:
    packed = packed_weight(256, 512, cuda)
    x = torch.randn(16, 512, device=cuda).bfloat16()
    check(nm_linear(x, packed, impl=impl), x, packed)
    copied = copy.deepcopy(packed)
    with torch.no_grad():
        copied.values.mul_(-3)
    check(nm_linear(x, copied, impl=impl), x, copied)
    check(nm_linear(x, packed, impl=impl), x, packed)


@pytest.mark.parametrize("impl", ["cuda", "vendor"])
def test_threads_share_a_weight(cuda: torch.device, impl: str) -> None:
    packed = packed_weight(256, 512, cuda)
    biases = [torch.full((256,), 1000.0 * number, device=cuda).bfloat16() for number in range(4)]
    inputs = [torch.full((8, 512), float(number), device=cuda).bfloat16() for number in range(4)]
    wanted = [nm_linear(x, packed, bias, impl=impl) for x, bias in zip(inputs, biases, strict=True)]
    torch.cuda.synchronize()
    wrong = []

    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream(cuda)):
            for _ in range(500):
                y = nm_linear(inputs[number], packed, biases[number], impl=impl)
                torch.cuda.current_stream().synchronize()
                if not torch.equal(y, wanted[number]):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_thread_that_has_not_used_the_device(cuda: torch.device) -> None:
    packed = packed_weight(256, 512, cuda)
    x = torch.randn(16, 512, device=cuda).bfloat16()
    results = {impl: nm_linear(x, packed, impl=impl) for impl in ("cuda", "vendor")}
    found = {}

    def work() -> None:
        for impl in results:
            found[impl] = nm_linear(x, packed, impl=impl)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    for impl, expected in results.items():
        assert torch.equal(found[impl], expected)


def test_another_device_than_the_current_one(cuda: torch.device) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device")
    other = torch.device("cuda", 1)
    packed = packed_weight(256, 512, other)
    for rows in (8, 256):
        x = torch.randn(rows, 512, device=other).bfloat16()
        for impl in IMPLS[: None if rows <= 32 else 1]:
            for _ in range(2):
                check(nm_linear(x, packed, impl=impl), x, packed)
    layer = SparseTrainingLinear(256, 512, device=other, dtype=torch.bfloat16)
    x = torch.randn(64, 256, device=other, dtype=torch.bfloat16, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert torch.cuda.current_device() == 0


def test_training_layer_with_operands_that_are_not_aligned(cuda: torch.device) -> None:
    torch.manual_seed(0)
    layer = SparseTrainingLinear(1024, 2048, device=cuda, dtype=torch.bfloat16)
    memory = torch.randn(4096 * 1024 + 1, device=cuda).bfloat16()
    with torch.no_grad():
        shifted = torch.empty(2048 * 1024 + 1, device=cuda, dtype=torch.bfloat16)[1:].view(2048, 1024)
        layer.weight.data = shifted.copy_(layer.weight)
    x = memory[1:].view(4096, 1024)
    y = layer(x)
    expected = x.double() @ (layer.weight * layer.mask()).double().T + layer.bias.double()
    assert float((y.double() - expected).detach().abs().max()) <= 2**-7 * float(expected.detach().abs().max())
