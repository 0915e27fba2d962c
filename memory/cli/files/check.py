"""``recall check``: check a store for damage, and repair it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from memory.cli.console import (
    UsageError,
    add_command,
    print_json,
    progress,
    say,
    split_words,
    warn_about_server,
)
from memory.errors import CorruptStoreError, NotAStoreError, StoreLockedError, StoreReadOnlyError
from memory.persistence.opening import open_database
from memory.persistence.reports import CheckReport
from memory.persistence.sqlite.database import SqliteDatabase
from memory.persistence.sqlite.files import FILE_NAME
from sparse_core.common.console import LOG


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "check", run)
    parser.add_argument(
        "--repair", action="store_true", help="rebuild indexes and recover all undamaged rows"
    )


def run(options: argparse.Namespace) -> int:
    """Check the store and print the report."""
    folder, _ = split_words(options)
    if isinstance(folder, Path) and not folder.is_dir():
        raise UsageError(f"{folder}: folder not found")
    with progress("checking"):
        try:
            report = _check(folder, repair=options.repair)
        except (CorruptStoreError, NotAStoreError) as error:
            if not isinstance(folder, Path):
                raise
            if isinstance(error, NotAStoreError) and not (folder / FILE_NAME).is_file():
                raise
            report = SqliteDatabase.repair(folder) if options.repair else CheckReport(0, (str(error),))
    if options.json:
        print_json(report.to_json())
    else:
        say(str(report))
    return 0 if report.ok else 1


def _check(folder: Path | str, *, repair: bool) -> CheckReport:
    """Check as the writer if possible: only the writer can compare the text index word by word."""
    try:
        with open_database(folder, create=False) as database:
            warn_about_server(folder, database.remarks)
            return database.check(repair)
    except (StoreLockedError, StoreReadOnlyError) as error:
        if repair:
            raise
        LOG.warning("%s; checking as a reader, which leaves out the text index", error)
    with open_database(folder, readonly=True) as database:
        return database.check()
