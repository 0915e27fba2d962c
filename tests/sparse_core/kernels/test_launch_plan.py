"""Launches from C: where addresses go, what is refused, and on a GPU the kernel itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sparse_core.errors import ImplementationError
from sparse_core.kernels import launch_plan as relaunch
from sparse_core.kernels import native, nvrtc
from sparse_core.kernels.launch_plan import Cleared, Clearing, Launch, Place, Placed, Span, Step, find_steps

#: Takes what the driver takes, and keeps the first words of the arguments and the settings.
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
extern "C" int clear(uint64_t address, unsigned char value, size_t size, void *stream) {
    seen[11] = address;
    seen[12] = size + value;
    seen[13] = (uint64_t)stream;
    return size == 13 ? 1 : 0;
}
extern "C" int receive(const Config *config, void *function, void **arguments, void **extra) {
    if (arguments == nullptr) {
        for (int i = 0; i < 5; ++i) seen[i] = (uint64_t)extra[i];
        std::memcpy(&seen[5], extra[1], 16);
        seen[7] = *(uint64_t *)extra[3];
        return 0;
    }
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
    return function == nullptr ? 1 : 0;
}
"""


def word(number: int) -> bytes:
    return number.to_bytes(8, "little")


def launch(*arguments: bytes, function: int = 7) -> Launch:
    return Launch(function, (1, 2, 3), (4, 5, 6), 99, relaunch.PROGRAMMATIC, arguments)


TENSORS = (Span(4096, 256), Span(8192, 256))
OTHERS = (Span(5000, 256), Span(9096, 256))


def test_places_are_where_arguments_differ() -> None:
    one = launch(word(4096 + 16) + word(1), word(8192), b"\x01\x00\x00\x00")
    other = launch(word(5000 + 16) + word(1), word(9096), b"\x01\x00\x00\x00")
    found = find_steps([one], [other], TENSORS, OTHERS)
    assert found == [Placed(one, (Place(0, 0, 0, 16), Place(1, 0, 1, 0)))]


@pytest.mark.parametrize(
    "other",
    [
        launch(word(5000), word(9096 + 8)),  # elsewhere in its tensor
        launch(word(5000), word(9096), function=8),
        launch(word(5000), word(8192)),  # a tensor that the arguments do not follow
        launch(word(5000), word(9096), word(0)),
        launch(word(5000), word(9096) + b"\x00"),
    ],
)
def test_what_addresses_do_not_explain(other: Launch) -> None:
    assert find_steps([launch(word(4096), word(8192))], [other], TENSORS, OTHERS) is None


def test_a_difference_in_half_a_word() -> None:
    one, other = launch(word(4096), word(8192), b"\x01\0\0\0"), launch(word(5000), word(9096), b"\x02\0\0\0")
    assert find_steps([one], [other], TENSORS, OTHERS) is None


def test_launches_follow_one_another_and_memory_is_cleared() -> None:
    one: list[Launch | Clearing] = [Clearing(8192 + 8, 4), launch(word(4096)), launch(word(8192))]
    other: list[Launch | Clearing] = [Clearing(9096 + 8, 4), launch(word(5000)), launch(word(9096))]
    found = find_steps(one, other, TENSORS, OTHERS)
    assert found == [
        Cleared(1, 8, 4),
        Placed(launch(word(4096)), (Place(0, 0, 0, 0),)),
        Placed(launch(word(8192)), (Place(0, 0, 1, 0),)),
    ]
    assert find_steps(one, other[:-1], TENSORS, OTHERS) is None
    assert find_steps(one, [other[1], other[0], other[2]], TENSORS, OTHERS) is None
    for cleared in (Clearing(9096 + 8, 5), Clearing(9096, 4), Clearing(77, 4)):
        assert find_steps(one, [cleared, *other[1:]], TENSORS, OTHERS) is None
    # The second tensor is in neither launch.
    assert find_steps(one[1:2], other[1:2], TENSORS, OTHERS) is None


def made(receiver: ctypes.CDLL, *steps: Step) -> Callable[..., int]:
    """A launcher of steps that go to the receiver instead of the driver."""
    kind = relaunch._launcher()
    assert kind is not None
    entries = (ctypes.cast(one, ctypes.c_void_p).value for one in (receiver.receive, receiver.clear))
    found: Callable[..., int] = kind(*entries, relaunch.described(steps))
    return found


@pytest.fixture
def receiver(tmp_path: Path) -> ctypes.CDLL:
    if native.compiler() is None or not relaunch.available():
        pytest.skip("no C++ compiler, or no headers of Python")
    source = tmp_path / "receiver.cpp"
    source.write_text(RECEIVER)
    return native.load(source)


