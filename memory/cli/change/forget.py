"""``recall forget``: forget memories, or erase them for good."""

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
    say,
    split_words,
    undoing,
)
from memory.cli.filters import between
from memory.errors import EraseError
from memory.store import MemoryStore
from memory.upkeep.withdrawal import withdraw
from sparse_core.common.console import LOG


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "forget", run, words="ID...")
    parser.add_argument(
        "--robot", metavar="NAME", help="instead of IDs: forget the observations of this robot"
    )
    parser.add_argument(
        "--between",
        nargs=2,
        metavar=("FROM", "TO"),
        help="with --robot: only its observations in this time range; ISO 8601 (default zone: UTC) or"
        " nanoseconds",
    )
    parser.add_argument(
        "--reason", default="asked for", help="reason, kept in the log and shown by recall explain"
    )
    parser.add_argument(
        "--secure", action="store_true", help="erase them from the files; this cannot be undone"
    )
    parser.add_argument("--yes", action="store_true", help="skip the confirmation of --secure")


def run(options: argparse.Namespace) -> int:
    """Forget the memories; ask for confirmation before erasing."""
    if options.robot is not None:
        return _withdraw(options)
    if options.between is not None:
        raise UsageError("--between needs --robot")
    folder, words = split_words(options, least=1, most=None)
    ids = integers(words, "id")
    with MemoryStore.open(folder, create=False) as store:
        store.get(ids)  # Report unknown ids before asking for confirmation.
        if options.secure and not options.yes and not _confirmed(len(ids)):
            LOG.error("nothing was erased")
            return 1
        try:
            operation = store.forget(ids, secure=options.secure, reason=options.reason)
        except EraseError as error:
            LOG.error("recall forget: %s", error)
            return 1
    if options.json:
        print_json({"forgotten": ids, "operation": operation, "secure": options.secure})
    elif options.secure:
        say(f"erased {counted(len(ids))}")
    else:
        say(f"forgot {counted(len(ids))}; undo with: {undoing(folder, operation)}")
    return 0


def _withdraw(options: argparse.Namespace) -> int:
    """Forget the observations of one robot."""
    if options.secure:
        raise UsageError("--secure does not work with --robot, which needs the log. Give IDs instead")
    folder, _ = split_words(options)
    with MemoryStore.open(folder, create=False) as store:
        done = withdraw(
            store.database, options.robot, between_ns=between(options.between), reason=options.reason
        )
    if options.json:
        print_json(done._asdict())
        return 0
    if not any((done.forgotten, done.partly, done.merged_for_good)):
        say(f"no observations by {options.robot}" + (" in this time range" if options.between else ""))
        return 0
    undo = f"; undo with: {undoing(folder, done.operation)}" if done.operation is not None else ""
    say(f"forgot {counted(len(done.forgotten))} of {options.robot}{undo}")
    if done.taken_apart:
        say(
            f"split {counted(len(done.taken_apart))} into observations; recall consolidate merges those of"
            " other robots again"
        )
    if done.partly:
        say(f"kept {counted(len(done.partly))} that it also saw at other times")
    if done.merged_for_good:
        say(f"kept {counted(len(done.merged_for_good))} that can no longer be split")
    return 0


def _confirmed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("--secure cannot be undone. Add --yes to confirm")
    print(f"Erase {counted(count)} for good? This cannot be undone. Type yes: ", end="", file=sys.stderr)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() == "yes"
