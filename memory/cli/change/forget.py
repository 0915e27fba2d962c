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
    undoing,
)
from memory.cli.filters import between
from memory.errors import EraseError
from memory.store import MemoryStore
from memory.upkeep.withdrawal import withdraw


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "forget", run, words="ID...")
    parser.add_argument(
        "--robot", metavar="NAME", help="what a robot said instead of IDs, also where others saw it too"
    )
    parser.add_argument(
        "--between",
        nargs=2,
        metavar=("FROM", "TO"),
        help="with --robot: only what it saw then; ISO 8601 (UTC without a zone) or nanoseconds",
    )
    parser.add_argument("--reason", default="asked for", help="for recall explain; it stays in the log")
    parser.add_argument("--secure", action="store_true", help="erase them from the files; no undo")
    parser.add_argument("--yes", action="store_true", help="do not ask before --secure")


def run(options: argparse.Namespace) -> int:
    """Forget them, after asking where it is for good."""
    if options.robot is not None:
        return _withdraw(options)
    if options.between is not None:
        raise UsageError("--between needs --robot")
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
        say(f"forgot {counted(len(ids))}; take it back with: {undoing(folder, operation)}")
    return 0


def _withdraw(options: argparse.Namespace) -> int:
    """What one robot said, and nobody else."""
    if options.secure:
        raise UsageError("--secure takes IDs: what a robot said is taken out of merges, which needs the log")
    folder, _ = split_words(options)
    with MemoryStore.open(folder, create=False) as store:
        done = withdraw(
            store.database, options.robot, between_ns=between(options.between), reason=options.reason
        )
    if options.json:
        print_json(done._asdict())
        return 0
    if not any((done.forgotten, done.partly, done.merged_for_good)):
        say(f"nothing was seen by {options.robot}" + (" then" if options.between else ""))
        return 0
    say(f"forgot {counted(len(done.forgotten))} of {options.robot}")
    if done.taken_apart:
        say(f"took {counted(len(done.taken_apart))} apart: recall consolidate merges what others saw of them")
    if done.partly:
        remark(f"{counted(len(done.partly))} that it saw at other times too stayed")
    if done.merged_for_good:
        remark(f"{counted(len(done.merged_for_good))} can no longer be taken apart and stayed")
    return 0


def _confirmed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("--secure cannot be undone: confirm with --yes")
    print(f"Erase {counted(count)} for good? This cannot be undone. Type yes: ", end="", file=sys.stderr)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() == "yes"
