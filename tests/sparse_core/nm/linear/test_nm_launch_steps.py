"""Packed products on a CPU: a plan gives the driver and the library what the ordinary call gives."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sparse_core.kernels import launch_plan, native, nvrtc, torch_internals
from sparse_core.kernels.launch_plan import make_launcher
from sparse_core.nm import PackedNM
from sparse_core.nm.linear import decode_cuda
from sparse_core.nm.linear.cusparselt import plan as cusparselt
from sparse_core.nm.linear.cusparselt.plan import MatmulPlan, Product
from sparse_core.nm.linear.launch_plans import Launches, LayerPlan, PlannedCall

#: cuSPARSELt as far as a plan calls it: keeps the arguments of a product, and the bias that was set before.
LIBRARY = """
#include <cstdint>
#include <cstring>
extern "C" uint64_t seen[16];
uint64_t seen[16];
extern "C" int cusparseLtMatmul(const void *a, const void *b, const void *c, const void *d, const void *e,
                                const void *f, const void *g, void *h, void *i, void **streams,
                                int32_t count) {
    const void *all[] = {a, b, c, d, e, f, g, h, i, *streams};
    for (int at = 0; at < 10; ++at) seen[at] = (uint64_t)all[at];
    seen[10] = count;
    return 0;
}
extern "C" int cusparseLtMatmulDescSetAttribute(const void *, void *, int attribute, const void *data,
                                                size_t) {
    if (attribute == 8) std::memcpy(&seen[11], data, 8);
    seen[12] += attribute == 8;
    return 0;
}
"""


class Library:
    """Functions that only describe do nothing."""

    def __init__(self, raw: ctypes.CDLL) -> None:
        self.raw = raw
        raw.cusparseLtMatmul.argtypes = [ctypes.c_void_p] * 10 + [ctypes.c_int32]

    def call(self, name: str, *arguments: Any) -> None:
        if name == "cusparseLtMatmulDescSetAttribute":
            assert self.raw.cusparseLtMatmulDescSetAttribute(*arguments) == 0


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """The library of the test's own; a CPU takes the place of the current device."""
    if native.compiler() is None or not launch_plan.available():
        pytest.skip("no C++ compiler, or no headers of Python")
    source = tmp_path / "library.cpp"
    source.write_text(LIBRARY)
    raw = native.load(source)
    monkeypatch.setattr(cusparselt, "load", lambda: Library(raw))
    monkeypatch.setattr(cusparselt, "handle", lambda index: cusparselt.opaque_memory())
    monkeypatch.setattr(cusparselt, "structured_descriptor", lambda *sizes: cusparselt.opaque_memory())
    monkeypatch.setattr(torch_internals, "raw_stream", lambda index: 77)
    monkeypatch.setattr(nvrtc, "driver_address", lambda name: 1)
    memory = torch.empty(64, dtype=torch.uint8)
    monkeypatch.setattr(cusparselt, "workspace", lambda index, stream, size: memory)
    return raw


def test_the_library_gets_what_the_ordinary_call_gives(library: ctypes.CDLL) -> None:
    product = Product(8, 16, 32, torch.float16, torch.float16, relu=False, scaled=False)
    made = MatmulPlan(0, product, 0, True)
    buffer, x, y = torch.empty(64, dtype=torch.uint8), torch.empty(8, 32), torch.empty(8, 16)
    biases = [torch.empty(16) for _ in range(2)]
    seen = (ctypes.c_uint64 * 16).in_dll(library, "seen")
    runs = [make_launcher([made.step(buffer, bias)], made.lock) for bias in biases]
    for bias, run in zip(biases, runs, strict=True):
        made(buffer, x, bias, None, y)
        ordinary = list(seen)[:12]
        assert ordinary[11] == bias.data_ptr()
        ctypes.memset(seen, 0, 88)
        assert run is not None
        run(77, x.data_ptr(), y.data_ptr(), *made.scratch(77)[0])
        assert list(seen)[:12] == ordinary
    # One bias after the other, by both ways: it is set whenever it is another.
    count = seen[12]
    assert runs[0] is not None
    runs[0](77, 1, 2, 3)
    assert (seen[11], seen[12]) == (biases[0].data_ptr(), count + 1)
    made(buffer, x, biases[0], None, y)
    assert seen[12] == count + 1
    made(buffer, x, biases[1], None, y)
    assert (seen[11], seen[12]) == (biases[1].data_ptr(), count + 2)


def test_a_product_without_bias_sets_none(library: ctypes.CDLL) -> None:
    made = MatmulPlan(0, Product(8, 16, 32, torch.float16, torch.float16, relu=True, scaled=False), 0, False)
    buffer, x, y = torch.empty(64, dtype=torch.uint8), torch.empty(8, 32), torch.empty(8, 16)
    seen = (ctypes.c_uint64 * 16).in_dll(library, "seen")
    ctypes.memset(seen, 0, 128)
    made(buffer, x, None, None, y)
    ordinary = list(seen)
    run = make_launcher([made.step(buffer, None)])
    assert run is not None
    run(77, x.data_ptr(), y.data_ptr(), *made.scratch(77)[0])
    assert list(seen) == ordinary


