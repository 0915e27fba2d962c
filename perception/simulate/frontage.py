"""Scenery along the streets of a layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from perception.simulate.ground import Spot, Street
from perception.simulate.layout import SceneLayout
from perception.simulate.mesh import Mesh
from perception.simulate.objects import scenery


def build_frontage(
    layout: SceneLayout, *, plants_per_100m: float, clutter_per_100m: float, rng: np.random.Generator
) -> list[Mesh]:
    """Return all scenery of a scene in world coordinates.

    Args:
        layout: streets and occupied areas; updated.
        plants_per_100m: trees and bushes per 100 m of each street side.
        clutter_per_100m: bins, signs, bollards and similar objects per 100 m of each street side.
        rng: source of every random choice.
    """
    meshes: list[Mesh] = []
    for street in layout.ground.streets:
        for side in (-1.0, 1.0):
            meshes += _street_furniture(layout, street, side, clutter_per_100m, rng)
            meshes += _pavement_trees(layout, street, side, plants_per_100m, rng)
            meshes += _plots(layout, street, side, rng)
            meshes += _boundaries(layout, street, side, rng)
    meshes += _greenery(layout, plants_per_100m, rng)
    return meshes


def _placed(layout: SceneLayout, mesh: Mesh, spot: Spot) -> Mesh:
    return mesh.transformed(layout.ground.pose(spot))


def _front(street: Street, side: float, along_m: float, beyond_kerb_m: float) -> Spot:
    """Return a spot beyond the kerb with the mesh's front (-y) towards the street."""
    lateral = side * (street.half_width_m + beyond_kerb_m)
    return street.spot(along_m, lateral, 0.0 if side > 0 else np.pi)


def _random_spots(layout: SceneLayout, per_100m: float, rng: np.random.Generator) -> Iterator[float]:
    """Yield positions along a street at the given mean density."""
    for _ in range(int(rng.poisson(per_100m * layout.extent_m / 50.0))):
        yield float(rng.uniform(-layout.extent_m, layout.extent_m))


def _street_furniture(
    layout: SceneLayout, street: Street, side: float, per_100m: float, rng: np.random.Generator
) -> list[Mesh]:
    makers: list[tuple[float, Callable[[], Mesh], float]] = [
        (0.30, lambda: scenery.clutter(rng), 1.0),
        (0.28, lambda: scenery.lamp_post(rng), 0.3),
        (0.32, lambda: scenery.traffic_sign(rng), 0.5),
        (0.05, scenery.traffic_light, 0.4),
        (0.05, lambda: scenery.billboard(rng), 2.0),
    ]
    shares = np.array([share for share, _, _ in makers])
    meshes = []
    for along in _random_spots(layout, per_100m, rng):
        _, make, size = makers[int(rng.choice(len(makers), p=shares / shares.sum()))]
        spot = _front(street, side, along, float(rng.uniform(0.3, max(0.5, street.sidewalk_m - 0.3))))
        if layout.roads.is_free(spot.u, spot.v, 0.25, 0.25) and layout.taken.claim(spot, size, size):
            meshes.append(_placed(layout, make(), spot))
    return meshes


def _pavement_trees(
    layout: SceneLayout, street: Street, side: float, per_100m: float, rng: np.random.Generator
) -> list[Mesh]:
    """Return a row of trees at the kerb, on some streets."""
    if rng.random() > 0.55 * min(1.0, layout.character.plants) or per_100m <= 0:
        return []
    spacing = float(rng.uniform(7.0, 14.0)) * 8.0 / per_100m
    meshes = []
    for along in np.arange(-layout.extent_m, layout.extent_m, max(spacing, 4.0)):
        spot = _front(street, side, float(along + rng.uniform(-1, 1)), 0.7)
        if layout.roads.is_free(spot.u, spot.v, 0.3, 0.3) and layout.taken.claim(spot, 0.5, 0.5):
            meshes.append(_placed(layout, scenery.tree(float(rng.uniform(5.0, 9.5)), rng), spot))
    return meshes


