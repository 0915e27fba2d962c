"""A folder that grows: each new scan is taken once it is whole."""

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

#: Seconds between two looks, and for which a file must have stayed as it is.
POLL_S, SETTLE_S = 0.02, 0.1
#: Endings that programs give to what they still write.
_PARTS = (".tmp", ".part", ".partial", ".crdownload", ".swp")
_Look = tuple[int, int, int]


class GrowingFolder:
    """New scans of a folder, in the order of their names; those that are there at the beginning are left.

    A file that got its name when it was whole (written under another name in the same folder, and renamed) is
    taken at once; others when size and time of change have stayed for a moment. Its time is what its name
    says, else when it was seen. What is held are the names in the folder and no more.

    Args:
        folder: that scans are written to.
        columns, transform: as for ``load_point_cloud``.
        settle_s: for which a file that was not renamed must not have changed.
        existing: take what is there at the beginning too.

    Raises:
        DataError: there is no such folder.
        OSError: the folder cannot be listed.
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
            raise DataError(f"{folder}: no such folder; make it before, or name the one that is written to")
        self.name = str(folder)
        self._folder, self._columns, self._transform = folder, columns, transform
        self._settle_s = settle_s
        # Listed here, not at the first look: a caller that has a source may write scans at once.
        self._taken = set[str]() if existing else set(_listed(folder, ())[0])
        self._position = 0

    def held(self) -> int:
        """How many scans are there now."""
        return len(_listed(self._folder, ())[0])

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        """New scans; one that cannot be read is an error in its place.

        Raises:
            OSError: the folder cannot be listed any more.
        """
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
            # A folder of very many files is not all that the core does.
            stop.wait(max(POLL_S, 4 * took_s))

    def _arrival(self, name: str) -> Arrival | DataError:
        arrived_s, seen_ns = time.monotonic(), time.time_ns()
        try:
            cloud = load_point_cloud(self._folder / name, columns=self._columns, transform=self._transform)
        except DataError as error:
            return error
        except OSError as error:
            return DataError(f"{self._folder / name}: cannot be read ({error.strerror or error})")
        stem = Path(name).stem
        if cloud.timestamp_ns is None:
            told_ns = time_in_name(stem)
            cloud = replace(cloud, timestamp_ns=seen_ns if told_ns is None else told_ns)
        self._position += 1
        return Arrival(stem, self._position - 1, cloud, arrived_s)


def _listed(folder: Path, taken: Collection[str]) -> tuple[dict[str, _Look | None], set[int]]:
    """Scans by name, those not taken with inode, size and time of change; inodes of other files."""
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
                    continue  # Taken away, or renamed, since it was listed.
                scans[name] = (known.st_ino, known.st_size, known.st_mtime_ns)
            else:
                others.add(entry.inode())
    return scans, others
