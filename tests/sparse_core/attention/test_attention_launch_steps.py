"""On a CPU, check that a plan passes the driver the arguments of an ordinary call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sparse_core.attention import local_window
from sparse_core.attention.gpu import hopper
from sparse_core.attention.gpu.plan import lists_of
from sparse_core.attention.operands import AttentionShape
from sparse_core.kernels import nvrtc, torch_internals
from sparse_core.kernels.launch_plan import KernelStep


class Driver:
    """Stand-in of the driver: a tensor map holds its address and longest stride."""

    def __getitem__(self, name: str) -> Any:
        assert name == "cuTensorMapReplaceAddress"

        class Move:
            def __call__(self, tensor_map: int, address: int) -> int:
                ctypes.c_uint64.from_address(tensor_map).value = address
                return 0

        return Move()

    def __getattr__(self, name: str) -> Any:
        assert name == "cuTensorMapEncodeTiled"

        def encode(
            place: Any, kind: int, rank: int, address: Any, sizes: Any, strides: Any, *rest: Any
        ) -> int:
            words = ctypes.cast(place, ctypes.POINTER(ctypes.c_uint64))
            words[0], words[1] = address.value, strides[2]
            return 0

        return encode


class Kernel:
    """Stand-in of a kernel that records its arguments."""

    function = 7

    def __init__(self) -> None:
        self.taken: list[list[bytes]] = []

    def prepare(self, grid: tuple[int, ...], threads: int, arguments: Sequence[Any], shared: int) -> Any:
        self.prepared = grid, threads, shared
        return lambda stream: self.taken.append([bytes(one) for one in arguments])


def test_the_kernel_gets_what_the_ordinary_call_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, driver, steps = Kernel(), Driver(), []
    monkeypatch.setattr(nvrtc, "compile_kernel", lambda *given: kernel)
    monkeypatch.setattr(nvrtc, "driver", lambda: driver)
    monkeypatch.setattr(torch_internals, "raw_stream", lambda index: 77)
    properties = SimpleNamespace(multi_processor_count=4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(hopper, "make_launcher", lambda made: steps.extend(made))
    lists = lists_of(local_window(256, window=64, block_size=64))
    q, k, v = (torch.randn(2, 256, 3, 64).half().transpose(1, 2) for _ in range(3))
    launch = hopper.Launch(lists, None, AttentionShape(2, 3, 3, 256, 256, 64), q)
    launch.launcher(q, k, v, 0.5, torch.empty_like(q))
    (step,) = steps
    assert isinstance(step, KernelStep)
    described = step.launch
    assert (described.grid, described.block[0], described.shared_bytes) == kernel.prepared
    assert [place.in_map for place in step.places] == [True] * 3 + [False] * 4
    # Launch other tensors of these strides by an ordinary call and by the recorded step.
    given = [torch.randn(2, 256, 3, 64).half().transpose(1, 2) for _ in range(4)]
    nothing = torch.empty(0)
    launch(*given[:3], 0.5, given[3], nothing, nothing, nothing)
    arguments = [bytearray(argument) for argument in described.arguments]
    for place in step.places:
        address = given[place.address].data_ptr() + place.shift
        arguments[place.argument][place.offset : place.offset + 8] = address.to_bytes(8, "little")
    assert [bytes(one) for one in arguments] == kernel.taken[-1]