def test_the_kernel_for_few_rows_gets_what_the_ordinary_call_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[bytes, ...]] = []

    class Kernel:
        function = 7

        def prepare(self, grid: tuple[int, ...], threads: int, arguments: tuple[Any, ...]) -> Any:
            self.prepared = grid, threads
            return lambda stream: taken.append(tuple(bytes(one) for one in arguments))

    kernel = Kernel()
    monkeypatch.setattr(nvrtc, "compile_kernel", lambda *given: kernel)
    monkeypatch.setattr(torch_internals, "raw_stream", lambda index: 77)
    dense = torch.randn(32, 128).half()
    weight = PackedNM.from_dense(dense.view(32, 32, 4).mul(torch.tensor([1, 0, 0, 1])).view(32, 128).half())
    metadata = torch.empty(4, dtype=torch.int32)
    launch = decode_cuda.FewRowsLaunch(weight, metadata, 3, None, decode_cuda.VARIANTS[0])
    x, y = torch.randn(3, 128).half(), torch.empty(3, 32).half()
    for bias in (torch.randn(32).half(), None):
        launch(x, bias, y)
        step = launch.step(bias, 64, 32)
        assert (step.launch.function, step.launch.grid, step.launch.block[0]) == (7, *kernel.prepared)
        arguments = list(step.launch.arguments)
        assert [(place.offset, place.address, place.shift) for place in step.places] == [
            (0, 0, 64),
            (0, 1, 32),
        ]
        for place, tensor in zip(step.places, (x, y), strict=True):
            arguments[place.argument] = tensor.data_ptr().to_bytes(8, "little")
        assert tuple(arguments) == taken[-1]


# The plan of a weight, and that of a layer.


class Doubling:
    """A product that gives twice its input; counts its calls and its launches."""

    def __init__(self) -> None:
        self.calls = self.launched = 0

    def __call__(self, x: Tensor, bias: Tensor | None, dense: Tensor | None, scale: Tensor | None) -> Tensor:
        self.calls += 1
        return 2 * x

    def launches(self, bias: Tensor | None) -> Launches:
        def run(stream: int, x: int, y: int) -> None:
            self.launched += 1
            of_x, of_y = ((ctypes.c_float * 8).from_address(address) for address in (x, y))
            for at in range(8):
                of_y[at] = 2 * of_x[at]

        return Launches(run, None, None)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_internals, "current_device", lambda: -1)
    monkeypatch.setattr(torch_internals, "raw_stream", lambda index: 77)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


@pytest.mark.usefixtures("on_cpu")
def test_the_fourth_call_has_a_plan() -> None:
    doubling, values, bias = Doubling(), torch.randn(4, 4), torch.randn(4)
    product = PlannedCall(doubling, values, doubling.launches, is_dense=False)
    for turn in range(6):
        assert product.is_settled is (turn > 2)
        x = torch.randn(2, 4)
        assert torch.equal(product(x, bias, None, None), 2 * x)
        assert (doubling.calls, doubling.launched) == (min(turn + 1, 3), max(turn - 2, 0))
    # Another bias, and an input that is followed, take the call.
    product(x, torch.randn(4), None, None)
    product(x.requires_grad_(), bias, None, None)
    assert (doubling.calls, doubling.launched) == (5, 3)
    dense = PlannedCall(doubling, values, None, is_dense=True)
    assert dense.is_settled
    assert dense.plan is None


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("shape", [(2, 4), (1, 2, 4)])
def test_a_layer_launches_while_nothing_changed(shape: tuple[int, ...]) -> None:
    doubling, values, bias = Doubling(), torch.randn(4, 4), torch.randn(4)
    product = PlannedCall(doubling, values, doubling.launches, is_dense=False)
    x = torch.randn(shape)
    for _ in range(3):
        product(x.view(2, 4), bias, None, None)
    plan = LayerPlan(product, x, values, bias, None, None)
    y = plan(x, values, bias)
    assert y is not None
    assert torch.equal(y, 2 * x)
    assert doubling.launched == 1
    assert plan(x, values, bias.clone()) is None
    assert plan(x, values.clone(), bias) is None
    assert plan(x.double(), values, bias) is None
    assert plan(x.transpose(-1, -2).contiguous().transpose(-1, -2), values, bias) is None
    with torch.autocast("cpu"):
        assert plan(x, values, bias) is None
    values.mul_(2)
    assert plan(x, values, bias) is None
    assert doubling.launched == 1


@pytest.mark.usefixtures("on_cpu")
def test_a_layer_without_launches_makes_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    doubling, values, dense = Doubling(), torch.randn(4, 4), torch.randn(4, 4)
    product = PlannedCall(doubling, values, None, is_dense=True)
    x = torch.randn(2, 4)
    plain = LayerPlan(product, x, values, None, dense, None)(x, values, None)
    assert plain is not None
    assert torch.equal(plain, torch.nn.functional.linear(x, dense))
    assert doubling.calls == 0
    batch = x[None]
    for given, activation in ((x, "relu"), (batch, None)):
        plan = LayerPlan(product, given, values, None, dense, activation)
        y = plan(given, values, None)
        assert y is not None
        assert torch.equal(y, 2 * given)
    assert doubling.calls == 2
    assert plan(torch.randn(9)[1:].view(1, 2, 4), values, None) is None
    assert plan(batch.clone().requires_grad_(), values, None) is None
    monkeypatch.setattr(torch_internals, "current_device", lambda: 1)
    assert plan(batch, values, None) is None
    assert doubling.calls == 2
