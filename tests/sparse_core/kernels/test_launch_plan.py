"""Launch plans: the guard, the switch, launches from C to a driver of the test's own, kernels on a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread

import pytest
import torch
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.kernels import launch_plan, native, nvrtc, torch_internals
from sparse_core.kernels.launch_plan import (
    Bias,
    KernelLaunch,
    KernelStep,
    LaunchPlan,
    MatmulStep,
    Place,
    Step,
    make_launcher,
)

#: Takes what the driver and the library take, and keeps the first words of the arguments and the settings.
RECEIVER = """
#include <cstdint>
#include <cstring>
struct Config {
    unsigned grid[3], block[3], shared;
    void *stream;
    unsigned char *attributes;
    unsigned count;
};
extern "C" uint64_t seen[16];
uint64_t seen[16];
extern "C" int move(void *map, void *address) {
    seen[11] = (uint64_t)map % 64;
    std::memcpy(map, &address, 8);
    return address == (void *)13 ? 3 : 0;
}
extern "C" int multiply(const void *a, const void *b, const void *c, const void *d, const void *e,
                        const void *f, const void *g, void *h, void *i, void **streams, int32_t count) {
    const void *all[] = {a, b, c, d, e, f, g, h, i, *streams};
    for (int at = 0; at < 10; ++at) seen[at] = (uint64_t)all[at];
    seen[10] = count;
    return a == nullptr ? 10 : 0;
}
extern "C" int set_attribute(const void *handle, void *descriptor, int attribute, const void *data,
                             size_t size) {
    seen[12] += 1;
    seen[13] = (uint64_t)handle * 1000 + (uint64_t)descriptor * 100 + attribute * 10 + size;
    std::memcpy(&seen[14], data, 8);
    return descriptor == nullptr ? 7 : 0;
}
extern "C" int receive(const Config *config, void *function, void **arguments, void **extra) {
    std::memcpy(&seen[0], arguments[0], 8);
    std::memcpy(&seen[1], arguments[1], 16);
    seen[3] = (uint64_t)config->stream;
    seen[4] = (uint64_t)function;
    seen[5] = config->grid[0] * 100 + config->grid[1] * 10 + config->grid[2];
    seen[6] = config->block[0] * 100 + config->block[1] * 10 + config->block[2];
    seen[7] = config->shared;
    seen[8] = config->count;
    seen[9] = config->count ? config->attributes[8] : 0;
    seen[10] = (uint64_t)arguments[1] % 64;
    return function == nullptr || extra != nullptr ? 1 : 0;
}
"""


def word(number: int) -> bytes:
    return number.to_bytes(8, "little")


def launch(*arguments: bytes, function: int = 7) -> KernelLaunch:
    return KernelLaunch(function, (1, 2, 3), (4, 5, 6), 99, launch_plan.PROGRAMMATIC, arguments)


# The guard, on a CPU: what a launch would do to memory is done by torch.


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU takes the place of the current device and of its stream."""
    monkeypatch.setattr(torch_internals, "current_device", lambda: -1)
    monkeypatch.setattr(torch_internals, "raw_stream", lambda index: 6)


