"""What goes into a graph and comes out of it: a block each way, so that a frame is a copy there and one back.

Compiled C++ asks for the copies (:mod:`sparse_core.kernels.native`). Without a compiler, and until it has
finished, torch makes the same copies.
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

#: Words that blocks are aligned to, as points are read four numbers at a time.
_ALIGNED = 4
#: Points by which copies grow: a view is made once for each size, since making one takes longer than copying.
_STEP = 1024
#: Points from which torch's threads copy to page-locked memory: below, waking them takes longer.
_MANY = 1 << 17
_POINT_BYTES = 16

_NUMBER, _POINTER = ctypes.c_int64, ctypes.c_void_p
_COPIES = native.Beside(
    Path(__file__).with_name("transfer.cpp"),
    {
        "send_clouds": (_NUMBER, [_POINTER, *[_NUMBER] * 5, _POINTER, _NUMBER, _NUMBER]),
        "hand_over": (_NUMBER, [_POINTER, *[_NUMBER] * 6]),
        "fetch": (_NUMBER, [_POINTER, *[_NUMBER] * 5]),
    },
    "scans are copied by torch",
)
#: In the order of ``Driver`` in the C++ file.
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
    """Begin to compile the copies, beside what else a first frame waits for."""
    _COPIES.library()


@cache
def _entries() -> ctypes.Array[ctypes.c_int64]:
    return native.numbers(*map(nvrtc.entry, _ENTRIES))


def _compiled(device: torch.device) -> ctypes.CDLL | None:
    """The copies in C++, for the current device; None where torch does them."""
    if device.index != torch_internals.current_device():
        return None
    return _COPIES.library()


def _done(status: int) -> bool:
    """Whether a copy was asked for; not by a thread that has not used the device yet.

    Raises:
        ImplementationError: the driver refused it.
    """
    if status == nvrtc.INVALID_CONTEXT:
        return False
    nvrtc.check(status, "a copy to or from the GPU")
    return True


class PendingCopy(NamedTuple):
    """How a block comes to a device.

    Attributes:
        copying: the stream that brings it.
        copied: recorded once before; comes when it is there.
    """

    copying: torch.cuda.Stream
    copied: torch.cuda.Event


class InputBlock:
    """A batch of frames in one block of memory: lengths, then points.

    Args:
        batch_size: frames.
        points: of a frame that there is room for.
        device: where; None: page-locked memory of the host.

    Attributes:
        words: (W,) float32, all of it.
        scans: views of it.
    """

    def __init__(self, batch_size: int, points: int, *, device: torch.device | None = None) -> None:
        self._first = -(-batch_size // _ALIGNED) * _ALIGNED
        self._room = points
        count = self._first + batch_size * points * 4
        self.words = torch.zeros(count, dtype=torch.float32, device=device, pin_memory=device is None)
        lengths = self.words[:batch_size].view(torch.int32)
        self.scans = FixedScans(self.words[self._first :].view(batch_size, points, 4), lengths)
        if self.words.device.type == "cpu":
            self._points, self._lengths = self.scans.points.numpy(), lengths.numpy()
        self._parts: dict[tuple[int, int], Tensor] = {}
        self._address, self._device = self.words.data_ptr(), self.words.device

    def part(self, frame: int, steps: int) -> Tensor:
        """A frame's first points, some steps of ``_STEP``; the first frame's with the lengths before it."""
        known = self._parts.get((frame, steps))
        if known is None:
            start = self._first + 4 * frame * self._room
            end = start + 4 * min(steps * _STEP, self._room)
            known = self._parts[frame, steps] = self.words[start if frame else 0 : end]
        return known

    def take(self, staged: InputBlock, points: int, arrival: PendingCopy | None = None) -> None:
        """A frame of so many points from a block like this one on the same device, without waiting.

        Args:
            staged: the block.
            points: of the frame.
            arrival: of the block; None: it is there when the current stream has come so far.
        """
        library = None if arrival is None else _compiled(self._device)
        if library is not None and arrival is not None:
            size = 4 * self._first + _POINT_BYTES * points
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
        """Take clouds, (N_i, 4) float32 each, by way of a page-locked block like this one.

        Nothing waits: the host's block must not change before the copies are done. Clouds on the device do
        not pass it.

        Args:
            host: the page-locked block.
            clouds: one a frame.
            copying: the stream that brings them; None: the current one.
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
        blocks = (host._address, self._address, 4 * self._first, _POINT_BYTES * self._room)
        listed, threads = native.numbers(*given), torch.get_num_threads()
        return _done(library.send_clouds(_entries(), stream, *blocks, listed, len(clouds), threads))

    def _copied_by_torch(self, host: InputBlock, clouds: Sequence[Tensor]) -> None:
        for frame, cloud in enumerate(clouds):
            host._lengths[frame] = len(cloud)
        # The first frame goes last, and the lengths with it.
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
    """What a graph reports, and page-locked memory that it is copied to.

    Args:
        words: (W,) int32 on a GPU, which every replay overwrites.

    Attributes:
        told: (W,) int32 of the host.
    """

    def __init__(self, words: Tensor) -> None:
        self._words = words
        self.host_words = torch.empty(words.shape, dtype=words.dtype, pin_memory=True)
        size = words.numel() * words.element_size()
        self._copy = (words.data_ptr(), self.host_words.data_ptr(), size)
        self._device = words.device

    def fetch(self, done: torch.cuda.Event | None = None) -> None:
        """Copy what the current stream has computed.

        Args:
            done: recorded once before; comes when it is there. None: wait for it.
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
