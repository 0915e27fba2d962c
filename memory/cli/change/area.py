"""``recall area``: name parts of a map."""

from __future__ import annotations

import argparse
from typing import Any

from memory.areas import PLACE_RADIUS_M, Area
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
from memory.cli.filters import corner
from memory.query import Filter
from memory.store import MemoryStore


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "area", run, words="[NAME]")
    parser.add_argument("--polygon", metavar="'X,Y X,Y X,Y'", help="corners in the map, in metres")
    parser.add_argument(
        "--box", nargs=4, type=float, metavar=("X0", "Y0", "X1", "Y1"), help="two corners, in metres"
    )
    parser.add_argument("--places", nargs="+", metavar="ID", help="ids of memories that the area surrounds")
    parser.add_argument(
        "--radius", type=float, metavar="M",
        help=f"radius around each of --places in metres (default: {PLACE_RADIUS_M:g})",
    )  # fmt: skip
    parser.add_argument("--map", metavar="MAP", help="map of the area (default: the only map)")
    parser.add_argument("--remove", action="store_true", help="remove the name; memories stay")


def run(options: argparse.Namespace) -> int:
    """Set, remove or list areas."""
    folder, words = split_words(options, most=1)
    shapes = [shape for shape in (options.polygon, options.box, options.places) if shape is not None]
    if not words and (shapes or options.remove):
        raise UsageError("give the name of the area, such as: recall area STORE kitchen --box 0 0 4 3")
    if not words:
        return _list(folder, options)
    if options.remove == bool(shapes):
        raise UsageError("give one of --polygon, --box and --places, or --remove")
    if options.radius is not None and options.places is None:
        raise UsageError("--radius needs --places")
    with MemoryStore.open(folder, create=False) as store:
        if options.remove:
            operation = store.remove_area(words[0], map_id=options.map)
        else:
            if options.map is None and options.places is None and len(maps := store.maps()) != 1:
                known = f"the maps are {', '.join(maps)}" if maps else "the store has no map yet"
                raise UsageError(f"give --map MAP; {known}")
            operation = store.set_area(
                words[0],
                polygon=None if options.polygon is None else [corner(w) for w in options.polygon.split()],
                box=options.box,
                places=None if options.places is None else integers(options.places, "id"),
                radius_m=PLACE_RADIUS_M if options.radius is None else options.radius,
                map_id=options.map,
            )
    if options.json:
        print_json({"name": words[0], "removed": options.remove, "operation": operation})
    else:
        done = "removed" if options.remove else "set"
        say(f"{done} area {words[0]}; undo with: {undoing(folder, operation)}")
    return 0


def _list(folder: Any, options: argparse.Namespace) -> int:
    """Print the areas with their number of memories."""
    with MemoryStore.open(folder, readonly=True) as store:
        areas = [area for area in store.areas() if options.map in (None, area.map_id)]
        counts = [store.count(Filter(area=area.name, map_id=area.map_id)) for area in areas]
    if options.json:
        rows = zip(areas, counts, strict=True)
        print_json({"areas": [area.to_json() | {"memories": count} for area, count in rows]})
        return 0
    for area, count in zip(areas, counts, strict=True):
        say(f"{area.name} in map {area.map_id}: {_shape(area)}, {counted(count)}")
    if not areas:
        say("no areas yet; set one with: recall area STORE NAME --box X0 Y0 X1 Y1")
    return 0


def _shape(area: Area) -> str:
    if area.polygon:
        return f"{len(area.polygon)} corners"
    return f"within {area.radius_m:g} m of {len(area.places or {})} places"
