"""Spinning LiDAR sensors: ray directions and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perception.simulate.surface import INCIDENCE_POWER, RETRO_GAIN, RETURN_PROBABILITY, ROUGHNESS_M

FloatArray = npt.NDArray[np.float32]


class RayGrid(NamedTuple):
    """Rays of one turn of the sensor, beam by beam from the top.

    Attributes:
        directions: (beams * columns, 3) float32 unit vectors in the LiDAR frame.
        elevation_rad: (beams,) float64 nominal elevation of each beam, highest first.
        azimuth_rad: (columns,) float64 nominal azimuth of each column, counter-clockwise from +x, increasing.
        sweep_fraction: (columns,) float64, time of the column relative to azimuth 0, in turns, in [-0.5,
            0.5).
        gain: (beams,) float32, intensity calibration of each beam.
    """

    directions: FloatArray
    elevation_rad: npt.NDArray[np.float64]
    azimuth_rad: npt.NDArray[np.float64]
    sweep_fraction: npt.NDArray[np.float64]
    gain: FloatArray


class Returns(NamedTuple):
    """Returns of rays that met a surface.

    Attributes:
        range_m: (N,) float32 measured ranges.
        intensity: (N,) float32 in [0, 1], in steps of 0.01.
        kept: (N,) bool, False for lost returns.
    """

    range_m: FloatArray
    intensity: FloatArray
    kept: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SensorModel:
    """A spinning multi-beam LiDAR.

    Attributes:
        name: name of the preset, used as the source of the scans.
        elevation_deg: elevation of each beam, highest first.
        azimuth_step_deg: angle between two firings of a beam.
        azimuth_deg: first and last azimuth, counter-clockwise from +x; (-180, 180) is the whole turn.
        height_m: height of the sensor above the ground.
        range_min_m, range_max_m: limits of reported ranges.
        range_noise_m: standard deviation of the range.
        angle_jitter_deg: standard deviation of a ray's direction, per axis. The sensor knows the direction,
            so jitter moves points along the surface and not off it.
        falloff_m: range at which a surface of reflectivity 0.3 appears half as bright.
        weakest_echo: echo power, relative to such a surface at that range, at which half of the echoes are
            lost.
        rate_hz: turns per second.

    Raises:
        ValueError: no beam, an empty azimuth or range interval, or a step of 0 or less.
    """

    name: str
    elevation_deg: tuple[float, ...]
    azimuth_step_deg: float
    azimuth_deg: tuple[float, float] = (-180.0, 180.0)
    height_m: float = 1.73
    range_min_m: float = 1.5
    range_max_m: float = 120.0
    range_noise_m: float = 0.02
    angle_jitter_deg: float = 0.015
    falloff_m: float = 44.0
    weakest_echo: float = 0.13
    rate_hz: float = 10.0

    def __post_init__(self) -> None:
        if not self.elevation_deg:
            raise ValueError("elevation_deg is empty; list at least one beam")
        if self.azimuth_step_deg <= 0:
            raise ValueError(f"azimuth_step_deg must be positive, got {self.azimuth_step_deg}")
        low, high = self.azimuth_deg
        if not -180.0 <= low < high <= 180.0:
            raise ValueError(f"azimuth_deg must satisfy -180 <= first < last <= 180, got {self.azimuth_deg}")
        if not 0 <= self.range_min_m < self.range_max_m:
            raise ValueError(
                f"range limits must satisfy 0 <= min < max, got {self.range_min_m}, {self.range_max_m}"
            )

    @classmethod
    def preset(cls, name: str, *, azimuth_deg: tuple[float, float] = (-180.0, 180.0)) -> SensorModel:
        """Return a known sensor.

        Args:
            name: "64" (HDL-64E, as in KITTI), "32" (HDL-32E, as in nuScenes), "16" (VLP-16), "128" (Alpha
                Prime, densest around the horizon), or "long" (128 beams at 0.2 degrees, range 300 m).
            azimuth_deg: part of the turn to simulate.

        Raises:
            ValueError: the name is not one of the presets.
        """
        if name not in _PRESETS:
            raise ValueError(f"unknown sensor preset {name!r}; expected one of {', '.join(_PRESETS)}")
        elevation_deg, step_deg = _PRESETS[name]
        far = {"range_max_m": 300.0, "falloff_m": 150.0} if name == "long" else {}
        return cls(name, elevation_deg, step_deg, azimuth_deg, **far)

    @property
    def beams(self) -> int:
        """Number of beams."""
        return len(self.elevation_deg)

    def rays(self, rng: np.random.Generator) -> RayGrid:
        """Return the rays of one turn, with random jitter."""
        low, high = np.radians(self.azimuth_deg)
        columns = max(1, round((high - low) / np.radians(self.azimuth_step_deg)))
        azimuth = low + (np.arange(columns) + 0.5) * ((high - low) / columns)
        elevation = np.radians(np.array(self.elevation_deg))
        jitter = np.radians(self.angle_jitter_deg)
        phase = rng.uniform(-0.5, 0.5, (self.beams, 1)) * np.radians(self.azimuth_step_deg)
        turn = azimuth + phase + rng.normal(0.0, jitter, (self.beams, columns))
        tilt = elevation[:, None] + rng.normal(0.0, jitter, (self.beams, columns))
        level = np.cos(tilt)
        directions = np.stack([level * np.cos(turn), level * np.sin(turn), np.sin(tilt)], axis=-1)
        return RayGrid(
            directions.reshape(-1, 3).astype(np.float32),
            elevation,
            azimuth,
            azimuth / (2 * np.pi),
            _beam_gain(self.beams, rng),
        )

    def measure(
        self,
        distance_m: FloatArray,
        incidence_cosine: FloatArray,
        materials: npt.NDArray[np.uint8],
        reflectivity: FloatArray,
        gain: FloatArray,
        rng: np.random.Generator,
    ) -> Returns:
        """Convert exact hits into noisy returns.

        The echo is the received power relative to that of a surface of reflectivity 0.3 at normal incidence
        at ``falloff_m``. Like KITTI's sensor, the model reports reflectivity instead of power for strong
        echoes. Weak echoes are reported too dim, and the weakest are lost.

        Args:
            distance_m: (N,) float32, true distances.
            incidence_cosine: (N,) float32 in [0, 1], 1 at normal incidence.
            materials: (N,) uint8 values of ``Material``.
            reflectivity: (N,) float32 in [0, 1].
            gain: (N,) float32, intensity calibration of the beams.
            rng: source of the noise.
        """
        cosine = np.maximum(incidence_cosine, np.float32(1e-3))
        power = (reflectivity + 0.01) / 0.3 * RETRO_GAIN[materials] * cosine**0.4
        echo = power * (self.falloff_m / np.maximum(distance_m, 1.0)) ** 2
        roughness_m = (ROUGHNESS_M[materials] / np.maximum(cosine, 0.1)).astype(np.float32)
        range_m = self._noisy_range(distance_m, roughness_m, rng)
        probability = RETURN_PROBABILITY[materials] / (1.0 + (self.weakest_echo / echo) ** 2)
        kept = rng.random(len(distance_m), np.float32) < probability
        kept &= (distance_m >= self.range_min_m) & (range_m <= self.range_max_m)
        strength = gain * reflectivity * cosine ** INCIDENCE_POWER[materials]
        return Returns(range_m, _intensity((strength / (1.0 + echo**-3.0)).astype(np.float32), rng), kept)

    def _noisy_range(
        self, distance_m: FloatArray, roughness_m: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        sigma = np.hypot(np.float32(self.range_noise_m), roughness_m)
        noise = np.clip(rng.standard_normal(len(distance_m), np.float32), -3.0, 3.0)
        return (distance_m + sigma * noise).astype(np.float32)


def _intensity(strength: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return noisy intensities in steps of 0.01, with the dimmest reported as 0."""
    noise = 1.0 + 0.17 * rng.standard_normal(len(strength), np.float32)
    value = strength * noise + 0.02 * rng.standard_normal(len(strength), np.float32)
    floored = np.where(value < 0.03, 0.0, value)
    return np.round(np.clip(floored, 0.0, 1.0) * 100.0).astype(np.float32) / np.float32(100.0)


