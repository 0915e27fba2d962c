"""Large vehicles: lorries, buses, trailers and construction vehicles, in the sizes of nuScenes' boxes.

Every function returns a mesh that fills the drawn sizes exactly, with its origin on the ground under the
centre and x forward. Means and spreads are close to those published for nuScenes (Caesar et al., CVPR 2020).
"""

from __future__ import annotations

import numpy as np

from perception.simulate.mesh import Mesh, box, capsule, cylinder, merge_meshes, sample_size
from perception.simulate.surface import Material


def sample_truck(rng: np.random.Generator) -> Mesh:
    """Return a lorry: cab, chassis, and a box body, a tarpaulin or an empty platform behind."""
    length, width, height = sample_size(rng, (7.2, 2.45, 2.95), (1.4, 0.12, 0.4))
    cab, deck = min(2.1, 0.3 * length), 0.95
    paint, body = float(rng.uniform(0.05, 0.5)), float(rng.uniform(0.2, 0.6))
    front = length / 2
    cab_height = min(height, float(rng.uniform(2.4, 2.9))) - 0.45
    parts = [
        box((front - cab / 2, 0, 0.45 + cab_height / 2), (cab, width, cab_height), Material.PAINT, paint),
        box(
            (front + 0.005, 0, 0.45 + 0.68 * cab_height),
            (0.02, 0.86 * width, 0.4 * cab_height),
            Material.GLASS,
        ),
        box((-cab / 2, 0, 0.75), (length - cab, 0.9, 0.3), Material.METAL, 0.15),
        *_lights(length, width, 0.75),
    ]
    for side in (-1.0, 1.0):
        window = (front - 0.45 * cab, side * (width / 2 + 0.005), 0.45 + 0.7 * cab_height)
        parts.append(box(window, (0.6 * cab, 0.02, 0.32 * cab_height), Material.GLASS))
    load = length - cab - 0.25
    centre = -length / 2 + load / 2
    if rng.random() < 0.8:
        parts.append(
            box((centre, 0, (deck + height) / 2), (load, width, height - deck), Material.PAINT, body)
        )
    else:
        parts.append(box((centre, 0, deck), (load, width, 0.18), Material.WOOD))
        for side in (-1.0, 1.0):
            parts.append(box((centre, side * width / 2, deck + 0.3), (load, 0.05, 0.5), Material.METAL, body))
        parts.append(
            box((front - cab - 0.2, 0, (deck + height) / 2), (0.08, width, height - deck), Material.METAL)
        )
    axles = [front - 0.6 * cab, -0.32 * length, *([-0.32 * length + 1.3] if length > 8.0 else [])]
    return _filled([*parts, *_wheels(axles, width, 0.48)], length, width, height)


def sample_bus(rng: np.random.Generator) -> Mesh:
    """Return a bus: one long body with a band of windows."""
    length, width, height = sample_size(rng, (11.3, 2.75, 3.3), (1.2, 0.12, 0.2))
    paint = float(rng.uniform(0.1, 0.5))
    parts = [
        box((0, 0, (0.35 + height) / 2), (length, width, height - 0.35), Material.PAINT, paint),
        *_lights(length, width, 0.7),
    ]
    pane = 1.5
    for along in np.arange(-length / 2 + 1.0, length / 2 - 0.9, pane + 0.15):
        for side in (-1.0, 1.0):
            centre = (float(along), side * (width / 2 + 0.005), 0.62 * height)
            parts.append(box(centre, (pane, 0.02, 0.3 * height), Material.GLASS))
    for end, tall in ((1.0, 0.5), (-1.0, 0.3)):
        centre = (end * (length / 2 + 0.005), 0.0, 0.6 * height)
        parts.append(box(centre, (0.02, 0.9 * width, tall * height), Material.GLASS))
    return _filled([*parts, *_wheels([0.3 * length, -0.28 * length], width, 0.48)], length, width, height)


def sample_trailer(rng: np.random.Generator) -> Mesh:
    """Return the trailer of a lorry, on its axles and its stand."""
    length, width, height = sample_size(rng, (11.8, 2.6, 3.7), (1.6, 0.12, 0.25))
    low = 1.1
    body = float(rng.uniform(0.2, 0.6))
    parts = [
        box((0, 0, (low + height) / 2), (length, width, height - low), Material.PAINT, body),
        box((0, 0, 0.95), (length, 1.0, 0.3), Material.METAL, 0.15),
        *_lights(length, width, 0.95),
    ]
    for side in (-1.0, 1.0):
        parts.append(box((0.28 * length, side * 0.5, 0.5), (0.15, 0.15, 1.0), Material.METAL))
    axles = [-0.3 * length + offset for offset in (-1.3, 0.0, 1.3)]
    return _filled([*parts, *_wheels(axles, width, 0.5)], length, width, height)


def sample_construction_vehicle(rng: np.random.Generator) -> Mesh:
    """Return an excavator on tracks, or a loader on wheels."""
    length, width, height = sample_size(rng, (6.4, 2.7, 3.1), (0.9, 0.2, 0.3))
    paint = float(rng.uniform(0.25, 0.55))
    parts: list[Mesh] = []
    if rng.random() < 0.6:
        for side in (-1.0, 1.0):
            parts.append(
                box((-0.15 * length, side * (width / 2 - 0.28), 0.45), (3.4, 0.55, 0.9), Material.RUBBER)
            )
    else:
        parts += _wheels([-0.3 * length, 0.05 * length], width, 0.72)
    parts.append(box((-0.2 * length, 0, 1.35), (2.6, 0.9 * width, 1.0), Material.PAINT, paint))
    parts.append(box((-0.1 * length, 0.2 * width, 2.3), (1.4, 0.42 * width, 1.5), Material.PAINT, paint))
    parts.append(box((-0.1 * length + 0.71, 0.2 * width, 2.4), (0.02, 0.36 * width, 1.0), Material.GLASS))
    elbow = (0.25 * length, -0.1 * width, float(rng.uniform(2.4, 3.2)))
    hand = (0.46 * length, -0.1 * width, float(rng.uniform(0.5, 1.4)))
    parts.append(capsule((-0.05 * length, -0.1 * width, 1.6), elbow, 0.22, Material.PAINT, paint))
    parts.append(capsule(elbow, hand, 0.17, Material.PAINT, paint))
    parts.append(box(hand, (0.7, 1.1, 0.6), Material.METAL, 0.2))
    return _filled(parts, length, width, height)


def _filled(parts: list[Mesh], length: float, width: float, height: float) -> Mesh:
    return merge_meshes(parts).resized(length, width, height)


def _wheels(axles_m: list[float], width: float, radius: float) -> list[Mesh]:
    """Return a wheel on either side of each axle."""
    return [
        cylinder(
            (along, side * (width / 2 - 0.35), radius), (along, side * width / 2, radius), radius,
            Material.RUBBER, sides=14,
        )
        for along in axles_m
        for side in (-1.0, 1.0)
    ]  # fmt: skip


def _lights(length: float, width: float, height: float) -> list[Mesh]:
    """Return reflectors at the corners."""
    return [
        box((end * length / 2, side * 0.42 * width, height), (0.03, 0.25, 0.15), Material.REFLECTOR)
        for end in (-1.0, 1.0)
        for side in (-1.0, 1.0)
    ]
