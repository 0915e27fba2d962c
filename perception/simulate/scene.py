"""Scenes: a part of a town with scenery, traffic and a start position for the robot."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perception.simulate.frontage import build_frontage
from perception.simulate.further import FURTHER, Naming, add_further, renamed
from perception.simulate.ground import Ground, Spot
from perception.simulate.layout import CHARACTERS, SceneLayout, plan_layout
from perception.simulate.mesh import Mesh, merge_meshes
from perception.simulate.traffic import SceneObject, TrafficBuilder


@dataclass(frozen=True)
class SceneConfig:
    """Settings of a scene; densities are means from which each scene deviates at random.

    Attributes:
        extent_m: half side of the filled square.
        characters: kinds of neighbourhood to draw from: "residential", "city", "open", or "highway" (without
            crossings and people).
        parked_fill: chance that a parking bay is occupied.
        drive_cars: chance of a car on a driveway, per 17 m of each street side.
        moving_cars_per_100m, pedestrians_per_100m, cyclists_per_100m: per 100 m of street.
        plants_per_100m: trees and bushes per 100 m of each street side.
        clutter_per_100m: signs, lamp posts, bins and similar objects per 100 m of each street side.
        slope: largest fall of the terrain.
        bend_m: largest sideways bend of the streets.
        turning_share: chance that the robot stands at an angle, as if turning.
        pitch_deg: mean pitch of the sensor in single scans; positive is nose down.
        tilt_deg: standard deviation of its pitch and roll.
        further_per_100m: mean of further kinds per 100 m of street (``FURTHER``: truck, bus, trailer,
            construction_vehicle, motorcycle, barrier, traffic_cone); none by default.
        naming: label names, of KITTI or of nuScenes' ten classes.
        car_speed_m_s, cyclist_speed_m_s, pedestrian_speed_m_s: speeds of moving objects.

    Raises:
        ValueError: an unknown character, an extent of 0 or less, or a negative density.
    """

    extent_m: float = 80.0
    characters: tuple[str, ...] = ("residential", "city", "open")
    parked_fill: float = 0.7
    drive_cars: float = 0.12
    moving_cars_per_100m: float = 2.0
    pedestrians_per_100m: float = 2.5
    cyclists_per_100m: float = 1.2
    plants_per_100m: float = 8.0
    clutter_per_100m: float = 7.0
    slope: float = 0.008
    bend_m: float = 6.0
    turning_share: float = 0.15
    pitch_deg: float = 0.35
    tilt_deg: float = 0.15
    further_per_100m: Mapping[str, float] = field(default_factory=dict)
    naming: Naming = "kitti"
    car_speed_m_s: float = 8.0
    cyclist_speed_m_s: float = 4.5
    pedestrian_speed_m_s: float = 1.3

    def __post_init__(self) -> None:
        unknown = sorted(set(self.characters) - set(CHARACTERS))
        if unknown or not self.characters:
            raise ValueError(f"characters must be chosen from {', '.join(CHARACTERS)}; got {self.characters}")
        unknown = sorted(self.further_per_100m.keys() - FURTHER.keys())
        if unknown or min(self.further_per_100m.values(), default=0.0) < 0:
            raise ValueError(
                f"further_per_100m must map {', '.join(FURTHER)} to numbers of at least 0, got"
                f" {dict(self.further_per_100m)}"
            )
        if self.naming not in typing.get_args(Naming):
            raise ValueError(f"naming must be 'kitti' or 'nuscenes', got {self.naming!r}")
        if self.extent_m <= 0:
            raise ValueError(f"extent_m must be positive, got {self.extent_m}")
        for name in ("parked_fill", "moving_cars_per_100m", "pedestrians_per_100m", "cyclists_per_100m",
                     "plants_per_100m", "clutter_per_100m", "drive_cars"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class Scene:
    """A built scene.

    Attributes:
        ground: terrain and streets.
        static: ground and scenery in world coordinates; the ground's triangles come first.
        ground_triangles: number of ground triangles in ``static``.
        objects: labelled objects.
        start: position of the robot at time 0, in street coordinates.
    """

    ground: Ground
    static: Mesh
    ground_triangles: int
    objects: tuple[SceneObject, ...]
    start: Spot

    def world_from_lidar(
        self, spot: Spot, height_m: float, *, pitch_rad: float = 0.0, roll_rad: float = 0.0
    ) -> npt.NDArray[np.float64]:
        """Return the 4x4 pose of a sensor mounted ``height_m`` above the ground at ``spot``."""
        pose = self.ground.pose(spot, height_m)
        cosine, sine = np.cos([pitch_rad, roll_rad]), np.sin([pitch_rad, roll_rad])
        pitch = np.array([[cosine[0], 0, sine[0]], [0, 1, 0], [-sine[0], 0, cosine[0]]])
        roll = np.array([[1, 0, 0], [0, cosine[1], -sine[1]], [0, sine[1], cosine[1]]])
        pose[:3, :3] = pose[:3, :3] @ pitch @ roll
        return pose


def build_scene(seed: int, config: SceneConfig | None = None) -> Scene:
    """Build the scene of a seed; the same seed and configuration give the same scene."""
    settings = SceneConfig() if config is None else config
    streams = [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(5)]
    plan_rng, start_rng, traffic_rng, frontage_rng, further_rng = streams
    layout = plan_layout(settings.extent_m, settings.slope, settings.bend_m, settings.characters, plan_rng)
    start = _start(layout, settings, start_rng)
    layout.taken.claim(start, 5.5, 2.6)
    traffic = TrafficBuilder(layout, further_rng)
    add_further(traffic, settings.further_per_100m, settings.car_speed_m_s)
    objects = renamed(_populate(layout, settings, traffic_rng, traffic.objects), settings.naming)
    ground = layout.ground.mesh(settings.extent_m + 10.0)
    scenery = build_frontage(
        layout,
        plants_per_100m=settings.plants_per_100m,
        clutter_per_100m=settings.clutter_per_100m,
        rng=frontage_rng,
    )
    return Scene(layout.ground, merge_meshes([ground, *scenery]), len(ground), objects, start)


def _populate(
    layout: SceneLayout, config: SceneConfig, rng: np.random.Generator, there: list[SceneObject]
) -> tuple[SceneObject, ...]:
    traffic = TrafficBuilder(layout, rng, there)
    traffic.drive_cars(config.moving_cars_per_100m, config.car_speed_m_s)
    traffic.park_cars(config.parked_fill)
    traffic.add_cyclists(config.cyclists_per_100m, config.cyclist_speed_m_s)
    traffic.add_pedestrians(config.pedestrians_per_100m, config.pedestrian_speed_m_s)
    if layout.character.has_gardens:
        traffic.park_on_drives(config.drive_cars)
    return tuple(traffic.objects)


def _start(layout: SceneLayout, config: SceneConfig, rng: np.random.Generator) -> Spot:
    """Return a spot in the right lane of the first street; sometimes at an angle, in a nearby junction."""
    street = layout.ground.streets[0]
    heading = float(rng.normal(0.0, 0.02))
    along = 0.0
    if rng.random() < config.turning_share:
        heading = float(rng.uniform(-0.9, 0.9))
        crossings = [s.center_m for s in layout.ground.streets if s.axis == "v"]
        along = min(crossings, key=abs, default=0.0)
        along = along + float(rng.uniform(-4, 4)) if abs(along) < 0.5 * layout.extent_m else 0.0
    return street.spot(along, -street.lanes_m / 2 + float(rng.normal(0.0, 0.25)), heading)
