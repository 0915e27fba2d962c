"""The map of a report as SVG in metres: trajectory, memories, true objects, questions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from drive.questions import Answer
from drive.report.picture import DriveSummary
from memory import Memory
from perception.visualise.palette import class_colour

#: Most drawn observations that were not kept; more are thinned evenly.
MOST_DOTS = 3000
#: Length and width in metres of memories without a size.
_SIZES = {"Car": (4.2, 1.8), "Cyclist": (1.8, 0.7), "Pedestrian": (0.8, 0.8)}


def map_figure(drawn: DriveSummary) -> str:
    """Return a figure with switchable layers."""
    layers = [layer for layer in _layers(drawn) if layer[3]]
    x_min, y_min, x_max, y_max = _bounds(drawn)
    width, height = x_max - x_min, y_max - y_min
    unit = max(width, height) / 100
    switches = "".join(
        f'<label><input type="checkbox" id="show-{name}" checked>'
        f'<span class="key {shape}" style="--key:{colour}"></span>{escape(title)}</label>'
        for name, title, (colour, shape), _ in layers
    )
    hiding = "".join(
        f".map:has(#show-{name}:not(:checked)) .layer-{name}{{display:none}}" for name, *_ in layers
    )
    body = "".join(f'<g class="layer-{name}">{drawing}</g>' for name, _, _, drawing in layers)
    grid = _grid(x_min, y_min, x_max, y_max, unit)
    return (
        f'<style>{hiding}</style><figure class="panel map"><div class="layers">{switches}</div>'
        f'<svg viewBox="{x_min:.2f} {-y_max:.2f} {width:.2f} {height:.2f}" role="img"'
        f' aria-label="Map of the drive, {width:.0f} by {height:.0f} metres">{grid}{body}</svg></figure>'
    )


def _layers(drawn: DriveSummary) -> Iterator[tuple[str, str, tuple[str, str], str]]:
    """Yield name, title, colour and shape of the key, and drawing of each layer; the lowest first."""
    yield "lost", "observed, not kept", ("var(--dropped)", ""), _dots(drawn.lost)
    path = " ".join(f"{x:.2f},{-y:.2f}" for x, y in drawn.path)
    line = f'<polyline points="{path}" fill="none" stroke="var(--soft)" stroke-width=".35" opacity=".7"/>'
    yield "way", "trajectory of the robot", ("var(--soft)", ""), line if drawn.path else ""
    ways = "".join(_trail(label, places) for label, places in drawn.trails if len(places) > 1)
    yield "trails", "tracks", ("var(--class-Car)", ""), ways
    places = [memory for memory in drawn.memories if memory.kind == "place"]
    crosses = "".join(
        f'<path d="M{m.position[0] - 0.6:.2f} {-m.position[1]:.2f}h1.2m-.6-.6v1.2" stroke="var(--place)"'
        f' stroke-width=".3">{_title(m)}</path>'
        for m in places
    )
    yield "places", "remembered place", ("var(--place)", ""), crosses
    things = [memory for memory in drawn.memories if memory.kind == "object"]
    for label in sorted({memory.label for memory in things}):
        there = [m for m in things if m.label == label and m.state not in ("gone", "moved")]
        drawing = "".join(_box(m, f"var(--class-{class_name(label)})", gone=False) for m in there)
        yield class_name(label), f"remembered {label}", (f"var(--class-{class_name(label)})", ""), drawing
    episodes = [memory for memory in drawn.memories if memory.kind == "event" and memory.payload.get("way")]
    yield "episodes", "remembered episode", ("var(--merged)", ""), "".join(map(_episode, episodes))
    gone = [memory for memory in things if memory.state in ("gone", "moved")]
    boxes = "".join(_box(memory, "var(--gone)", gone=True) for memory in gone)
    yield "gone", "remembered, known to be gone", ("var(--gone)", "open"), boxes
    truth = "".join(
        f'<circle cx="{p.position[0]:.2f}" cy="{-p.position[1]:.2f}" r="1.35" fill="none" stroke="var(--ink)"'
        f' stroke-width=".22"><title>true {escape(p.label)} at ({p.position[0]:.1f}, {p.position[1]:.1f})'
        "</title></circle>"
        for p in drawn.places
    )
    yield "truth", "true object", ("var(--ink)", "ring"), truth
    for right, name in ((True, "right"), (False, "wrong")):
        asked = [answer for answer in drawn.answers if answer.right is right and answer.position is not None]
        rings = "".join(_ring(answer, f"var(--{name})") for answer in asked)
        yield name, f"{name} answer about this place", (f"var(--{name})", "ring"), rings


def class_name(label: str) -> str:
    """Return a label as part of a CSS name."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in label) or "none"


def class_rules(labels: Sequence[str]) -> str:
    """Return CSS colours of labels for both themes and for paper."""
    light = "".join(f"--class-{class_name(label)}:{class_colour(label).light};" for label in labels)
    dark = "".join(f"--class-{class_name(label)}:{class_colour(label).dark};" for label in labels)
    return (
        f":root{{{light}}}@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}" if labels else ""
    )


