"""Memories of a live run: frames are stored as they arrive, in bounded memory.

docs/live.md describes the contract of the entry point group ``sparsight.memories``. A function takes a store
and the names of a recording and a map. It returns an object with ``see(record, part)`` and ``close()``, which
both return the number of memories. ``perception`` finds it there without importing ``memory``.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory.exchange.detections import DetectionOptions
from memory.exchange.history import read_history
from memory.exchange.importing import WAIT_S
from memory.exchange.jsonl import StreamLines
from memory.exchange.sources import DetectionLines, Entry
from memory.exchange.track_lines import sights_of
from memory.merging.tracks import tracks_of
from memory.store import MemoryStore
from memory.tracks import TrackMemories
from memory.types import Memory

#: Length of box embeddings in a new store.
_DIM = 128
#: Field that grows with every frame; only ``recall import`` uses it, to mark objects as gone.
_LEFT_OUT = "free"


class LiveMemories:
    """Observer of the tracks and places of live frames; observations reach the disk within about a second.

    Args:
        store: open for writing; ``close`` closes it.
        recording: name of the run, which qualifies track numbers.
        map_id: map of frames whose pose names no map.
    """

    def __init__(self, store: MemoryStore, recording: str, *, map_id: str = "default") -> None:
        self._store, self._recording, self._map_id = store, recording, map_id
        options = DetectionOptions(map_id=map_id, recording=recording)
        self._lines = DetectionLines(Path(recording), options, StreamLines(io.BytesIO(), recording))
        self._lines.expected = read_history(store, self._lines.sort).spaces
        self._dims = store.encoders()
        self._tracks = TrackMemories(recording, map_id=map_id, provenance=options.provenance)
        self._part = 0
        self._pending: list[Memory] = []
        self._number = self._first = 0
        self._digest = hashlib.sha256()
        self._stored_s = time.monotonic()

    def see(self, record: Mapping[str, Any], part: int) -> int:
        """Add a frame and return the number of memories in the store.

        Args:
            part: part of the run; track numbers restart in each part.

        Raises:
            DataError: the record is invalid.
        """
        if part != self._part:
            self._pending += self._tracks.end()
            name = f"{self._recording}, part {part + 1}"
            self._tracks = TrackMemories(name, map_id=self._map_id, provenance=self._lines.options.provenance)
            self._part = part
        plain = {name: value for name, value in record.items() if name != _LEFT_OUT}
        raw = json.dumps(plain).encode()
        self._number += 1
        found = self._lines.parse(Entry(self._number, raw, self._number - 1), self._dims)
        self._digest.update(raw + b"\n")
        objects = [memory for memory in found if tracks_of(memory)]
        others = [memory for memory in found if not tracks_of(memory)]
        self._pending += (self._tracks.see(sights_of(objects)) if objects else []) + others
        if self._pending and time.monotonic() - self._stored_s >= WAIT_S:
            self._observe()
        return len(self._store)

    def close(self) -> int:
        """Store the unfinished tracks, close the store, and return the number of memories."""
        try:
            self._pending += self._tracks.end()
            if self._pending:
                self._observe()
            return len(self._store)
        finally:
            self._store.close()

    def _observe(self) -> None:
        detail: dict[str, Any] = {
            "reason": f"seen live, frames {self._first + 1} to {self._number}; only what matters is kept",
            "file": self._recording,
            "sort": f"live {self._lines.sort}",
            "first": self._first + 1,
            "last": self._number,
            "sha256": self._digest.hexdigest(),
            **({"spaces": dict(self._lines.spaces)} if self._lines.spaces else {}),
        }
        self._store.observe_logged(self._pending, detail=detail)
        self._pending, self._first, self._digest = [], self._number, hashlib.sha256()
        self._stored_s = time.monotonic()


def open_live(store: str, recording: str, map_id: str) -> LiveMemories:
    """Open the store of ``perceive live --memory``, or create it.

    Raises:
        MemoryStoreError: the store cannot be opened for writing.
    """
    return LiveMemories(MemoryStore.open(store, dim=_DIM), recording, map_id=map_id)
