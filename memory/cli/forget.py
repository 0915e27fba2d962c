"""``recall forget``: take memories away, or erase them for good."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from memory.cli.console import (
    UsageError,
    add_command,
    counted,
    integers,
    print_json,
    remark,
    say,
    split_words,
)
from memory.errors import EraseError
from memory.store import MemoryStore


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "forget", run, words="ID...")
    parser.add_argument("--reason", default="asked for", help="for recall explain; it stays in the log")
    parser.add_argument("--secure", action="store_true", help="erase them from the files; no undo")
    parser.add_argument("--yes", action="store_true", help="do not ask before --secure")


def run(options: argparse.Namespace) -> int:
    """Forget them, after asking where it is for good."""
    folder, words = split_words(options, least=1, most=None)
    ids = integers(words, "id")
    with MemoryStore.open(folder, create=False) as store:
        store.get(ids)  # Before anything is asked.
        if options.secure and not options.yes and not _confirmed(len(ids)):
            remark("nothing was erased")
            return 1
        try:
            operation = store.forget(ids, secure=options.secure, reason=options.reason)
        except EraseError as error:
            remark(f"recall forget: {error}", style="red")
            return 1
    if options.json:
        print_json({"forgotten": ids, "operation": operation, "secure": options.secure})
    elif options.secure:
        say(f"erased {counted(len(ids))} for good")
    else:
        say(f"forgot {counted(len(ids))}; take it back with: recall undo {operation}")
    return 0


def _confirmed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("--secure cannot be undone: confirm with --yes")
    print(f"Erase {counted(count)} for good? This cannot be undone. Type yes: ", end="", file=sys.stderr)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() == "yes"
