"""``recall align``: align the map and clock of a robot with those of the store."""

from __future__ import annotations

import argparse
import math
from typing import Any

from memory.cli.console import add_command, counted, print_json, say, split_words, undoing
from memory.merging.align_options import AlignOptions
from memory.merging.alignment import Alignment
from memory.merging.motion import Motion
from memory.store import MemoryStore


def add_parser(commands: Any) -> None:
    """Declare the options."""
    usual = AlignOptions()
    parser = add_command(commands, "align", run)
    parser.add_argument("--robot", metavar="NAME", required=True, help="robot whose map is aligned")
    parser.add_argument("--map", metavar="MAP", help="map to align (default: the only map that it saw)")
    parser.add_argument(
        "--tolerance", type=float, default=usual.tolerance_m, metavar="M",
        help="maximum distance between matched objects after alignment, in metres (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--least", type=int, default=usual.least_things, metavar="N",
        help="minimum number of matched objects (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--within", type=float, default=usual.most_shift_m, metavar="M",
        help="maximum distance by which a memory may be moved, in metres (default: any)",
    )  # fmt: skip
    parser.add_argument(
        "--clock", type=float, default=usual.most_clock_s, metavar="S",
        help="maximum difference between the clocks to correct, in seconds; 0 trusts the clocks"
        " (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--reset", action="store_true", help="remove the alignment")


def run(options: argparse.Namespace) -> int:
    """Estimate the alignment and move the robot's memories."""
    folder, _ = split_words(options)
    gates = AlignOptions(
        tolerance_m=options.tolerance,
        least_things=options.least,
        most_shift_m=options.within,
        most_clock_s=options.clock,
    )
    frame = Motion() if options.reset else None
    with MemoryStore.open(folder, create=False) as store:
        done = store.align(options.robot, map_id=options.map, options=gates, frame=frame)
    found = done.estimate
    if options.json:
        estimate = None if found is None else {**found._asdict(), "motion": found.motion._asdict()}
        shift = None if done.shift is None else done.shift._asdict()
        print_json({**done._asdict(), "frame": done.frame._asdict(), "estimate": estimate, "shift": shift})
        return 0
    if found is not None:
        say(
            f"matched {found.things} of {found.of[0]} objects that only {options.robot} saw in map"
            f" {done.map_id}; RMS error {found.rms_m:.2f} m; next best alignment: {found.rival}"
        )
        sigma = f"{math.degrees(found.turn_sigma_rad):.2f} degrees"
        turn = "estimated" if found.turned else "not significant, set to 0"
        say(
            f"rotation {turn}, standard deviation {sigma}; position standard deviation {found.sigma_m:.2f} m,"
            f" {found.farthest_sigma_m:.2f} m for the farthest object"
        )
        say(_clock(found, options.robot))
    where = "equals the store's map" if done.frame == Motion() else f"is aligned: {done.frame}"
    say(f"the robot's map {where}; moved {counted(len(done.ids))} {done.shift}")
    say(f"undo with: {undoing(folder, done.operation)}")
    return 0


def _clock(found: Alignment, robot: str) -> str:
    """Return a sentence about the clock of a robot."""
    if found.clock_sigma_s is None:
        return f"the clock of {robot} was not compared; times stay"
    by_s = found.motion.clock_ns / 1e9
    within = f"standard deviation {found.clock_sigma_s:.3f} s"
    if by_s == 0.0:
        return f"the clock of {robot} agrees, {within}"
    return f"the clock of {robot} is {abs(by_s):.3f} s {'behind' if by_s > 0 else 'ahead'}, {within}"
