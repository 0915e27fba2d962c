"""Each observer remembers on its own; then both share one memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from memory import MemoryStore
from memory.errors import AlignmentError
from memory.exchange import import_source, open_source
from memory.exchange.detections import DetectionOptions
from memory.merging.align_options import AlignOptions
from memory.merging.motion import Motion
from memory.merging.robots import seen_by
from memory.merging.tracks import things_of
from memory.observe.views import Views
from memory.observe.visibility import Visibility, visibility_of
from memory.query import Filter
from memory.sync import Inbox, Outbox, sync
from memory.types import Memory
from observers.scenes import Observer

#: The roadside unit is almost where it says: larger shifts are refused.
ALIGN = AlignOptions(most_shift_m=4.0)
_DIM = 2


class SharedMemory(NamedTuple):
    """A memory of several observers.

    Attributes:
        alone: memories of each observer in its own map, by name.
        before: number of shared memories before they were merged.
        memories: merged memories of objects and movements, in the map of the first observer.
        motion: motion of the second observer's map and clock into the first one's; ``None`` if it was
            refused.
        refused: the reason.
        clock_known: True if moving objects showed the difference of the clocks.
    """

    alone: dict[str, list[Memory]]
    before: int
    memories: list[Memory]
    motion: Motion | None
    refused: str = ""
    clock_known: bool = False

    @property
    def objects(self) -> int:
        """Number of objects, whose stays and movements count once."""
        return len(set(things_of(self.memories)))


def write_records(observer: Observer, folder: Path) -> Path:
    """Write ``detections.jsonl`` of an observer into a folder named after it."""
    path = folder / observer.name / "detections.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in observer.records))
    return path


def share(
    observers: tuple[Observer, ...],
    folder: Path,
    *,
    align: bool = True,
    trust_clocks: bool = False,
    tracks: bool = True,
    send_twice: bool = False,
    last_first: bool = False,
) -> SharedMemory:
    """Import what each observer saw into its own store, synchronize both into one, align and merge.

    Args:
        observers: the first one's map is the shared one.
        folder: of the new stores.
        align: False trusts the poses.
        trust_clocks: True corrects the poses only.
        tracks: False makes one memory per box before merging.
        send_twice: import each file twice and synchronize twice.
        last_first: synchronize the last observer first, as if the messages of the others were late.
    """
    alone: dict[str, list[Memory]] = {}
    stores = {observer.name: folder / f"{observer.name}-store" for observer in observers}
    for observer in observers:
        path, options = write_records(observer, folder), DetectionOptions(tracks=tracks)
        with MemoryStore.open(stores[observer.name], dim=_DIM) as store:
            for _ in range(1 + send_twice):
                import_source(store.database, open_source(path, detections=options))
            store.consolidate()
            alone[observer.name] = _objects(store)
    with MemoryStore.open(folder / "shared", dim=_DIM) as shared:
        for name in [*stores][:: -1 if last_first else 1] * (1 + send_twice):
            with MemoryStore.open(stores[name], readonly=True) as store:
                sync(Outbox(store.database, name), Inbox(shared.database))
        motion, refused, clock_known = None, "", False
        if align:
            try:
                gates = replace(ALIGN, most_clock_s=0.0) if trust_clocks else ALIGN
                done = shared.align(observers[1].name, options=gates)
                motion = done.frame
                clock_known = done.estimate is not None and done.estimate.clock_sigma_s is not None
            except AlignmentError as error:
                refused = str(error)
        before = len(_objects(shared))
        shared.consolidate()
        return SharedMemory(alone, before, _objects(shared), motion, refused, clock_known)


def witnesses(memory: Memory, observers: tuple[Observer, ...], moved: Motion) -> dict[str, Visibility | str]:
    """Return for each observer that it saw an object, or whether it should have.

    Args:
        memory: a shared memory.
        observers: the observers.
        moved: motion of the second observer's map into the shared one.
    """
    saw = seen_by(memory)
    motions = dict(zip((observer.name for observer in observers), (Motion(), moved), strict=True))
    return {
        observer.name: "saw it"
        if observer.name in saw
        else visibility_of(memory, _moved(observer.views, motions[observer.name]))
        for observer in observers
    }


def _moved(views: Views, motion: Motion) -> Views:
    """Return views in another map."""
    return Views(
        motion.points(views.position),
        views.yaw + motion.yaw_rad,
        views.time_ns + motion.clock_ns,
        range_m=views.range_m,
        field_of_view_rad=views.field_of_view_rad,
        free_m=views.free_m,
    )


def _objects(store: MemoryStore) -> list[Memory]:
    return store.find(Filter(kinds=("object", "event")), newest_first=False)
