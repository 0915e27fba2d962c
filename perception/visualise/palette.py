"""Colours shared by the bird's-eye picture and the 3D page."""

from __future__ import annotations

import zlib
from typing import NamedTuple


class Colour(NamedTuple):
    """A colour as ``#rrggbb``, for dark and for light backgrounds."""

    dark: str
    light: str


#: Fixed colours of KITTI's classes; blue, yellow and red are distinguishable with colour vision deficiency.
CLASS_COLOURS = {
    "Car": Colour("#45b8ff", "#0369a1"),
    "Pedestrian": Colour("#ff6b81", "#be123c"),
    "Cyclist": Colour("#ffc53d", "#a16207"),
    "Van": Colour("#2ee6c0", "#0f766e"),
    "Truck": Colour("#c48bff", "#7e22ce"),
    "Person_sitting": Colour("#ff9bd2", "#a21caf"),
}

#: Colours of other classes, chosen by a checksum of the name so that every picture uses the same.
OTHER_COLOURS = (
    Colour("#3ddc97", "#047857"),
    Colour("#ff9a5c", "#c2410c"),
    Colour("#8b9cff", "#4338ca"),
    Colour("#b5e853", "#4d7c0f"),
    Colour("#e0a3ff", "#86198f"),
)

GROUND_TRUTH = Colour("#f4f7fb", "#111827")

#: Muted, so that boxes are brighter than points; lowest first, evenly spaced.
POINT_STOPS = (
    Colour("#3c5278", "#a9b8cc"),
    Colour("#4d74a0", "#7f9bb8"),
    Colour("#6592a8", "#567f92"),
    Colour("#9dbcae", "#4f7a5b"),
    Colour("#dfe0bd", "#6b6219"),
)


def class_colour(label: str) -> Colour:
    """Return the colour of a class name."""
    known = CLASS_COLOURS.get(label)
    return known or OTHER_COLOURS[zlib.crc32(label.encode("utf-8", "replace")) % len(OTHER_COLOURS)]
