"""Stores of the questions: text files of ``sets``, and the town of ``recall demo``.

A file of ``sets`` whose name ends in ``_store.txt`` lists what a robot remembers, one memory per line:

    # now 2026-03-20 18:00          time at which the questions are asked
    # area NAME | MAP | x0 y0 x1 y1  named rectangle in metres
    key | label | kind | map | x y z | length width height | first seen | last seen | count | state | caption

``-`` stands for an unknown position or size. Times are UTC.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path

from benchmarks.questions.drives import drives_store
from memory import Memory, MemoryStore
from memory.cli import main as recall
from memory.exchange.times import parse_time
from memory.types import Visit

SETS = Path(__file__).parent / "sets"
#: A store with the ids of its keys and the time of the questions.
OpenedStore = AbstractContextManager[tuple[MemoryStore, dict[str, int], int]]
_DAY_NS = 86_400 * 10**9
_MINUTE_NS = 60 * 10**9
_ENDING = "_store"


def all_stores() -> dict[str, Callable[[], OpenedStore]]:
    """Return functions that open the stores, by name."""
    files = {path.stem.removesuffix(_ENDING): path for path in sorted(SETS.glob(f"*{_ENDING}.txt"))}
    return {
        **{name: partial(text_store, path) for name, path in files.items()},
        "town": town_store,
        "drives": drives_store,
    }


def files_of(store_name: str) -> dict[str, Path]:
    """Return the files of questions about a store, by set: fresh_home.txt has the set ``fresh``."""
    whole = SETS / f"{store_name}.txt"
    found = {store_name: whole} if whole.exists() else {}
    ending = f"_{store_name}"
    for path in sorted(SETS.glob(f"*{ending}.txt")):
        found[path.stem.removesuffix(ending).replace("_", "-")] = path
    return found


@contextmanager
def text_store(path: Path) -> Iterator[tuple[MemoryStore, dict[str, int], int]]:
    """Open the store that a text file describes.

    Raises:
        ValueError: the file has no time of the questions.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    now = next((line.removeprefix("now ") for line in comments if line.startswith("now ")), None)
    if now is None:
        raise ValueError(f"{path} has no line '# now 2026-03-20 18:00'. Add the time of the questions")
    rows = [line for line in lines if line.strip() and not line.startswith("#")]
    keys = [row.split("|")[0].strip() for row in rows]
    with tempfile.TemporaryDirectory() as folder, MemoryStore.open(Path(folder) / "store", dim=2) as store:
        ids = store.add([_memory_of(row) for row in rows])
        for line in comments:
            if line.startswith("area "):
                area, map_id, corners = map(str.strip, line.removeprefix("area ").split("|"))
                store.set_area(area, box=[float(corner) for corner in corners.split()], map_id=map_id)
        yield store, {key: id or 0 for key, id in zip(keys, ids, strict=True)}, _time(now)


@contextmanager
def town_store() -> Iterator[tuple[MemoryStore, dict[str, int], int]]:
    """Open the store of ``recall demo``; the time of the questions is that of its newest memory."""
    with tempfile.TemporaryDirectory() as folder:
        with redirect_stdout(io.StringIO()):
            recall(["demo", "--out", folder])
        with MemoryStore.open(Path(folder) / "town") as store:
            yield store, {}, store.newest_ns


def _memory_of(row: str) -> Memory:
    """Return the memory of a line."""
    _, label, kind, map_id, place, size, first, last, seen, state, caption = map(str.strip, row.split("|"))
    first_ns, last_ns, count = _time(first), _time(last), int(seen)
    return Memory(
        time_ns=last_ns, first_seen_ns=first_ns, last_seen_ns=last_ns, count=count,
        visits=_daily_visits(first_ns, last_ns, count),
        map_id=map_id, label=label, kind=kind, state=state, caption=caption,  # type: ignore[arg-type]
        position=None if place == "-" else tuple(map(float, place.split())),  # type: ignore[arg-type]
        payload={} if size == "-" else {"size_m": list(map(float, size.split()))},
    )  # fmt: skip


def _time(text: str) -> int:
    return parse_time(f"{text.strip().replace(' ', 'T')}:00Z")


def _daily_visits(first_ns: int, last_ns: int, count: int) -> tuple[Visit, ...]:
    """Spread observations over a visit per day, the first and the last included.

    An object that was seen on one day only was there all the time between.
    """
    if count == 1:
        return ()
    if first_ns // _DAY_NS == last_ns // _DAY_NS:
        return (Visit(first_ns, last_ns, count),)
    starts = [first_ns]
    while len(starts) < count - 1 and starts[-1] + _DAY_NS < last_ns - _DAY_NS // 2:
        starts.append(starts[-1] + _DAY_NS)
    share, more = divmod(count, len(starts) + 1)
    visits = [Visit(start, start + _MINUTE_NS, share) for start in starts]
    return (*visits, Visit(last_ns, last_ns, share + more))
