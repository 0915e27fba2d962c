"""Memories of a run that goes on: records of frames as they come, in bounded room.

The contract of the group ``sparsight.memories`` of entry points (docs/live.md): a function takes a store, the
name of a recording and that of a map, and gives something with ``see(record, part)``, which returns how many
memories there are, and ``close()``, which does so too. The perception
imports no memory; it asks for what is installed.
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
from memory.merging.tracked import tracks_of
from memory.store import MemoryStore
from memory.tracks import TrackMemories
from memory.types import Memory

#: Of vectors of boxes, where the store is made.
_DIM = 128
#: What grows with every frame: how far it saw free, which ``recall import`` marks things as gone by.
_LEFT_OUT = "free"


class LiveMemories:
    """Observes the tracks and places of frames in a store; what is seen is on the disk after a second.

    Args:
        store: open for writing; closed at the end.
        recording: name of the run, for numbers of tracks.
        map_id: of frames whose pose names none.
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
        """Take in a frame.

        Args:
            record: a line of ``detections.jsonl``.
            part: of the run; where it changes, numbers of tracks begin anew.

        Returns:
            Memories in the store.

        Raises:
            DataError: the record cannot be used.
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
        """Store what goes on, and close the store; returns how many memories there are."""
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
    """What ``perceive live --memory`` finds; a store that is not there is made.

    Raises:
        MemoryStoreError: the store cannot be opened for writing.
    """
    return LiveMemories(MemoryStore.open(store, dim=_DIM), recording, map_id=map_id)
