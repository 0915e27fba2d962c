"""``recall backup``: copy a store while it is in use."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from memory.cli.console import add_command, counted, print_json, progress, say, split_words
from memory.config import FILE_NAME as CONFIG_NAME
from memory.persistence.sqlite import Database


def add_parser(commands: Any) -> None:
    """Declare the options."""
    add_command(
        commands, "backup", "Copy a store, as it is now, into a folder without one.", run, words="FOLDER"
    )


def run(options: argparse.Namespace) -> int:
    """Copy the database, checked afterwards, and the settings."""
    folder, words = split_words(options, least=1, most=1)
    target = Path(words[0])
    with Database.open(folder, readonly=True) as database, progress("copying") as report:
        database.backup(target, report)
        settings = database.folder / CONFIG_NAME
        if settings.is_file():
            shutil.copyfile(settings, target / CONFIG_NAME)
    with Database.open(target, readonly=True) as copy, progress("checking the copy"):
        report_of_copy = copy.check()
        count = copy.count()
    if options.json:
        print_json({"backup": str(target), "memories": count, "check": report_of_copy.to_json()})
    else:
        say(f"{counted(count)} in {target}")
        if not report_of_copy.ok:
            say(str(report_of_copy))
    return 0 if report_of_copy.ok else 1