def _bounds(drawn: DriveSummary) -> tuple[float, float, float, float]:
    """Return the extent of everything driven and remembered, with a margin."""
    at = np.array([*drawn.path, *(memory.position[:2] for memory in drawn.memories)]).reshape(-1, 2)
    if not len(at):
        return -10.0, -10.0, 10.0, 10.0
    low, high = at.min(axis=0), at.max(axis=0)
    margin = max(4.0, 0.05 * float((high - low).max()))
    return (
        float(low[0] - margin),
        float(low[1] - margin),
        float(high[0] + margin),
        float(high[1] + margin),
    )


def _grid(x_min: float, y_min: float, x_max: float, y_max: float, unit: float) -> str:
    """Return grid lines with labels in metres, about six across."""
    rough = max(x_max - x_min, y_max - y_min) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    parts = []
    for x in np.arange(math.ceil(x_min / step) * step, x_max, step):
        parts.append(f'<path d="M{x:.2f} {-y_max:.2f}V{-y_min:.2f}"/>')
        parts.append(f'<text x="{x + 0.4 * unit:.2f}" y="{-y_min - 0.6 * unit:.2f}">{x:g} m</text>')
    for y in np.arange(math.ceil(y_min / step) * step, y_max, step):
        parts.append(f'<path d="M{x_min:.2f} {-y:.2f}H{x_max:.2f}"/>')
        parts.append(f'<text x="{x_min + 0.4 * unit:.2f}" y="{-y - 0.4 * unit:.2f}">{y:g} m</text>')
    return (
        f'<g stroke="var(--line)" stroke-width="{0.12 * unit:.3f}" font-size="{1.5 * unit:.2f}">'
        + "".join(parts).replace("<text", '<text stroke="none"')
        + "</g>"
    )


def _dots(memories: Sequence[Memory]) -> str:
    """Return all dots as one path, because thousands of elements would slow the page."""
    shown = memories[:: max(1, math.ceil(len(memories) / MOST_DOTS))]
    data = "".join(f"M{memory.position[0]:.1f} {-memory.position[1]:.1f}h0" for memory in shown)
    return (
        f'<path d="{data}" stroke="var(--dropped)" stroke-width=".7" stroke-linecap="round" fill="none"/>'
        if data
        else ""
    )


def _box(memory: Memory, colour: str, *, gone: bool) -> str:
    size = memory.payload.get("size_m") or _SIZES.get(memory.label, (1.0, 1.0))
    length, width = max(float(size[0]), 0.8), max(float(size[1]), 0.8)
    style = (
        f'fill="none" stroke="{colour}" stroke-width=".25" stroke-dasharray=".8 .5"'
        if gone
        else f'fill="{colour}" fill-opacity=".55" stroke="{colour}" stroke-width=".2"'
    )
    x, y, turn = memory.position[0], -memory.position[1], -math.degrees(memory.yaw)
    return (
        f'<rect x="{-length / 2:.2f}" y="{-width / 2:.2f}" width="{length:.2f}" height="{width:.2f}" rx=".3"'
        f' transform="translate({x:.2f} {y:.2f}) rotate({turn:.1f})" {style}>{_title(memory)}</rect>'
    )


def _trail(label: str, places: Sequence[tuple[float, float]]) -> str:
    line = " ".join(f"{x:.2f},{-y:.2f}" for x, y in places)
    return (
        f'<polyline points="{line}" fill="none" stroke="var(--class-{class_name(label)})" stroke-width=".3"'
        f' opacity=".6"><title>track of a {escape(label)}</title></polyline>'
    )


def _episode(memory: Memory) -> str:
    """Return an arrow along the trajectory of an episode."""
    way = [(float(x), -float(y)) for _, x, y in memory.payload["way"]]
    line = " ".join(f"{x:.2f},{y:.2f}" for x, y in way)
    (x0, y0), (x1, y1) = way[max(0, len(way) - 4)], way[-1]
    turn = math.degrees(math.atan2(y1 - y0, x1 - x0))
    return (
        f'<g stroke="var(--merged)" stroke-width=".5" fill="none"><polyline points="{line}"/>'
        f'<path d="M-1.6 -.9L0 0L-1.6 .9" transform="translate({x1:.2f} {y1:.2f}) rotate({turn:.1f})"/>'
        f"<title>{escape(memory.caption)}</title></g>"
    )


def _ring(answer: Answer, colour: str) -> str:
    assert answer.position is not None
    text = f"{answer.text} {answer.said}" + ("" if answer.right else f" (true: {answer.expected})")
    return (
        f'<circle cx="{answer.position[0]:.2f}" cy="{-answer.position[1]:.2f}" r="2.4" fill="none"'
        f' stroke="{colour}" stroke-width=".35" opacity=".85"><title>{escape(text)}</title></circle>'
    )


def _title(memory: Memory) -> str:
    what = memory.label or memory.caption or memory.kind
    importance = "" if memory.importance is None else f", importance {memory.importance:.2f}"
    text = f"{what} {memory.id or ''}: seen {memory.count} times, {memory.state}{importance}"
    return f"<title>{escape(text)}</title>"
