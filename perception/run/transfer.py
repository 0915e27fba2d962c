"""What goes into a graph: one block, so that a frame is one copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from perception.run.graph_steps import FixedScans

#: Words that blocks are aligned to, as points are read four numbers at a time.
_ALIGNED = 4
#: Points by which copies grow: a view is made once for each size, since making one takes longer than copying.
_STEP = 1024
#: Points from which several threads copy to page-locked memory: below, waking them takes longer.
_MANY = 1 << 17


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
        self.words = torch.zeros(count, device=device, pin_memory=device is None)
        lengths = self.words[:batch_size].view(torch.int32)
        self.scans = FixedScans(self.words[self._first :].view(batch_size, points, 4), lengths)
        if self.words.device.type == "cpu":
            self._points, self._lengths = self.scans.points.numpy(), lengths.numpy()
        self._parts: dict[tuple[int, int], Tensor] = {}

    def part(self, frame: int, steps: int) -> Tensor:
        """A frame's first points, some steps of ``_STEP``; the first frame's with the lengths before it."""
        known = self._parts.get((frame, steps))
        if known is None:
            start = self._first + 4 * frame * self._room
            end = start + 4 * min(steps * _STEP, self._room)
            known = self._parts[frame, steps] = self.words[start if frame else 0 : end]
        return known

    def take(self, staged: InputBlock, points: int) -> None:
        """A frame of so many points from a block like this one on the same device, without waiting."""
        steps = -(-points // _STEP)
        self.part(0, steps).copy_(staged.part(0, steps), non_blocking=True)

    def through(self, host: InputBlock, clouds: Sequence[Tensor]) -> None:
        """Take clouds, (N_i, 4) float32 each, by way of a page-locked block like this one.

        Nothing waits: the host's block must not change before the copies are done. Clouds on the device do
        not pass it.
        """
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
