"""``recall check``: whether a store is sound."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from memory.cli.console import UsageError, add_command, print_json, progress, remark, say, split_words
from memory.errors import CorruptStoreError, NotAStoreError, StoreLockedError, StoreReadOnlyError
from memory.persistence.files import FILE_NAME
from memory.persistence.integrity import CheckReport
from memory.persistence.opening import open_database
from memory.persistence.sqlite import Database


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "check", run)
    parser.add_argument(
        "--repair", action="store_true", help="rebuild indexes; bring back every row that is as it was stored"
    )


def run(options: argparse.Namespace) -> int:
    """Check and report."""
    folder, _ = split_words(options)
    if isinstance(folder, Path) and not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    with progress("checking"):
        try:
            report = _check(folder, repair=options.repair)
        except (CorruptStoreError, NotAStoreError) as error:
            if not isinstance(folder, Path):
                raise
            if isinstance(error, NotAStoreError) and not (folder / FILE_NAME).is_file():
                raise
            report = Database.repair(folder) if options.repair else CheckReport(0, (str(error),))
    if options.json:
        print_json(report.to_json())
    else:
        say(str(report))
    return 0 if report.ok else 1


def _check(folder: Path | str, *, repair: bool) -> CheckReport:
    """As the writer where that is possible: only it can compare the text index word by word."""
    try:
        with open_database(folder, create=False) as database:
            for said in database.remarks:
                remark(said)
            return database.check(repair)
    except (StoreLockedError, StoreReadOnlyError) as error:
        if repair:
            raise
        remark(f"{error}; checking as a reader, without the words of the text index")
    with open_database(folder, readonly=True) as database:
        return database.check()
