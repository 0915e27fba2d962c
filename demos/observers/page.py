"""A page with both observers, the objects of their shared memory, and who saw which.

The page is self-contained: style and drawing are inside it, and it needs no network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from memory.merging.motion import Motion
from memory.merging.trajectories import trajectory_of
from memory.types import Memory
from observers.judging import Score
from observers.scenes import RANGE_M, SharedScene
from observers.sharing import SharedMemory, witnesses
from sparse_core.common.files import write_file

#: Colours of what only the first, only the second and both observers saw.
_COLOURS = ("#0369a1", "#c2410c", "#047857")
_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #fff; color: #1a2230; font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 1.5rem 1.25rem 3rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.soft { color: #5b6677; }
svg { width: 100%; height: auto; background: #f6f7f9; border: 1px solid #d9dee5; border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #d9dee5; }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin: 0 .35rem 0 1rem; }
"""


def write_page(
    path: Path, scene: SharedScene, shared: SharedMemory, scores: dict[str, Score], notes: Sequence[str]
) -> Path:
    """Write the page.

    Args:
        path: of the page; missing folders are created.
        scene: what was seen.
        shared: the shared memory.
        scores: by name: each observer alone, and both.
        notes: sentences below the title.
    """
    moved = shared.motion or Motion()
    seen = [(memory, witnesses(memory, scene.observers, moved)) for memory in shared.memories]
    names = [observer.name for observer in scene.observers]
    key = "".join(
        f'<i style="background:{colour}"></i>{escape(words)}'
        for colour, words in zip(
            _COLOURS, (f"only the {names[0]}", f"only the {names[1]}", "both"), strict=True
        )
    )
    rows = "".join(
        "<tr>"
        f"<td>{memory.id}</td><td>{escape(memory.caption or memory.label)}</td>"
        f"<td>{memory.place[0]:.1f}, {memory.place[1]:.1f}</td><td>{memory.count}</td>"
        + "".join(f"<td>{escape(who[name])}</td>" for name in names)
        + "</tr>"
        for memory, who in seen
    )
    figures = "".join(
        f"<tr><td>{escape(name)}</td><td>{score.precision:.3f}</td><td>{score.recall:.3f}</td>"
        f"<td>{score.doubled}</td><td>{score.error_m:.2f}</td></tr>"
        for name, score in scores.items()
    )
    heads = "".join(f"<th>{escape(name)}</th>" for name in names)
    said = "".join(f'<p class="soft">{escape(note)}</p>' for note in notes)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Two observers, one memory</title>'
        f"<style>{_STYLE}</style></head><body><main><h1>Two observers, one memory</h1>"
        f"<p>{escape(scene.title)}</p>{said}{_drawing(scene, moved, seen)}"
        f'<p class="key">{key}</p>'
        "<h2>Compared with the labels of both</h2><table><tr><th>memory</th><th>precision</th><th>recall</th>"
        f"<th>doubled</th><th>error, m</th></tr>{figures}</table>"
        f"<h2>Who saw what, and why not</h2><table><tr><th>id</th><th>object</th><th>at</th>"
        f"<th>observations</th>{heads}</tr>{rows}</table></main></body></html>"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.encode())
    return path


def _drawing(scene: SharedScene, moved: Motion, seen: Sequence[tuple[Memory, dict[str, str]]]) -> str:
    """Return the objects and observers from above as SVG; y points up."""
    places = [np.array([memory.place[:2]]) for memory, _ in seen]
    stands = [
        scene.observers[0].views.position[:, :2],
        moved.points(scene.observers[1].views.position)[:, :2],
    ]
    near = np.concatenate([*stands, *[place for place in places if _is_near(place, stands)]])
    low, high = near.min(axis=0) - 6.0, near.max(axis=0) + 6.0
    parts = []
    for memory, who in seen:
        saw = [name == "saw it" for name in who.values()]
        colour = _COLOURS[2] if all(saw) else _COLOURS[0] if saw[0] else _COLOURS[1]
        why = "; ".join(f"{name}: {words}" for name, words in who.items())
        title = f"<title>{escape(f'{memory.id}: {memory.caption or memory.label} ({why})')}</title>"
        parts.append(f'<g fill="{colour}" stroke="{colour}">{title}{_shape(memory)}</g>')
    for number, (observer, stand) in enumerate(zip(scene.observers, stands, strict=True)):
        x, y = stand[-1]
        line = " ".join(f"{px:.2f},{-py:.2f}" for px, py in stand)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{_COLOURS[number]}" stroke-width=".4"/>'
            f'<circle cx="{x:.2f}" cy="{-y:.2f}" r="0.9" fill="#fff" stroke="{_COLOURS[number]}"'
            f' stroke-width=".4"/><text x="{x + 1.3:.2f}" y="{-y + 0.6:.2f}" font-size="1.8"'
            f' fill="{_COLOURS[number]}">{escape(observer.name)}</text>'
        )
    width, height = high - low
    view = f"{low[0]:.2f} {-high[1]:.2f} {width:.2f} {height:.2f}"
    words = f"{len(seen)} memories from above; {width:.0f} m wide"
    return f'<svg viewBox="{view}" role="img" aria-label="{words}">{"".join(parts)}</svg>'


def _is_near(place: np.ndarray, stands: Sequence[np.ndarray]) -> bool:
    """True if an object is within the range of an observer, so that it belongs into the drawing."""
    return any(float(np.hypot(*(stand - place).T).min()) <= RANGE_M for stand in stands)


def _shape(memory: Memory) -> str:
    """Return the outline of an object, and the trajectory of a moving one, which ends at its outline."""
    size = memory.payload.get("size_m") or [1.0, 1.0, 1.0]
    x, y = memory.place[:2]
    box = (
        f'<rect x="{-size[0] / 2:.2f}" y="{-size[1] / 2:.2f}" width="{size[0]:.2f}" height="{size[1]:.2f}"'
        f' transform="translate({x:.2f} {-y:.2f}) rotate({-math.degrees(memory.yaw):.1f})"'
        ' fill-opacity=".45" stroke-width=".25"/>'
    )
    trajectory = trajectory_of(memory)
    if trajectory is None:
        return box
    line = " ".join(f"{px:.2f},{-py:.2f}" for px, py in trajectory.places)
    return f'<polyline points="{line}" fill="none" stroke-width=".35" stroke-opacity=".7"/>{box}'
