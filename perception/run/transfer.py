"""What goes into a graph and comes out of it: one block each, so that a frame is one copy each way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from perception.run.graph_steps import FixedScans, FrameBoxes

#: Bytes of a word: everything is made of them.
_WORD = 4
#: Words that blocks are aligned to, as points are read four numbers at a time.
_ALIGNED = 4


class HostBoxes(NamedTuple):
    """:class:`~perception.run.graph_steps.FrameBoxes` on the host."""

    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int32]
    embeddings: npt.NDArray[np.float32]


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
        count = self._first + batch_size * points * 4
        self.words = torch.zeros(count, device=device, pin_memory=device is None)
        lengths = self.words[:batch_size].view(torch.int32)
        self.scans = FixedScans(self.words[self._first :].view(batch_size, points, 4), lengths)
        if self.words.device.type == "cpu":
            self._points, self._lengths = self.scans.points.numpy(), lengths.numpy()

    def used(self, points: int) -> int:
        """Words up to the end of a first frame of so many points."""
        return self._first + 4 * points

    def through(self, host: InputBlock, clouds: Sequence[Tensor]) -> None:
        """Take clouds, (N_i, 4) float32 each, by way of a page-locked block like this one.

        Nothing waits: the host's block must not change before the copies are done. Clouds on the device do
        not pass it.
        """
        host._lengths[:] = [len(cloud) for cloud in clouds]
        sent = self._first
        for frame, cloud in enumerate(clouds):
            count = len(cloud)
            if cloud.device.type != "cpu":
                self.scans.points[frame, :count].copy_(cloud, non_blocking=True)
                continue
            # One thread: waking others takes longer than a frame does.
            host._points[frame, :count] = cloud.numpy()
            if frame == 0:
                # Side by side with the lengths.
                sent = self.used(count)
            else:
                into, given = self.scans.points[frame, :count], host.scans.points[frame, :count]
                into.copy_(given, non_blocking=True)
        self.words[:sent].copy_(host.words[:sent], non_blocking=True)


def packed(found: FrameBoxes) -> Tensor:
    """All parts one after the other: (W,) int32, words of whatever they hold."""
    return torch.cat([_words(part) for part in found])


def _words(part: Tensor) -> Tensor:
    if part.element_size() != _WORD:
        part = part.float() if part.is_floating_point() else part.to(torch.int32)
    return part.reshape(-1).view(torch.int32)


class Unpacking:
    """Parts out of packed words on the host.

    Args:
        found: parts of these shapes; its values do not matter.
    """

    def __init__(self, found: FrameBoxes) -> None:
        self._parts: list[tuple[slice, type[np.float32] | type[np.int32], tuple[int, ...]]] = []
        at = 0
        for part in found:
            kind = np.float32 if part.is_floating_point() else np.int32
            self._parts.append((slice(at, at + part.numel()), kind, tuple(part.shape)))
            at += part.numel()

    def __call__(self, words: npt.NDArray[np.int32]) -> HostBoxes:
        """Views of (W,) words."""
        parts: Any = [words[where].view(kind).reshape(shape) for where, kind, shape in self._parts]
        return HostBoxes(*parts)
