"""Memories from frames of tracks: one memory per static object, one episode per moving object."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from memory.errors import DataError
from memory.exchange.detections import DetectionOptions
from memory.exchange.jsonl import StreamLines
from memory.exchange.sources import DetectionLines, Entry, Remainder
from memory.merging.tracks import tracks_of
from memory.tracks import Sights, TrackMemories
from memory.types import Memory

_SLOT = "default"


class TrackLines(DetectionLines):
    """JSONL with one frame of tracks per line; all tracks of a file belong to one recording."""

    def __init__(
        self, path: Path, options: DetectionOptions | None = None, stream: StreamLines | None = None
    ) -> None:
        super().__init__(path, options, stream)
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
            self._tracks.end()

    def end(self) -> Remainder:
        """Return the memories of tracks that last until the final frame."""
        if self._tracks is None:
            return Remainder([], {})
        return Remainder(self._tracks.end(), {"recording": self._tracks.recording, "ended": self._last})

    def _collect(self, entry: Entry, found: list[Memory]) -> list[Memory]:
        objects = [memory for memory in found if tracks_of(memory)]
        others = [memory for memory in found if not tracks_of(memory)]
        if self._tracks is None or not objects:
            return others
        try:
            return self._tracks.see(sights_of(objects)) + others
        except ValueError as error:
            raise DataError(f"{self.path}:{entry.number}: {error}") from error


def sights_of(objects: list[Memory]) -> Sights:
    """Convert the memories of a frame's boxes to observations of their tracks."""
    boxes = [[*memory.place, *memory.payload["size_m"], memory.yaw] for memory in objects]
    names = {name for memory in objects for name in memory.embeddings}
    vectors = {
        name: np.stack([memory.embeddings[name] for memory in objects])
        for name in sorted(names)
        if all(name in memory.embeddings for memory in objects)
    }
    defaults = [memory.embedding for memory in objects if memory.embedding is not None]
    if len(defaults) == len(objects):
        vectors[_SLOT] = np.stack(defaults)
    spreads = [memory.covariance for memory in objects if memory.covariance is not None]
    first = objects[0]
    return Sights(
        time_ns=first.time_ns,
        track_id=[int(tracks_of(memory)[0][1]) for memory in objects],
        boxes=np.array(boxes, np.float64).reshape(-1, 7),
        labels=[memory.label for memory in objects],
        scores=[memory.confidence for memory in objects],
        covariance=np.stack(spreads) if len(spreads) == len(objects) else None,
        embeddings=vectors,
        evidence=first.evidence,
        payload={key: first.payload[key] for key in ("frame", "seen_from") if key in first.payload},
    )
