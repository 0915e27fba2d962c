"""A folder as a source: each new scan is read once it is complete."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from perception.errors import DataError
from perception.io import SUPPORTED_SUFFIXES, load_point_cloud
from perception.io.columns import Columns
from perception.io.times import time_in_name
from perception.io.transform import ScanTransform
from perception.live.arrivals import Arrival

#: Polling interval, and time for which a file must stay unchanged, in seconds.
POLL_S, SETTLE_S = 0.02, 0.1
#: Suffixes of incomplete files.
_PARTS = (".tmp", ".part", ".partial", ".crdownload", ".swp")
_Look = tuple[int, int, int]


class GrowingFolder:
    """New scans of a folder, sorted by name; existing ones are skipped by default.

    A renamed file is complete and read at once. Other files are read after size and modification time stay
    unchanged for a moment. The time of a scan is that in its file or name, else the time of reading.

    Args:
        folder: folder to watch.
        columns, transform: as for ``load_point_cloud``.
        settle_s: seconds without change after which a file is complete.
        existing: True also reads existing scans.

    Raises:
        DataError: the folder does not exist.
        OSError: listing the folder failed.
    """

    lasting = True

    def __init__(
        self,
        folder: Path,
        *,
        columns: Columns | None = None,
        transform: ScanTransform | None = None,
        settle_s: float = SETTLE_S,
        existing: bool = False,
    ) -> None:
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder. Create it, or name the folder of new scans.")
        self.name = str(folder)
        self._folder, self._columns, self._transform = folder, columns, transform
        self._settle_s = settle_s
        # Listed now, because scans written after construction count as new.
        self._taken = set[str]() if existing else set(_listed(folder, ())[0])
        self._position = 0

    def held(self) -> int:
        """Return the number of scans in the folder."""
        return len(_listed(self._folder, ())[0])

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """Yield new scans, or an error for each unreadable one; raise ``OSError`` if listing fails."""
        looked: dict[str, _Look] = {}
        others: set[int] = set()
        while not stop.is_set():
            began_s = time.monotonic()
            scans, inodes = _listed(self._folder, self._taken)
            self._taken &= scans.keys()
            fresh = {name: look for name, look in sorted(scans.items()) if look is not None}
            took_s, now_s = time.monotonic() - began_s, time.time()
            for name, look in fresh.items():
                inode, size, changed_ns = look
                quiet = now_s - changed_ns / 1e9 >= self._settle_s and looked.get(name) == look
                if size and (quiet or inode in others):
                    self._taken.add(name)
                    yield self._arrival(name)
            looked = {name: look for name, look in fresh.items() if name not in self._taken}
            others = inodes
            # Limit the load of listing a large folder.
            stop.wait(max(POLL_S, 4 * took_s))

    def _arrival(self, name: str) -> Arrival | DataError:
        arrived_s, seen_ns = time.monotonic(), time.time_ns()
        try:
            cloud = load_point_cloud(self._folder / name, columns=self._columns, transform=self._transform)
        except DataError as error:
            return error
        except OSError as error:
            return DataError(
                f"{self._folder / name}: reading failed ({error.strerror or error}). Check the file."
            )
        stem = Path(name).stem
        if cloud.timestamp_ns is None:
            named_ns = time_in_name(stem)
            cloud = replace(cloud, timestamp_ns=seen_ns if named_ns is None else named_ns)
        self._position += 1
        return Arrival(stem, self._position - 1, cloud, arrived_s)


def _listed(folder: Path, taken: Collection[str]) -> tuple[dict[str, _Look | None], set[int]]:
    """Return scans by name, new ones with inode, size and modification time; and inodes of other files."""
    scans: dict[str, _Look | None] = {}
    others: set[int] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(".") or name.lower().endswith(_PARTS):
                others.add(entry.inode())
            elif os.path.splitext(name)[1].lower() in SUPPORTED_SUFFIXES:
                if name in taken:
                    scans[name] = None
                    continue
                try:
                    known = entry.stat()
                except FileNotFoundError:
                    continue  # Deleted or renamed since it was listed.
                scans[name] = (known.st_ino, known.st_size, known.st_mtime_ns)
            else:
                others.add(entry.inode())
    return scans, others