def test_the_driver_gets_what_was_described(receiver: ctypes.CDLL) -> None:
    described = launch(word(11), word(12) + word(13))
    call = made(receiver, Placed(described, (Place(0, 0, 1, 0), Place(1, 8, 0, -3))))
    assert call(2**63 + 5, 1000, 2**64 - 1) == 0
    seen = (ctypes.c_uint64 * 16).in_dll(receiver, "seen")
    assert list(seen)[:11] == [2**64 - 1, 12, 997, 2**63 + 5, 7, 123, 456, 99, 1, 1, 0]
    assert call(0, 8, 9) == 0
    assert list(seen)[:4] == [9, 12, 5, 0]
    # The status comes back as it is.
    assert made(receiver, Placed(launch(word(0), bytes(16), function=0), ()))(0) == 1
    packed = described._replace(arguments=(word(14) + word(15),), packed=True)
    assert made(receiver, Placed(packed, (Place(0, 8, 0, 1),)))(0, 16) == 0
    assert [seen[0], seen[2], *list(seen)[4:8]] == [1, 2, 0, 14, 17, 16]


def test_steps_are_done_in_their_order(receiver: ctypes.CDLL) -> None:
    first = Placed(launch(word(11), bytes(16), function=3), (Place(0, 0, 0, 0),))
    last = Placed(launch(word(12), bytes(16), function=4), (Place(1, 8, 2, 5),))
    call = made(receiver, first, Cleared(1, 16, 12), last)
    assert call(6, 100, 200, 300) == 0
    seen = (ctypes.c_uint64 * 16).in_dll(receiver, "seen")
    assert list(seen)[:5] == [12, 0, 305, 6, 4]
    assert list(seen)[11:14] == [216, 12, 6]
    # What fails is the last that is done.
    refused = made(receiver, Cleared(0, 0, 13), first)
    assert refused(6, 100) == 1
    assert list(seen)[:1] == [12]
    assert made(receiver)(0) == 0


def test_wrong_arguments_are_refused(receiver: ctypes.CDLL) -> None:
    described = launch(word(11), bytes(16))
    call = made(receiver, Placed(described, (Place(0, 0, 0, 0),)))
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
            made(receiver, Placed(described, (Place(*place),)))
    with pytest.raises(TypeError, match="bytes"):
        made(receiver, Placed(described._replace(arguments=(1,)), ()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one piece"):
        made(receiver, Placed(described._replace(packed=True), ()))
    with pytest.raises(ValueError, match="attributes"):
        made(receiver, Placed(described._replace(attributes=b"x"), ()))
    for cleared in (Cleared(-1, 0, 4), Cleared(0, 0, -4)):
        with pytest.raises(ValueError, match="zero"):
            made(receiver, cleared)
    kind = relaunch._launcher()
    assert kind is not None
    with pytest.raises(TypeError, match="tuple"):
        kind(1, 1, (7,))


# On a GPU

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
    x, y, u, v = (torch.randn(1000, device=cuda) for _ in range(4))

    def described(x: torch.Tensor, y: torch.Tensor) -> Launch:
        problem = Problem(y.data_ptr(), 1000, 3.0)
        return Launch(kernel.function, (8, 1, 1), (128, 1, 1), 0, b"", (word(x.data_ptr()), bytes(problem)))

    assert relaunch.argument_sizes(kernel.function) == [8, 16]
    spans = [Span.of(x), Span.of(y)], [Span.of(u), Span.of(v)]
    run = relaunch.repeated([described(x, y)], [described(u, v)], *spans)
    assert run is not None
    given, made = torch.randn(1000, device=cuda), torch.full((1000,), float("nan"), device=cuda)
    run(torch.cuda.current_stream(cuda).cuda_stream, given.data_ptr(), made.data_ptr())
    assert torch.equal(made, 3 * given)
    # Memory that nobody named.
    one = described(x, y)._replace(arguments=(word(x.data_ptr()), bytes(Problem(y.data_ptr(), 1000, 3.0))))
    hidden = torch.randn(1000, device=cuda)
    extra = (*one.arguments, word(hidden.data_ptr()))
    other = described(u, v)
    strange = [one._replace(arguments=extra)], [other._replace(arguments=(*other.arguments, extra[-1]))]
    assert relaunch.repeated(*strange, *spans, fixed=[]) is None
    assert relaunch.repeated(*strange, *spans, fixed=[Span.of(hidden)]) is not None


@pytest.mark.gpu
def test_a_launch_that_the_driver_refuses(cuda: torch.device, tmp_path: Path) -> None:
    path = tmp_path / "scaled.cu"
    path.write_text(SCALED)
    kernel = nvrtc.compile_kernel(path, "scaled", {}, cuda)
    too_many = Launch(kernel.function, (1, 1, 1), (4096, 1, 1), 0, b"", (bytes(8), bytes(16)))
    run = relaunch.launcher([Placed(too_many, ())])
    assert run is not None
    with pytest.raises(ImplementationError, match="CUDA driver error"):
        run(torch.cuda.current_stream(cuda).cuda_stream)
