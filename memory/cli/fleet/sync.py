"""``recall sync``: send new memories to another store, and pull those of other robots."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memory.cli.console import (
    UsageError,
    add_command,
    counted,
    holds_store,
    place,
    print_json,
    progress,
    say,
    shown,
    split_words,
)
from memory.cli.service.serve import TOKEN_VARIABLE
from memory.errors import ForkedStoreError, StoreError, SyncError
from memory.persistence.database import Database
from memory.persistence.log.reception import LATE_NS
from memory.persistence.opening import open_checked
from memory.sync import Inbox, Outbox, Receiver, SyncReport, pull, sync
from memory.sync.areas import words_of
from memory.sync.outbox import PORTION
from memory.sync.service import ServiceClient, is_service
from memory.wording.words import duration
from sparse_core.common.console import LOG

#: First and longest pause before an unreachable target is tried again, in seconds; doubled each time.
_PAUSES_S = (1.0, 60.0)


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "sync", run, words="TARGET")
    parser.add_argument(
        "--robot", metavar="NAME", help="robot name in the other store (default: name of the store folder)"
    )
    parser.add_argument(
        "--pull",
        action="store_true",
        help="then fetch what other robots saw in the maps of this store",
    )
    parser.add_argument(
        "--follow", type=float, nargs="?", const=10.0, metavar="S",
        help="repeat every S seconds (default: 10), and reconnect after a network failure",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=int, default=PORTION, metavar="N", help="memories per batch (default: %(default)s)"
    )
    parser.add_argument(
        "--limit-rate",
        type=float,
        metavar="KB",
        help="maximum rate in kilobytes per second, for a recall serve target",
    )
    parser.add_argument("--token", help=f"access token of the service (safer: ${TOKEN_VARIABLE})")
    parser.add_argument(
        "--forked",
        action="store_true",
        help="continue after this store was restored from a backup; newer memories stay in the other store",
    )


def run(options: argparse.Namespace) -> int:
    """Send once, or repeatedly with ``--follow``."""
    folder, words = split_words(options, least=1, most=1)
    target = words[0]
    _check(options, folder, target)
    robot = options.robot or (Path(folder).absolute().name if isinstance(folder, Path) else "")
    if not robot:
        raise UsageError("a store on a server has no folder name. Give --robot NAME")
    pause = _PAUSES_S[0]
    while True:
        try:
            _once(folder, target, robot, options)
            pause = _PAUSES_S[0]
        except ForkedStoreError:
            raise
        except (SyncError, StoreError) as error:
            if options.follow is None:
                raise
            LOG.warning("%s; trying again in %.0f s", error, pause)
            # A random pause keeps a fleet from reconnecting at the same moment.
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _PAUSES_S[1])
            continue
        if options.follow is None:
            return 0
        time.sleep(options.follow)


def _check(options: argparse.Namespace, folder: Path | str, target: str) -> None:
    if not holds_store(folder):
        raise UsageError(f"no store in {shown(folder)}. Check the folder; recall init creates a store")
    if not is_service(target) and not holds_store(target):
        raise UsageError(f"no store at {shown(target)}. recall init creates one")
    if options.limit_rate is not None and not is_service(target):
        raise UsageError("--limit-rate needs a recall serve target, such as http://host:port")
    for name in ("follow", "limit_rate"):
        if getattr(options, name) is not None and not 0.0 < getattr(options, name) < float("inf"):
            raise UsageError(f"--{name.replace('_', '-')} must be above 0, got {getattr(options, name)}")
    if options.batch < 1:
        raise UsageError(f"--batch must be at least 1, got {options.batch}")


def _once(folder: Path | str, target: str, robot: str, options: argparse.Namespace) -> None:
    with _receiver(target, options) as (receiver, there):
        with open_checked(folder, readonly=True) as database, progress(f"sending {robot}") as report:
            outbox = Outbox(database, robot, portion=options.batch, forked=options.forked)
            sent = sync(outbox, receiver, progress=report)
        got = None
        if options.pull:
            with open_checked(folder, create=False) as database, progress("pulling") as report:
                got = pull(there, database, name=_name(target), progress=report)
    if options.json:
        print_json({"sent": sent.to_json(), "pulled": None if got is None else got.to_json()})
        return
    if not sent.empty or options.follow is None:
        say(f"sent as {robot}: {_sentence(sent)}")
    if got is not None and (not got.empty or options.follow is None):
        say(f"pulled: {_sentence(got)}")
    for words in dict.fromkeys([*words_of(sent.areas), *(words_of(got.areas) if got is not None else ())]):
        LOG.warning(words)
    if abs(sent.ahead_ns) > LATE_NS:
        apart = duration(abs(sent.ahead_ns) / 1e9)
        LOG.warning(
            f"the clock of this computer is {apart} {'ahead of' if sent.ahead_ns > 0 else 'behind'} the other"
            " side. Synchronize the clocks"
        )
    if sent.future:
        LOG.warning(f"{robot}: {counted(sent.future)} dated in the future. Check its clock")
    if sent.kept:
        changes = counted(sent.kept, "change was", "changes were")
        LOG.warning(
            f"{changes} not applied: the other store forgot, erased or permanently merged these memories"
        )


@contextlib.contextmanager
def _receiver(
    target: str, options: argparse.Namespace
) -> Iterator[tuple[Receiver, Database | ServiceClient]]:
    """Yield the receiver, and the database or client that it writes to."""
    if is_service(target):
        token = options.token if options.token is not None else os.environ.get(TOKEN_VARIABLE) or None
        rate = None if options.limit_rate is None else 1000 * options.limit_rate
        with contextlib.closing(ServiceClient(target, token=token, rate=rate)) as service:
            yield service, service
        return
    with open_checked(place(target), create=False) as database:
        yield Inbox(database, may_undo=not database.guarded), database


def _name(target: str) -> str:
    """Return the name under which this store keeps pulled memories."""
    return (
        "shared"
        if is_service(target) or not isinstance(place(target), Path)
        else Path(target).absolute().name
    )


def _sentence(report: SyncReport) -> str:
    parts = [counted(report.added, "new memory", "new memories")] if report.batches else []
    parts += [
        f"{count:,} {what}"
        for what, count in (("changed", report.changed), ("removed", report.removed))
        if count
    ]
    areas = (("set", report.areas.set), ("removed", report.areas.removed))
    parts += [f"{counted(count, 'area', 'areas')} {what}" for what, count in areas if count]
    return ", ".join(parts) or "nothing new"
