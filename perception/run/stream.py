"""Stream scans: copy the next scan to the device while the current one is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from perception.run.fetch import Fetcher
from perception.run.graph import FrameGraph, FrameRunner, warn_of_overflow
from perception.run.results import FrameResult
from perception.run.transfer import InputBlock, OutputBlock, PendingCopy

_SLOTS = 2


@dataclass(eq=False)
class _StreamSlot:
    """Buffers of a frame in flight: page-locked on the host, staged on the device."""

    host: InputBlock
    staged: InputBlock
    out: OutputBlock
    arrival: PendingCopy
    done: torch.cuda.Event
    graph: FrameGraph
    cloud: Tensor | None = None

    def __post_init__(self) -> None:
        self.reported = self.graph.layout.views(self.out.host_words.numpy())


class _DirectSource:
    """Items in memory, with the interface of :class:`Fetcher`."""

    def __init__(self, items: Iterable[Tensor]) -> None:
        self._items = iter(items)

    def take(self, *, wait: bool) -> Tensor | None:
        """Return the next item; None at the end."""
        return next(self._items, None)


def stream_frames(
    runner: FrameRunner, clouds: Iterable[Tensor], *, ready: bool = False
) -> Iterator[FrameResult]:
    """Yield the results of scans in order.

    A thread fetches the scans. Copies, computation and the caller's own work overlap, and a slow sensor
    delays no result. A frame that does not fit is computed again in a larger graph.

    Args:
        runner: runner on a GPU.
        clouds: (N_i, C) float32 on the host.
        ready: the clouds are in memory, so no thread is needed.
    """
    copying = torch.cuda.Stream(runner.device)
    slots: list[_StreamSlot | None] = [None] * _SLOTS
    waiting: deque[_StreamSlot] = deque()
    number = 0
    source = nullcontext(_DirectSource(clouds)) if ready else Fetcher(clouds, ahead=_SLOTS)
    with runner.streaming(), source as arriving, ExitStack() as ended:
        # Frames in flight still write to these buffers when the caller stops early.
        ended.callback(_wait_for_all, waiting)
        while True:
            try:
                cloud = arriving.take(wait=not waiting)
            except Exception:
                # Yield the frames that arrived before the error.
                while waiting:
                    yield _collect(runner, waiting.popleft())
                raise
            if cloud is not None:
                graph = runner.graph_for([cloud])
                slot = slots[number % _SLOTS]
                if slot is None or slot.graph is not graph:
                    slot = slots[number % _SLOTS] = _slot(graph, runner.device, copying)
                _submit(slot, cloud)
                waiting.append(slot)
                number += 1
                if len(waiting) < _SLOTS:
                    continue
            elif not waiting:
                return
            yield _collect(runner, waiting.popleft())


def _wait_for_all(slots: Iterable[_StreamSlot]) -> None:
    for slot in slots:
        slot.done.synchronize()


@torch.inference_mode()
def _slot(graph: FrameGraph, device: torch.device, copying: torch.cuda.Stream) -> _StreamSlot:
    columns = graph.entry.columns
    staged = InputBlock(1, graph.room.points, columns, device=device)
    # Zeroing, and the previous owner of this memory, may still be queued behind a frame in flight.
    copying.wait_stream(torch.cuda.current_stream(device))
    staged.words.record_stream(copying)
    copied, done = torch.cuda.Event(), torch.cuda.Event()
    for event in (copied, done):
        event.record()  # Creates the event.
    host, out = InputBlock(1, graph.room.points, columns), OutputBlock(graph.words)
    return _StreamSlot(host, staged, out, PendingCopy(copying, copied), done, graph)


@torch.inference_mode()
def _submit(slot: _StreamSlot, cloud: Tensor) -> None:
    graph = slot.graph
    slot.cloud = cloud
    # The previous frame of this slot has been collected, so its buffers are free.
    slot.staged.send(slot.host, [cloud], slot.arrival.copying)
    graph.entry.take(slot.staged, len(cloud), slot.arrival)
    graph.replay()
    slot.out.fetch(slot.done)


@torch.inference_mode()
def _collect(runner: FrameRunner, slot: _StreamSlot) -> FrameResult:
    slot.done.synchronize()
    numbers = slot.reported.numbers.tolist()
    if runner.growth(slot.graph, numbers) is not None:
        assert slot.cloud is not None
        return runner([slot.cloud])[0]
    results = runner.results(slot.reported, numbers, slot.graph)
    warn_of_overflow(results)
    return results[0]
