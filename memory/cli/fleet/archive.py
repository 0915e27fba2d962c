"""``recall archive``: move old months of a store on a server into files."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.console import UsageError, add_command, counted, print_json, progress, say, split_words
from memory.exchange.times import parse_time
from memory.persistence.opening import open_database


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "archive", run, words="FOLDER")
    parser.add_argument(
        "--before",
        required=True,
        help="archive months that ended before this time: ISO 8601 (default zone: UTC) or nanoseconds",
    )
    parser.add_argument("--parquet", action="store_true", help="write Parquet instead of JSONL")


def run(options: argparse.Namespace) -> int:
    """Write the files, then drop the months from the store."""
    place, words = split_words(options, least=1, most=1)
    before = parse_time(options.before)
    with open_database(place, create=False) as database, progress("archiving") as report:
        if not database.shared:
            raise UsageError(
                "an archive needs a store on a server. For a folder, use recall export --between"
                " and recall forget"
            )
        from memory.archive import archive
        from memory.persistence.postgres.upkeep import Upkeep

        assert isinstance(database, Upkeep)
        suffix = ".parquet" if options.parquet else ".jsonl"
        found = archive(database, words[0], before_ns=before, suffix=suffix, progress=report)
    if options.json:
        print_json([{**each._asdict(), "file": str(each.file)} for each in found])
        return 0
    for each in found:
        say(f"{each.month}: {counted(each.memories)} in {each.file}")
    if not found:
        say(f"no month ended before {options.before}; recall consolidate splits the store into months")
    return 0
