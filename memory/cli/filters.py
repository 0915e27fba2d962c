"""Options that say which memories are meant."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from memory.exchange.times import parse_time
from memory.persistence.database import Database
from memory.query import Filter, Query
from memory.types import KINDS, STATES
from memory.wording import fold, nearest, stem


def add_filter_options(parser: argparse.ArgumentParser) -> None:
    """``--text --near --radius --polygon --between --label --kind --state --map --min-confidence``."""
    parser.add_argument(
        "--text", help="words that label and caption have; of a query also a sentence that they should fit"
    )
    parser.add_argument(
        "--near", nargs="+", type=float, metavar="M", help="x y or x y z in metres of the map"
    )
    parser.add_argument("--radius", type=float, metavar="M", help="metres around --near")
    parser.add_argument("--polygon", metavar="'X,Y X,Y X,Y'", help="corners of an area in metres")
    parser.add_argument(
        "--between",
        nargs=2,
        metavar=("FROM", "TO"),
        help="ISO 8601 (UTC without a zone), nanoseconds or now; a day as the end includes all of it",
    )
    parser.add_argument("--label", action="append", help="class or name; give it again for more of them")
    parser.add_argument("--kind", action="append", choices=KINDS, help="give it again for more of them")
    parser.add_argument("--state", action="append", choices=STATES, help="is it there still; as --kind")
    parser.add_argument("--map", help="only this map")
    parser.add_argument("--min-confidence", type=float, default=0.0, metavar="C", help="least confidence")


def filter_values(options: argparse.Namespace) -> dict[str, Any]:
    """What :class:`memory.query.Query` and, but for the place, :class:`Filter` take.

    Raises:
        ValueError: an option is not right.
    """
    return {
        "text": options.text,
        "between_ns": between(options.between),
        "labels": options.label,
        "kinds": options.kind,
        "states": options.state,
        "map_id": options.map,
        "min_confidence": options.min_confidence,
        "polygon": None if options.polygon is None else [_corner(word) for word in options.polygon.split()],
    }


def filter_from(options: argparse.Namespace) -> Filter:
    """The filter of the options.

    Raises:
        ValueError: an option is not right.
    """
    if (options.near is None) != (options.radius is None):
        raise ValueError("--near and --radius belong together here")
    return Query(**filter_values(options), near=options.near, radius_m=options.radius).filter


def check_labels(database: Database, labels: Sequence[str] | None) -> None:
    """Refuse labels that no memory has, for commands that take labels to the letter.

    Raises:
        ValueError: the message names the nearest label.
    """
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
        advice = f"the labels are {', '.join(sorted(counts)[:10])}"
        if near is not None:
            advice = f"did you mean {roots[near]!r}?"
        raise ValueError(f"no memory has the label {label!r}; {advice}")


def between(words: Sequence[str] | None) -> tuple[int, int] | None:
    """First and last nanosecond."""
    if words is None:
        return None
    first, last = parse_time(words[0]), parse_time(words[1], end=True)
    if first > last:
        raise ValueError(f"--between must rise: {words[0]} is after {words[1]}")
    return first, last


def _corner(word: str) -> tuple[float, float]:
    try:
        x, y = (float(part) for part in word.split(","))
    except ValueError as error:
        raise ValueError(f"--polygon: {word!r} is no corner: expected X,Y such as 1.5,-2") from error
    return x, y
