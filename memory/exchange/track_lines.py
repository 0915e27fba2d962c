"""Memories from frames of tracks: one memory per static object, one episode per moving object."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import DataError
from memory.exchange.detections import DetectionOptions
from memory.exchange.jsonl import StreamLines
from memory.exchange.sources import DetectionLines, Entry, Remainder
from memory.merging.tracks import TRACKS, tracks_of
from memory.tracks import BoxLinker, Sights, TrackMemories
from memory.types import Memory

_SLOT = "default"
#: Frames at most this far apart are linked; in longer pauses objects move on, and others take their place.
LINKED_S = 0.6


class TrackLines(DetectionLines):
    """Frames of tracks; all tracks of a file belong to one recording."""

    def __init__(
        self,
        path: Path,
        options: DetectionOptions | None = None,
        stream: StreamLines | None = None,
        *,
        table: bool = False,
    ) -> None:
        super().__init__(path, options, stream, table=table)
        self._recording = self.options.recording
        self._tracks: TrackMemories | None = None
        self._last = 0
        self.sort += " by tracks"

    def entries(self) -> Iterator[Entry]:
        """Yield every non-empty line; the first one names the recording."""
        for entry in super().entries():
            if self._tracks is None:
                digest = hashlib.sha256(entry.raw).hexdigest()[:8]
                name = self._recording or f"{self.path.resolve().parent.name or self.path.stem}@{digest}"
                self.options = replace(self.options, recording=name)
                self._tracks = TrackMemories(
                    name, map_id=self.options.map_id, provenance=self.options.provenance
                )
            yield entry

    def parse(self, entry: Entry, dims: dict[str, int]) -> list[Memory]:
        """Return the memories of tracks that have ended, and the place of the frame."""
        self._last = entry.number
        return self._collect(entry, super().parse(entry, dims))

    def skip(self, entry: Entry) -> None:
        """Follow the tracks of a line that was imported before, because they may continue after it."""
        self._last = entry.number
        # The earlier import checked the vector lengths.
        self._collect(entry, super().parse(entry, {}))
        if self._tracks is not None and entry.number in self.ended.get(self._tracks.recording, ()):
            self._finish()

    def end(self) -> Remainder:
        """Return the memories of tracks that last until the final frame."""
        if self._tracks is None:
            return Remainder([], {})
        return Remainder(self._finish(), {"recording": self._tracks.recording, "ended": self._last})

    def _finish(self) -> list[Memory]:
        """End all tracks and return their memories."""
        found = [] if self._tracks is None else self._tracks.end()
        self.unsure = 0 if self._tracks is None else self._tracks.unsure
        return found

    def _collect(self, entry: Entry, found: list[Memory]) -> list[Memory]:
        objects = [memory for memory in found if tracks_of(memory)]
        others = [memory for memory in found if not tracks_of(memory)]
        if self._tracks is None or not objects:
            return others
        return self._see(entry.number, objects) + others

    def _see(self, number: int, objects: list[Memory]) -> list[Memory]:
        """Pass the boxes of a line to their tracks; return the memories of ended tracks."""
        assert self._tracks is not None
        try:
            return self._tracks.see(sights_of(objects))
        except ValueError as error:
            raise DataError(f"{self.path}:{number}: {error}") from error


class _HeldFrame(NamedTuple):
    """A frame that waits for the next one.

    Attributes:
        number: of its line.
        objects: memories of its boxes.
        linked: True if the frame before it was close in time.
    """

    number: int
    objects: list[Memory]
    linked: bool


class LinkedLines(TrackLines):
    """Frames of detections whose boxes have poses and no track numbers.

    Boxes of frames that follow each other within ``LINKED_S`` are linked to tracks
    (:mod:`memory.tracks.linking`). Other frames give one memory per box, because nothing shows which boxes
    are of one object. A frame therefore waits until the next one shows how far away that is. If time goes
    backwards, another recording begins.
    """

    def __init__(
        self,
        path: Path,
        options: DetectionOptions | None = None,
        stream: StreamLines | None = None,
        *,
        table: bool = False,
    ) -> None:
        super().__init__(path, options, stream, table=table)
        self._linker = BoxLinker()
        self._held: _HeldFrame | None = None
        self._last_ns: int | None = None

    def _finish(self) -> list[Memory]:
        return self._release(linked=False) + super()._finish()

    def _collect(self, entry: Entry, found: list[Memory]) -> list[Memory]:
        objects = [memory for memory in found if memory.kind == "object"]
        others = [memory for memory in found if memory.kind != "object"]
        if not objects:
            return others
        time_ns, last_ns = objects[0].time_ns, self._last_ns
        if last_ns is not None and time_ns < last_ns:
            released, linked = self._finish(), False
            self._linker.restart()
        else:
            linked = last_ns is not None and time_ns - last_ns <= LINKED_S * 1e9
            released = self._release(linked=linked)
        self._held, self._last_ns = _HeldFrame(entry.number, objects, linked), time_ns
        return released + others

    def _release(self, *, linked: bool) -> list[Memory]:
        """Return the memories that the waiting frame leads to.

        Args:
            linked: True if the next frame is close in time.
        """
        held, self._held = self._held, None
        if held is None:
            return []
        if not (held.linked or linked):
            return held.objects
        time_ns, name = held.objects[0].time_ns, self.options.recording
        boxes = np.array([_box_of(memory) for memory in held.objects], np.float64)
        numbers = self._linker.link(time_ns, boxes, [memory.label for memory in held.objects])
        tracked = [
            replace(memory, payload={**memory.payload, TRACKS: {f"{name}/{number}": [time_ns, time_ns]}})
            for memory, number in zip(held.objects, numbers, strict=True)
        ]
        return self._see(held.number, tracked)


def sights_of(objects: list[Memory]) -> Sights:
    """Convert the memories of a frame's boxes to observations of their tracks."""
    boxes = [_box_of(memory) for memory in objects]
    vectors: dict[str, NDArray[np.float32]] = {}
    for row, memory in enumerate(objects):
        default = {} if memory.embedding is None else {_SLOT: memory.embedding}
        for name, vector in (default | dict(memory.embeddings)).items():
            vectors.setdefault(name, np.zeros((len(objects), len(vector)), np.float32))[row] = vector
    spreads = [memory.covariance for memory in objects if memory.covariance is not None]
    first = objects[0]
    return Sights(
        time_ns=first.time_ns,
        track_id=[int(tracks_of(memory)[0][1]) for memory in objects],
        boxes=np.array(boxes, np.float64).reshape(-1, 7),
        labels=[memory.label for memory in objects],
        scores=[memory.confidence for memory in objects],
        covariance=np.stack(spreads) if len(spreads) == len(objects) else None,
        velocities=[memory.velocity for memory in objects],
        embeddings=vectors,
        evidence=first.evidence,
        payload={key: first.payload[key] for key in ("frame", "seen_from") if key in first.payload},
    )


def _box_of(memory: Memory) -> list[float]:
    """Return the box of a memory in the map: x, y, z, length, width, height, yaw."""
    return [*memory.place, *memory.payload["size_m"], memory.yaw]
