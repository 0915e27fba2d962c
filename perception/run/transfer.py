"""Input and output blocks of a graph: one copy to the device and one back per frame.

Compiled C++ starts the copies (:mod:`sparse_core.kernels.native`). Until it is compiled, or without a
compiler, torch copies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from perception.run.batch import FixedScans
from sparse_core.kernels import native, nvrtc, torch_internals

#: Alignment of blocks in words, because kernels read four numbers at once.
_ALIGNED = 4
#: Granularity of copies in points. Views are cached by size, because making one takes longer than copying.
_STEP = 1024
#: Points above which torch's threads copy to page-locked memory; for fewer, waking threads takes longer.
_MANY = 1 << 17

_NUMBER, _POINTER = ctypes.c_int64, ctypes.c_void_p
_COPIES = native.BackgroundLibrary(
    Path(__file__).with_name("transfer.cpp"),
    {
        "send_clouds": (_NUMBER, [_POINTER, *[_NUMBER] * 6, _POINTER, _NUMBER, _NUMBER]),
        "hand_over": (_NUMBER, [_POINTER, *[_NUMBER] * 6]),
        "fetch": (_NUMBER, [_POINTER, *[_NUMBER] * 5]),
    },
    "scans are copied by torch",
)
#: Driver functions, in the order of ``Driver`` in the C++ file.
_ENTRIES = (
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
)


def prepare() -> None:
    """Start compiling the copies in the background."""
    _COPIES.library()


@cache
def _entries() -> ctypes.Array[ctypes.c_int64]:
    return native.int64_array(*map(nvrtc.driver_address, _ENTRIES))


def _compiled(device: torch.device) -> ctypes.CDLL | None:
    """Return the compiled copies if the device is current; None if torch must copy."""
    if device.index != torch_internals.current_device():
        return None
    return _COPIES.library()


def _done(status: int) -> bool:
    """Return True if a copy was started, False if this thread has no CUDA context yet."""
    if status == nvrtc.INVALID_CONTEXT:
        return False
    nvrtc.check(status, "a copy to or from the GPU")
    return True


class PendingCopy(NamedTuple):
    """A copy of a block to a device.

    Attributes:
        copying: stream of the copy.
        copied: event that completes with the copy; recorded once before.
    """

    copying: torch.cuda.Stream
    copied: torch.cuda.Event


class InputBlock:
    """A batch of frames in one block of memory: lengths, then points.

    Args:
        points: capacity for points of a frame.
        columns: numbers of a point.
        device: device; None: page-locked host memory.

    Attributes:
        words: (W,) float32, the whole block.
        scans: views of the block.
    """

    def __init__(
        self, batch_size: int, points: int, columns: int = 4, *, device: torch.device | None = None
    ) -> None:
        self._first = -(-batch_size // _ALIGNED) * _ALIGNED
        self._room, self.columns = points, columns
        count = self._first + batch_size * points * columns
        self.words = torch.zeros(count, dtype=torch.float32, device=device, pin_memory=device is None)
        lengths = self.words[:batch_size].view(torch.int32)
        self.scans = FixedScans(self.words[self._first :].view(batch_size, points, columns), lengths)
        if self.words.device.type == "cpu":
            self._points, self._lengths = self.scans.points.numpy(), lengths.numpy()
        self._parts: dict[tuple[int, int], Tensor] = {}
        self._address, self._device = self.words.data_ptr(), self.words.device

    def part(self, frame: int, steps: int) -> Tensor:
        """Return a view of ``steps * _STEP`` points of a frame; for frame 0 with the lengths before them."""
        known = self._parts.get((frame, steps))
        if known is None:
            start = self._first + self.columns * frame * self._room
            end = start + self.columns * min(steps * _STEP, self._room)
            known = self._parts[frame, steps] = self.words[start if frame else 0 : end]
        return known

    def take(self, staged: InputBlock, points: int, arrival: PendingCopy | None = None) -> None:
        """Copy a frame from a block of the same shape on this device, without waiting.

        Args:
            staged: source block.
            points: points of the frame.
            arrival: pending copy into the source; None: the current stream has filled it.
        """
        library = None if arrival is None else _compiled(self._device)
        if library is not None and arrival is not None:
            size = 4 * (self._first + self.columns * points)
            stream = torch_internals.raw_stream(self._device.index)
            streams = (arrival.copying.cuda_stream, stream, arrival.copied.cuda_event)
            if _done(library.hand_over(_entries(), *streams, staged._address, self._address, size)):
                return
        if arrival is not None:
            arrival.copied.record(arrival.copying)
            arrival.copied.wait()
        steps = -(-points // _STEP)
        self.part(0, steps).copy_(staged.part(0, steps), non_blocking=True)

    def send(
        self, host: InputBlock, clouds: Sequence[Tensor], copying: torch.cuda.Stream | None = None
    ) -> None:
        """Copy clouds, (N_i, C) float32 each, into this block through a page-locked block.

        Does not wait: the host block must not change until the copies are done. Clouds on the device are
        copied directly.

        Args:
            host: page-locked block of the same shape.
            clouds: one cloud per frame.
            copying: stream of the copies; None: the current one.
        """
        if self._device.type == "cuda" and self._sent(host, clouds, copying):
            return
        with nullcontext() if copying is None else torch.cuda.stream(copying):
            self._copied_by_torch(host, clouds)

    def _sent(self, host: InputBlock, clouds: Sequence[Tensor], copying: torch.cuda.Stream | None) -> bool:
        library = _compiled(self._device)
        if library is None:
            return False
        given: list[int] = []
        for cloud in clouds:
            if not cloud.is_cpu or cloud.dtype is not torch.float32 or not cloud.is_contiguous():
                return False
            given += (cloud.data_ptr(), cloud.shape[0])
        stream = torch_internals.raw_stream(self._device.index) if copying is None else copying.cuda_stream
        blocks = (host._address, self._address, 4 * self._first, self._room, 4 * self.columns)
        listed, threads = native.int64_array(*given), torch.get_num_threads()
        return _done(library.send_clouds(_entries(), stream, *blocks, listed, len(clouds), threads))

    def _copied_by_torch(self, host: InputBlock, clouds: Sequence[Tensor]) -> None:
        for frame, cloud in enumerate(clouds):
            host._lengths[frame] = len(cloud)
        # The first frame is copied last, because its part includes all lengths.
        for frame in range(len(clouds) - 1, -1, -1):
            cloud = clouds[frame]
            count = len(cloud)
            steps = -(-count // _STEP)
            if cloud.device.type != "cpu":
                self.scans.points[frame, :count].copy_(cloud, non_blocking=True)
                steps = 0
            elif count < _MANY:
                host._points[frame, :count] = cloud.numpy()
            else:
                host.scans.points[frame, :count].copy_(cloud)
            if steps or frame == 0:
                self.part(frame, steps).copy_(host.part(frame, steps), non_blocking=True)


class OutputBlock:
    """Page-locked memory for the report of a graph.

    Args:
        words: (W,) int32 on a GPU, overwritten by every replay.

    Attributes:
        host_words: (W,) int32 copy on the host.
    """

    def __init__(self, words: Tensor) -> None:
        self._words = words
        self.host_words = torch.empty(words.shape, dtype=words.dtype, pin_memory=True)
        size = words.numel() * words.element_size()
        self._copy = (words.data_ptr(), self.host_words.data_ptr(), size)
        self._device = words.device

    def fetch(self, done: torch.cuda.Event | None = None) -> None:
        """Copy the report after the work of the current stream.

        Args:
            done: event that completes with the copy, recorded once before; None: wait for the copy.
        """
        library = _compiled(self._device)
        if library is not None:
            stream = torch_internals.raw_stream(self._device.index)
            event = 0 if done is None else done.cuda_event
            if _done(library.fetch(_entries(), stream, *self._copy, event)):
                return
        self.host_words.copy_(self._words, non_blocking=True)
        if done is None:
            torch.cuda.current_stream(self._device).synchronize()
        else:
            done.record()
