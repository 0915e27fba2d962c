"""``recall robots``: list the robots of a store."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.console import add_command, output, print_json, split_words
from memory.exchange.times import format_time
from memory.persistence.log.reception import LATE_NS
from memory.persistence.opening import open_checked
from memory.upkeep.roster import Robot, robots_of
from memory.wording.words import duration
from sparse_core.common.table import Table


def add_parser(commands: Any) -> None:
    """Declare the options."""
    add_command(commands, "robots", run)


def run(options: argparse.Namespace) -> int:
    """Print one row per robot."""
    folder, _ = split_words(options)
    with open_checked(folder, readonly=True) as database:
        robots = robots_of(database)
    if options.json:
        print_json({"robots": [robot.to_json() for robot in robots]})
        return 0
    columns = (
        "robot",
        "trust",
        "memories",
        "only this robot",
        "observations",
        "first",
        "last",
        "clock",
        "map alignment",
    )
    title = f"{len(robots)} robot{'' if len(robots) == 1 else 's'}"
    rows = [_cells(robot) for robot in robots]
    output().print(
        Table(columns, rows, title=title, right=["trust", "memories", "only this robot", "observations"])
    )
    return 0


def _cells(robot: Robot) -> list[str]:
    times = ["" if at is None else format_time(at, digits=0) for at in (robot.first_ns, robot.last_ns)]
    counts = [f"{count:,}" for count in (robot.memories, robot.alone, robot.sights)]
    return [robot.name, f"{robot.trust:g}", *counts, *times, _clock(robot), "; ".join(_frames(robot))]


def _clock(robot: Robot) -> str:
    if robot.ahead_ns is None or abs(robot.ahead_ns) <= LATE_NS:
        return ""
    return f"{duration(abs(robot.ahead_ns) / 1e9)} {'ahead' if robot.ahead_ns > 0 else 'behind'}"


def _frames(robot: Robot) -> list[str]:
    return [f"{map_id}: {frame}" for map_id, frame in robot.frames.items()]
