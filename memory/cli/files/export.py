"""``recall export``: write memories as JSONL, Parquet or GeoJSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from memory.cli.console import UsageError, add_command, counted, print_json, progress, say, split_words
from memory.cli.filters import add_filter_options, check_labels, filter_from
from memory.exchange.exporting import EXPORT_FORMATS, export_format, export_memories
from memory.exchange.geojson import Origin
from memory.persistence.opening import open_checked


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "export", run, words="FILE")
    add_filter_options(parser)
    parser.add_argument("--format", choices=EXPORT_FORMATS, help="file format (default: by the file name)")
    parser.add_argument("--no-vectors", action="store_true", help="omit the embeddings")
    parser.add_argument(
        "--origin",
        nargs="+",
        type=float,
        metavar="DEG",
        help="for GeoJSON in degrees: latitude and longitude (WGS 84) of the map origin, and optionally the"
        " heading of its x axis, counter-clockwise from east",
    )


def run(options: argparse.Namespace) -> int:
    """Write the file."""
    folder, words = split_words(options, least=1, most=1)
    streamed = words[0] == "-"
    if streamed and options.json:
        raise UsageError("--json and FILE '-' both write to standard output. Drop --json or name a file")
    format = options.format or ("jsonl" if streamed else export_format(Path(words[0])))
    if options.origin is not None and (format != "geojson" or len(options.origin) not in (2, 3)):
        raise UsageError(
            "--origin needs --format geojson and two or three numbers: LATITUDE LONGITUDE [HEADING]"
        )
    with open_checked(folder, readonly=True) as database, progress("exporting") as report:
        check_labels(database, options.label)
        count = export_memories(
            database,
            sys.stdout if streamed else Path(words[0]),
            format=format,
            filter=filter_from(options),
            vectors=not options.no_vectors,
            origin=None if options.origin is None else Origin(*options.origin),
            progress=report,
        )
    if options.json:
        print_json({"file": words[0], "format": format, "memories": count})
    elif not streamed:
        say(f"{counted(count)} in {words[0]}")
    return 0