def _beam_gain(beams: int, rng: np.random.Generator) -> FloatArray:
    """Return (beams,) intensity calibrations: about 1, and low for a few weak beams."""
    gain = np.clip(rng.normal(1.0, 0.12, beams), 0.6, 1.4)
    gain[rng.random(beams) < 0.06] *= 0.15
    return gain.astype(np.float32)


def _evenly(high_deg: float, low_deg: float, beams: int) -> tuple[float, ...]:
    return tuple(float(value) for value in np.linspace(high_deg, low_deg, beams))


#: Name to elevations and azimuth step. The 64-beam sensor has two blocks of 32 with different spacing. Its
#: elevations are measured in KITTI's scans and slightly narrower than in the data sheet.
_PRESETS: dict[str, tuple[tuple[float, ...], float]] = {
    "64": (_evenly(2.3, -7.8, 32) + _evenly(-8.4, -23.6, 32), 1 / 6),
    "32": (_evenly(10.67, -30.67, 32), 0.17),
    "16": (_evenly(15.0, -15.0, 16), 0.2),
    "128": (_evenly(15.0, 2.0, 24) + _evenly(1.5, -5.5, 64) + _evenly(-6.0, -25.0, 40), 0.2),
    "long": (_evenly(3.0, -2.0, 84) + _evenly(-2.5, -24.0, 44), 0.2),
}
