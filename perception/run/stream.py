"""A stream of scans: the next one is copied to the device while this one is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from perception.run.fetch import Fetcher
from perception.run.graph import FrameGraph, FrameRunner
from perception.run.graph_steps import FrameBoxes
from perception.run.results import FrameResult

_SLOTS = 2


@dataclass(eq=False)
class _Slot:
    """Buffers of a frame under way: pinned on the host, staged on the device."""

    host: Tensor
    staged: Tensor
    host_length: Tensor
    staged_length: Tensor
    found: FrameBoxes
    copied: torch.cuda.Event
    done: torch.cuda.Event
    graph: FrameGraph
    cloud: Tensor | None = None


def stream_frames(runner: FrameRunner, clouds: Iterable[Tensor]) -> Iterator[FrameResult]:
    """Boxes of scans in their order, each as soon as it is known.

    Scans are fetched by a thread, and the next one is copied and queued while this one is computed: copying,
    computing and the caller's own work overlap, and a slow sensor delays nothing. A frame that does not fit
    is computed again with more room.

    Args:
        runner: on a GPU.
        clouds: (N_i, 4) float32 on the host.
    """
    copying = torch.cuda.Stream(runner.device)
    slots: list[_Slot | None] = [None] * _SLOTS
    waiting: deque[_Slot] = deque()
    number = 0
    with Fetcher(clouds, ahead=_SLOTS) as arriving:
        while True:
            try:
                cloud = arriving.take(wait=not waiting)
            except Exception:
                # What arrived before the error is given out before it.
                while waiting:
                    yield _collect(runner, waiting.popleft())
                raise
            if cloud is not None:
                graph = runner.graph_for([cloud])
                slot = slots[number % _SLOTS]
                if slot is None or slot.graph is not graph:
                    slot = slots[number % _SLOTS] = _slot(graph, runner.device)
                _submit(slot, cloud, copying)
                waiting.append(slot)
                number += 1
                if len(waiting) < _SLOTS:
                    continue
            elif not waiting:
                return
            yield _collect(runner, waiting.popleft())


@torch.inference_mode()
def _slot(graph: FrameGraph, device: torch.device) -> _Slot:
    def pinned(like: Tensor) -> Tensor:
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    return _Slot(
        pinned(graph.scans.points[0]),
        torch.empty_like(graph.scans.points[0]),
        pinned(graph.scans.lengths),
        torch.empty_like(graph.scans.lengths),
        FrameBoxes(*(pinned(part) for part in graph.found)),
        torch.cuda.Event(),
        torch.cuda.Event(),
        graph,
    )


@torch.inference_mode()
def _submit(slot: _Slot, cloud: Tensor, copying: torch.cuda.Stream) -> None:
    count = len(cloud)
    # The frame that used this slot has been collected, so its buffers are free.
    slot.host[:count].copy_(cloud)
    slot.host_length.fill_(count)
    slot.cloud = cloud
    with torch.cuda.stream(copying):
        slot.staged[:count].copy_(slot.host[:count], non_blocking=True)
        slot.staged_length.copy_(slot.host_length, non_blocking=True)
        slot.copied.record()
    slot.copied.wait()
    graph = slot.graph
    graph.scans.points[0, :count].copy_(slot.staged[:count], non_blocking=True)
    graph.scans.lengths.copy_(slot.staged_length, non_blocking=True)
    graph.replay()
    for host, part in zip(slot.found, graph.found, strict=True):
        host.copy_(part, non_blocking=True)
    slot.done.record()


@torch.inference_mode()
def _collect(runner: FrameRunner, slot: _Slot) -> FrameResult:
    slot.done.synchronize()
    numbers = slot.found.numbers.tolist()
    if runner.growth(slot.graph, numbers) is not None:
        assert slot.cloud is not None
        return runner([slot.cloud])[0]
    found = FrameBoxes(*(part.clone() for part in slot.found))
    return runner.results(found, numbers, slot.graph.room)[0]