class Doubling:
    """A launcher that writes twice the operand; keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[int, ...]] = []

    def __call__(self, stream: int, *addresses: int) -> None:
        self.given.append((stream, *addresses))
        operand, result = (array(address) for address in addresses[:2])
        for at in range(4):
            result[at] = 2 * operand[at]


def array(address: int) -> ctypes.Array[ctypes.c_float]:
    return (ctypes.c_float * 4).from_address(address)


@pytest.mark.usefixtures("on_cpu")
def test_a_plan_launches_for_other_tensors() -> None:
    doubling = Doubling()
    plan = LaunchPlan(doubling, torch.empty(2, 2))
    for x in (torch.randn(2, 2), torch.randn(2, 2)):
        y = plan((x,))
        assert y is not None
        assert torch.equal(y, 2 * x)
        assert doubling.given[-1] == (6, x.data_ptr(), y.data_ptr())
    other = plan.with_shape((1, 4))(((x := torch.randn(4)),))
    assert other is not None
    assert other.shape == (1, 4)
    assert torch.equal(other[0], 2 * x)


@pytest.mark.usefixtures("on_cpu")
def test_a_plan_keeps_the_strides_of_the_result() -> None:
    y = LaunchPlan(Doubling(), torch.empty(2, 2).T)((torch.randn(2, 2),))
    assert y is not None
    assert y.stride() == (1, 2)


@pytest.mark.usefixtures("on_cpu")
def test_scratch_memory_comes_after_the_result() -> None:
    doubling, asked = Doubling(), []

    def scratch(stream: int) -> tuple[tuple[int, ...], object]:
        asked.append(stream)
        return (11, 12), None

    x = torch.randn(2, 2)
    y = LaunchPlan(doubling, x, scratch=scratch)((x,))
    assert y is not None
    assert doubling.given == [(6, x.data_ptr(), y.data_ptr(), 11, 12)]
    assert asked == [6]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # By torch itself, at the first jvp.
def test_a_guard_that_fails_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, values = torch.randn(2, 2), torch.randn(3)
    doubling = Doubling()
    plan = LaunchPlan(doubling, x, (values,))
    assert plan((x,), (values,)) is not None
    del doubling.given[:]
    # Tensors at other addresses, or not as aligned.
    assert plan((x,), (values.clone(),)) is None
    assert plan((torch.randn(5)[1:],), (values,)) is None
    # Autograd follows the operand or the values.
    followed = torch.randn(2, 2, requires_grad=True)
    assert plan((followed,), (values,)) is None
    with torch.no_grad():
        assert plan((followed,), (values,)) is not None
    assert plan((x,), (values.requires_grad_(),)) is None
    values.requires_grad_(False)
    # Transforms of torch.func and forward-mode derivatives.
    found: list[Tensor | None] = []

    def ask(one: Tensor) -> Tensor:
        # The tensor of a transform has no address; another one has, and is not to be launched either.
        found.extend((plan((one,), (values,)), plan((x,), (values,))))
        return one

    torch.func.vmap(ask)(x)
    torch.func.jvp(ask, (x,), (x,))
    assert found == [None] * 4
    # Another device is current, or the operand lies elsewhere.
    monkeypatch.setattr(torch_internals, "current_device", lambda: 1)
    assert plan((x,), (values,)) is None
    monkeypatch.setattr(torch_internals, "current_device", lambda: -1)
    monkeypatch.setattr(Tensor, "get_device", lambda tensor: 1)
    assert plan((x,), (values,)) is None
    assert len(doubling.given) == 1


@pytest.mark.parametrize(("value", "enabled"), [("0", False), ("1", True), ("", True), (None, True)])
def test_the_switch(monkeypatch: pytest.MonkeyPatch, value: str | None, enabled: bool) -> None:
    if value is None:
        monkeypatch.delenv(launch_plan.SWITCH, raising=False)
    else:
        monkeypatch.setenv(launch_plan.SWITCH, value)
    assert launch_plan.plans_enabled() is enabled
    if not enabled:
        assert make_launcher([]) is None


def test_no_launcher_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise ImplementationError("no compiler")

    monkeypatch.setattr(launch_plan, "native_maker", refused)
    monkeypatch.setattr(launch_plan, "available", launch_plan.available.__wrapped__)
    assert make_launcher([]) is None


# From C, with the receiver in the place of the driver.


def made(receiver: ctypes.CDLL, *steps: Step) -> Callable[..., int]:
    entries = (ctypes.cast(one, ctypes.c_void_p).value for one in (receiver.receive, receiver.move))
    found: Callable[..., int] = launch_plan.native_maker()(*entries, launch_plan.step_tuples(steps))
    return found


@pytest.fixture
def receiver(tmp_path: Path) -> ctypes.CDLL:
    if native.compiler() is None or not launch_plan.available():
        pytest.skip("no C++ compiler, or no headers of Python")
    source = tmp_path / "receiver.cpp"
    source.write_text(RECEIVER)
    library = native.load(source)
    ctypes.memset(seen_by(library), 0, ctypes.sizeof(ctypes.c_uint64) * 16)
    return library


def seen_by(receiver: ctypes.CDLL) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * 16).in_dll(receiver, "seen")


def test_the_driver_gets_what_was_described(receiver: ctypes.CDLL) -> None:
    described = launch(word(11), word(12) + word(13))
    call = made(receiver, KernelStep(described, (Place(0, 0, 1, 0), Place(1, 8, 0, -3))))
    assert call(2**63 + 5, 1000, 2**64 - 1) == 0
    seen = seen_by(receiver)
    assert list(seen)[:11] == [2**64 - 1, 12, 997, 2**63 + 5, 7, 123, 456, 99, 1, 1, 0]
    assert call(0, 8, 9) == 0
    assert list(seen)[:4] == [9, 12, 5, 0]
    # The status comes back as it is.
    assert made(receiver, KernelStep(launch(word(0), bytes(16), function=0), ()))(0) == 1


def test_the_driver_moves_tensor_maps(receiver: ctypes.CDLL) -> None:
    call = made(receiver, KernelStep(launch(word(11), word(12) + word(13)), (Place(1, 0, 0, 4, True),)))
    assert call(0, 100) == 0
    seen = seen_by(receiver)
    assert [*list(seen)[:3], seen[11]] == [11, 104, 13, 0]
    # A map that the driver refuses is the last step.
    seen[4] = 99
    assert call(0, 9) == 3
    assert seen[4] == 99


def test_steps_are_done_in_their_order(receiver: ctypes.CDLL) -> None:
    function = ctypes.cast(receiver.multiply, ctypes.c_void_p).value or 0
    product = MatmulStep(function, (1, 2, 3, 4, 0, 6, 0, 0, 9), ((4, 0), (6, 1), (7, 1), (8, 2)))
    assert made(receiver, product)(77, 100, 200, 300) == 0
    seen = seen_by(receiver)
    assert list(seen)[:11] == [1, 2, 3, 4, 100, 6, 200, 200, 300, 77, 1]
    last = KernelStep(launch(word(12), bytes(16), function=4), (Place(1, 8, 2, 5),))
    assert made(receiver, product, last)(6, 100, 200, 300) == 0
    assert list(seen)[:5] == [12, 0, 305, 6, 4]
    # A step that fails is the last one; the status of the library has another sign.
    assert made(receiver, product._replace(pointers=(0,) * 9), last)(6, 100, 200, 300) == -10
    assert seen[0] == 0
    assert made(receiver)(0) == 0


def test_a_bias_is_set_where_another_was_set(receiver: ctypes.CDLL) -> None:
    functions = (receiver.multiply, receiver.set_attribute)
    multiply, set_attribute = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions)
    current = ctypes.c_uint64(256)
    at = ctypes.addressof(current)
    first, second = (
        made(receiver, MatmulStep(multiply, (1,) * 9, (), Bias(set_attribute, 2, 8, at, address)))
        for address in (256, 512)
    )
    seen = seen_by(receiver)
    assert [first(0), seen[12], current.value] == [0, 0, 256]
    assert [second(0), seen[12], current.value] == [0, 1, 512]
    assert [seen[13], seen[14]] == [1000 + 200 + 80 + 8, 512]
    assert [second(0), first(0), seen[12], seen[14], current.value] == [0, 0, 2, 256, 256]
    refused = made(receiver, MatmulStep(multiply, (1,) * 9, (), Bias(set_attribute, 0, 8, at, 1)))
    assert refused(0) == -7


def test_a_lock_is_held_while_steps_are_done(receiver: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "driver_address", lambda name: 1)
    function = ctypes.cast(receiver.multiply, ctypes.c_void_p).value or 0
    lock = Lock()
    run = make_launcher([MatmulStep(function, (1,) * 9, ())], lock)
    assert run is not None
    with lock:
        thread = Thread(target=run, args=(5,))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert seen_by(receiver)[0] == 0
    thread.join()
    assert seen_by(receiver)[9] == 5


def test_wrong_arguments_are_refused(receiver: ctypes.CDLL) -> None:
    described = launch(word(11), bytes(16))
    call = made(receiver, KernelStep(described, (Place(0, 0, 0, 0),)))
    with pytest.raises(TypeError, match="a stream and 1 addresses, got 1"):
        call(0)
    with pytest.raises(TypeError):
        call(0, "here")
    with pytest.raises(OverflowError):
        call(0, -1)
    with pytest.raises(TypeError):
        call(0, 1, names=2)
    for place in ((2, 0, 0, 0), (0, 1, 0, 0), (0, -1, 0, 0), (0, 0, -1, 0)):
        with pytest.raises(ValueError, match="outside"):
            made(receiver, KernelStep(described, (Place(*place),)))
    with pytest.raises(TypeError, match="bytes"):
        made(receiver, KernelStep(described._replace(arguments=(1,)), ()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="attributes"):
        made(receiver, KernelStep(described._replace(attributes=b"x"), ()))
    with pytest.raises(ValueError, match="9 pointers"):
        made(receiver, MatmulStep(1, (1,), ()))
    for at in ((9, 0), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="outside"):
            made(receiver, MatmulStep(1, (1,) * 9, (at,)))
    kind = launch_plan.native_maker()
    with pytest.raises(TypeError, match="tuple"):
        kind(1, 1, (7,))
    with pytest.raises(ValueError, match="tensor maps"):
        kind(1, 0, launch_plan.step_tuples([KernelStep(described, (Place(0, 0, 0, 0, True),))]))


def test_statuses_become_errors(receiver: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ctypes.cast(receiver.receive, ctypes.c_void_p).value
    monkeypatch.setattr(nvrtc, "driver_address", lambda name: entry)
    function = ctypes.cast(receiver.multiply, ctypes.c_void_p).value or 0
    run = make_launcher([MatmulStep(function, (0,) * 9, ())])
    assert run is not None
    with pytest.raises(ImplementationError, match="cusparseLtMatmul failed with status 10"):
        run(0)
    run = make_launcher([KernelStep(launch(word(0), bytes(16), function=0), ())])
    assert run is not None
    with pytest.raises(ImplementationError, match="CUDA driver error 1"):
        run(0)


# On a GPU.

SCALED = """
struct Problem { float *y; int count; float factor; };
extern "C" __global__ void scaled(const float *x, Problem problem) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < problem.count) problem.y[i] = problem.factor * x[i];
}
"""


class Problem(ctypes.Structure):
    _fields_ = [("y", ctypes.c_void_p), ("count", ctypes.c_int), ("factor", ctypes.c_float)]


@pytest.mark.gpu
def test_a_kernel_goes_to_other_tensors(cuda: torch.device, tmp_path: Path) -> None:
    path = tmp_path / "scaled.cu"
    path.write_text(SCALED)
    kernel = nvrtc.compile_kernel(path, "scaled", {}, cuda)
    assert launch_plan.argument_sizes(kernel.function) == [8, 16]
    arguments = bytes(8), bytes(Problem(None, 1000, 3.0))
    described = KernelLaunch(kernel.function, (8, 1, 1), (128, 1, 1), 0, b"", arguments)
    run = make_launcher([KernelStep(described, (Place(0, 0, 0, 0), Place(1, 0, 1, 0)))])
    assert run is not None
    plan = LaunchPlan(run, torch.empty(1000, device=cuda))
    for _ in range(3):
        x = torch.randn(1000, device=cuda)
        y = plan((x,))
        assert y is not None
        assert torch.equal(y, 3 * x)


@pytest.mark.gpu
def test_a_launch_that_the_driver_refuses(cuda: torch.device, tmp_path: Path) -> None:
    path = tmp_path / "scaled.cu"
    path.write_text(SCALED)
    kernel = nvrtc.compile_kernel(path, "scaled", {}, cuda)
    too_many = KernelLaunch(kernel.function, (1, 1, 1), (4096, 1, 1), 0, b"", (bytes(8), bytes(16)))
    run = make_launcher([KernelStep(too_many, ())])
    assert run is not None
    with pytest.raises(ImplementationError, match="CUDA driver error"):
        run(torch.cuda.current_stream(cuda).cuda_stream)