def _plots(layout: SceneLayout, street: Street, side: float, rng: np.random.Generator) -> list[Mesh]:
    """Return houses along one side of a street."""
    meshes = []
    along = -layout.extent_m
    setback = float(rng.uniform(*layout.character.setback_m))
    while along < layout.extent_m:
        length, depth = float(rng.uniform(8.0, 20.0)), float(rng.uniform(8.0, 13.0))
        floors = int(rng.integers(layout.character.floors[0], layout.character.floors[1] + 1))
        back = max(0.1, setback + float(rng.normal(0.0, 0.4)))
        spot = _front(street, side, along + length / 2, street.sidewalk_m + back + depth / 2)
        wanted = rng.random() < layout.character.buildings
        if wanted and _claim_plot(layout, spot, length, depth):
            meshes.append(_placed(layout, scenery.building(length, depth, 2.9 * floors + 0.6, rng), spot))
        gap_m = rng.uniform(0.0, 7.0) if layout.character.has_gardens else rng.choice([0.0, 0.0, 4.0])
        along += length + float(gap_m) + 0.6
    return meshes


def _claim_plot(layout: SceneLayout, spot: Spot, length_m: float, depth_m: float) -> bool:
    free = layout.plots.is_free(spot.u, spot.v, *_halves(spot, length_m, depth_m))
    return free and layout.taken.claim(spot, length_m, depth_m)


def _boundaries(layout: SceneLayout, street: Street, side: float, rng: np.random.Generator) -> list[Mesh]:
    """Return hedges, walls and fences between the pavement and the plots."""
    if not layout.character.has_gardens:
        return []
    meshes = []
    along = -layout.extent_m
    while along < layout.extent_m:
        length = float(rng.uniform(4.0, 16.0))
        kind = str(rng.choice(["hedge", "wall", "fence", "none"], p=[0.32, 0.17, 0.17, 0.34]))
        spot = _front(street, side, along + length / 2, street.sidewalk_m + 0.6)
        if (
            kind != "none"
            and layout.roads.is_free(spot.u, spot.v, *_halves(spot, length, 0.8))
            and layout.taken.claim(spot, length, 0.9, margin_m=0.0)
        ):
            meshes.append(_placed(layout, _boundary(kind, length, rng), spot))
        along += length + float(rng.uniform(0.0, 4.0))
    return meshes


def _halves(spot: Spot, length_m: float, depth_m: float) -> tuple[float, float]:
    """Return half sizes along u and v."""
    along = abs(np.cos(spot.heading_rad)) > 0.5
    return (length_m / 2, depth_m / 2) if along else (depth_m / 2, length_m / 2)


def _boundary(kind: str, length_m: float, rng: np.random.Generator) -> Mesh:
    height = float(rng.uniform(0.7, 2.0))
    if kind == "hedge":
        return scenery.hedge(length_m, 0.8, height, rng)
    if kind == "wall":
        return scenery.wall(length_m, 0.8 * height, rng)
    return scenery.fence(length_m, min(height, 1.5), rng)


def _greenery(layout: SceneLayout, per_100m: float, rng: np.random.Generator) -> list[Mesh]:
    """Return trees and bushes on the plots and behind the houses."""
    hectares = (2 * layout.extent_m / 100.0) ** 2
    meshes = []
    for _ in range(int(rng.poisson(6.0 * per_100m * layout.character.plants * hectares))):
        u, v = (float(value) for value in rng.uniform(-layout.extent_m, layout.extent_m, 2))
        spot = Spot(u, v, 0.0)
        if not layout.plots.is_free(u, v, 0.8, 0.8) or not layout.taken.claim(spot, 1.2, 1.2):
            continue
        meshes.append(_placed(layout, _plant(rng), spot))
    return meshes


def _plant(rng: np.random.Generator) -> Mesh:
    if rng.random() < 0.55:
        return scenery.bush(float(rng.uniform(0.4, 1.4)), float(rng.uniform(0.5, 2.2)), rng)
    return scenery.tree(float(rng.uniform(4.0, 11.0)), rng, conifer=bool(rng.random() < 0.25))
