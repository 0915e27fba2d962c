"""Filter options, shared by ``query``, ``ask`` and ``export``."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from memory.cli.console import UsageError
from memory.exchange.times import parse_time
from memory.persistence.database import Database
from memory.query import Filter, Query
from memory.types import KINDS, STATES
from memory.wording import fold, nearest, stem
from memory.wording.words import truncated


def add_filter_options(parser: argparse.ArgumentParser) -> None:
    """``--text --near --radius --polygon --area --between --label --kind --state --map --min-confidence``."""
    parser.add_argument("--text", help="words in label or caption. recall query also accepts a sentence")
    parser.add_argument(
        "--near", nargs="+", type=float, metavar="M", help="x y or x y z in the map, in metres"
    )
    parser.add_argument("--radius", type=float, metavar="M", help="radius around --near in metres")
    parser.add_argument("--polygon", metavar="'X,Y X,Y X,Y'", help="corners of an area in the map, in metres")
    parser.add_argument("--area", metavar="NAME", help="only this area, see recall area")
    parser.add_argument(
        "--between",
        nargs=2,
        metavar=("FROM", "TO"),
        help="time range: ISO 8601 (default zone: UTC), nanoseconds or now. A date as TO includes that day",
    )
    parser.add_argument("--label", action="append", help="only this label; repeat for several")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; repeat for several")
    parser.add_argument(
        "--state", action="append", choices=STATES, help="only objects in this state; repeat for several"
    )
    moving = parser.add_mutually_exclusive_group()
    moving.add_argument(
        "--moving", action="store_const", const=True, help="only objects that moved when they were last seen"
    )
    moving.add_argument(
        "--standing", dest="moving", action="store_const", const=False,
        help="only objects that stood when they were last seen",
    )  # fmt: skip
    parser.add_argument("--map", help="only this map")
    parser.add_argument(
        "--min-confidence", type=float, default=0.0, metavar="C", help="minimum confidence, 0 to 1"
    )


def filter_values(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of :class:`memory.query.Query`, without the point."""
    if options.near is not None and len(options.near) not in (2, 3):
        raise UsageError(f"--near needs two or three numbers (x y or x y z), got {len(options.near)}")
    if options.radius is not None and options.near is None:
        raise UsageError("--radius needs a centre. Give --near X Y")
    return {
        "text": options.text,
        "between_ns": between(options.between),
        "labels": options.label,
        "kinds": options.kind,
        "states": options.state,
        "map_id": options.map,
        "min_confidence": options.min_confidence,
        "moving": options.moving,
        "polygon": None if options.polygon is None else [corner(word) for word in options.polygon.split()],
        "area": options.area,
    }


def filter_from(options: argparse.Namespace) -> Filter:
    """Return the filter of the options."""
    if (options.near is None) != (options.radius is None):
        raise ValueError("--near and --radius belong together. Give both or neither")
    return Query(**filter_values(options), near=options.near, radius_m=options.radius).filter


def check_map(database: Database, name: str | None) -> None:
    """Raise ``ValueError`` for a map that no memory is in."""
    maps = database.maps()
    if name is not None and name not in maps:
        known = f"The maps are {', '.join(maps)}" if maps else "The store has no map yet"
        raise ValueError(f"no memory is in the map {name!r}. {known}")


def check_labels(database: Database, labels: Sequence[str] | None) -> None:
    """Raise ``ValueError`` for a label that no memory has, and suggest the nearest one."""
    counts: Counter[str] = Counter()
    after = 0
    while labels and len((columns := database.scan_columns(after)).ids):
        after = int(columns.ids[-1])
        counts.update(columns.labels)
    roots = {stem(fold(name)): name for name, _ in reversed(counts.most_common())}
    for label in labels or ():
        if label in counts:
            continue
        root = stem(fold(label))
        near = root if root in roots else nearest(root, dict.fromkeys(roots, 1))
        known = [truncated(each) for each in sorted(counts) if each]
        advice = f"The labels are {', '.join(known[:10])}" if known else "No memory has a label"
        if near is not None:
            advice = f"Did you mean {roots[near]!r}?"
        raise ValueError(f"no memory has the label {label!r}. {advice}")


def between(words: Sequence[str] | None) -> tuple[int, int] | None:
    """Return the first and last nanosecond of ``--between``."""
    if words is None:
        return None
    first, last = parse_time(words[0]), parse_time(words[1], end=True)
    if first > last:
        raise ValueError(f"--between {words[0]} {words[1]}: the first time is after the last. Swap them")
    return first, last


def corner(word: str) -> tuple[float, float]:
    """Return the x and y of a corner such as ``1.5,-2``."""
    try:
        x, y = (float(part) for part in word.split(","))
    except ValueError as error:
        raise ValueError(
            f"--polygon: {word!r} is not a corner. Write each corner as X,Y, such as 1.5,-2"
        ) from error
    return x, y
