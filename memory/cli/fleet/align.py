"""``recall align``: bring the map of one robot together with the store's."""

from __future__ import annotations

import argparse
import math
from typing import Any

from memory.cli.console import add_command, counted, print_json, say, split_words, undoing
from memory.merging.alignment import AlignOptions
from memory.merging.motion import Motion
from memory.store import MemoryStore


def add_parser(commands: Any) -> None:
    """Declare the options."""
    usual = AlignOptions()
    parser = add_command(commands, "align", run)
    parser.add_argument("--robot", metavar="NAME", required=True, help="whose map")
    parser.add_argument("--map", metavar="MAP", help="of which map (default: the only one that it saw)")
    parser.add_argument(
        "--tolerance", type=float, default=usual.tolerance_m, metavar="M",
        help="most metres between a thing and the same in the other map, once moved (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--least", type=int, default=usual.least_things, metavar="N",
        help="things that must come together (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--reset", action="store_true", help="back to where the robot says that things are")


def run(options: argparse.Namespace) -> int:
    """Estimate and move."""
    folder, _ = split_words(options)
    gates = AlignOptions(tolerance_m=options.tolerance, least_things=options.least)
    frame = Motion() if options.reset else None
    with MemoryStore.open(folder, create=False) as store:
        done = store.align(options.robot, map_id=options.map, options=gates, frame=frame)
    found = done.estimate
    if options.json:
        told = None if found is None else {**found._asdict(), "motion": found.motion._asdict()}
        shift = None if done.shift is None else done.shift._asdict()
        print_json({**done._asdict(), "frame": done.frame._asdict(), "estimate": told, "shift": shift})
        return 0
    if found is not None:
        say(
            f"{found.things} of the {found.of[0]} things that {options.robot} alone saw in map {done.map_id}"
            f" agree with what others saw within {found.rms_m:.2f} m (RMS); another motion, {found.rival}"
        )
        sigma = f"{math.degrees(found.turn_sigma_rad):.2f} degrees"
        turn = f"its turn is known to {sigma}" if found.turned else f"no turn is significant, to {sigma}"
        say(
            f"{turn} (standard deviation); where things are moved to, to {found.sigma_m:.2f} m, and"
            f" {found.farthest_sigma_m:.2f} m for the farthest"
        )
    where = "as the store's" if done.frame == Motion() else str(done.frame)
    say(f"its map is {where}: moved {counted(len(done.ids))} {done.shift}")
    say(f"undo with: {undoing(folder, done.operation)}")
    return 0
