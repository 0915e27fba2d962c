"""A stream of scans: the next one is copied to the device while this one is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from perception.run.fetch import Fetcher
from perception.run.graph import FrameGraph, FrameRunner, tell_overflow
from perception.run.results import FrameResult
from perception.run.transfer import InputBlock

_SLOTS = 2


@dataclass(eq=False)
class _Slot:
    """Buffers of a frame under way: page-locked on the host, staged on the device."""

    host: InputBlock
    staged: InputBlock
    told: Tensor
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
                    slot = slots[number % _SLOTS] = _slot(graph, runner.device, copying)
                _submit(slot, cloud, copying)
                waiting.append(slot)
                number += 1
                if len(waiting) < _SLOTS:
                    continue
            elif not waiting:
                return
            yield _collect(runner, waiting.popleft())


@torch.inference_mode()
def _slot(graph: FrameGraph, device: torch.device, copying: torch.cuda.Stream) -> _Slot:
    staged = InputBlock(1, graph.room.points, device=device)
    # Its zeros, and whoever had this memory before, may still stand behind a frame under way.
    copying.wait_stream(torch.cuda.current_stream(device))
    staged.words.record_stream(copying)
    return _Slot(
        InputBlock(1, graph.room.points),
        staged,
        torch.empty(graph.words.shape, dtype=torch.int32, pin_memory=True),
        torch.cuda.Event(),
        torch.cuda.Event(),
        graph,
    )


@torch.inference_mode()
def _submit(slot: _Slot, cloud: Tensor, copying: torch.cuda.Stream) -> None:
    graph = slot.graph
    slot.cloud = cloud
    with torch.cuda.stream(copying):
        # The frame that used this slot has been collected, so its buffers are free.
        slot.staged.through(slot.host, [cloud])
        slot.copied.record()
    slot.copied.wait()
    used = slot.staged.used(len(cloud))
    graph.entry.words[:used].copy_(slot.staged.words[:used], non_blocking=True)
    graph.replay()
    slot.told.copy_(graph.words, non_blocking=True)
    slot.done.record()


@torch.inference_mode()
def _collect(runner: FrameRunner, slot: _Slot) -> FrameResult:
    slot.done.synchronize()
    found = slot.graph.unpack(slot.told.numpy().copy())
    if runner.growth(slot.graph, found.numbers.tolist()) is not None:
        assert slot.cloud is not None
        return runner([slot.cloud])[0]
    results = runner.results(found, slot.graph.room)
    tell_overflow(results)
    return results[0]
