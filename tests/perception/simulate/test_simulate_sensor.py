"""Presets, ray grids and the model of returns."""

import numpy as np
import pytest

from perception.simulate import SensorModel
from perception.simulate.sensor import Returns
from perception.simulate.surface import Material


@pytest.mark.parametrize(("name", "columns"), [("128", 1800), ("64", 2160), ("32", 2118), ("16", 1800)])
def test_presets_have_their_beams_and_columns(name: str, columns: int) -> None:
    sensor = SensorModel.preset(name)
    grid = sensor.rays(np.random.default_rng(0))
    assert sensor.beams == int(name)
    assert grid.directions.shape == (int(name) * columns, 3)
    assert grid.directions.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(grid.directions, axis=1), 1, atol=1e-6)
    assert (np.diff(grid.elevation_rad) < 0).all()
    assert (np.diff(grid.azimuth_rad) > 0).all()


def test_part_of_a_turn_stays_within_its_azimuths() -> None:
    sensor = SensorModel.preset("64", azimuth_deg=(-45, 45))
    directions = sensor.rays(np.random.default_rng(0)).directions
    azimuth = np.degrees(np.arctan2(directions[:, 1], directions[:, 0]))
    assert len(directions) == 64 * 540
    assert azimuth.min() > -45.5
    assert azimuth.max() < 45.5


def test_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="expected one of 64, 32, 16"):
        SensorModel.preset("8")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("elevation_deg", ()),
        ("azimuth_step_deg", 0.0),
        ("azimuth_deg", (10.0, -10.0)),
        ("azimuth_deg", (-190.0, 10.0)),
        ("range_min_m", 200.0),
    ],
)
def test_impossible_sensors_are_refused(field: str, value: object) -> None:
    fields = {"name": "test", "elevation_deg": (0.0,), "azimuth_step_deg": 0.2, field: value}
    with pytest.raises(ValueError, match=r"elevation_deg|azimuth|range"):
        SensorModel(**fields)  # type: ignore[arg-type]


def measure(
    distance_m: float,
    *,
    cosine: float = 1.0,
    material: Material = Material.MASONRY,
    reflectivity: float = 0.3,
) -> Returns:
    count = 4000

    def full(value: float) -> np.ndarray:
        return np.full(count, value, np.float32)

    return SensorModel.preset("64").measure(
        full(distance_m),
        full(cosine),
        np.full(count, int(material), np.uint8),
        full(reflectivity),
        full(1.0),
        np.random.default_rng(0),
    )


def test_range_noise_is_small_and_unbiased() -> None:
    returns = measure(10.0, material=Material.PAINT)
    assert returns.range_m.mean() == pytest.approx(10.0, abs=0.002)
    assert returns.range_m.std() == pytest.approx(0.02, rel=0.1)


def test_intensity_is_a_share_in_steps_of_a_hundredth() -> None:
    for distance in (2.0, 30.0, 100.0):
        intensity = measure(distance, material=Material.REFLECTOR, reflectivity=0.95).intensity
        assert intensity.min() >= 0
        assert intensity.max() <= 1
        np.testing.assert_allclose(intensity * 100, np.round(intensity * 100), atol=1e-4)


def test_intensity_falls_with_range_incidence_and_reflectivity() -> None:
    base = measure(10.0).intensity.mean()
    assert measure(50.0).intensity.mean() < 0.8 * base
    assert measure(10.0, cosine=0.2, material=Material.PAINT).intensity.mean() < 0.5 * base
    assert measure(10.0, reflectivity=0.1).intensity.mean() < 0.5 * base


def test_returns_are_lost_far_away_at_grazing_incidence_and_on_dark_surfaces() -> None:
    assert measure(10.0).kept.mean() > 0.97
    assert measure(90.0).kept.mean() < measure(40.0).kept.mean()
    assert measure(60.0, cosine=0.02).kept.mean() < 0.8 * measure(60.0).kept.mean()
    assert measure(40.0, reflectivity=0.02).kept.mean() < 0.7 * measure(40.0).kept.mean()
    assert measure(10.0, material=Material.GLASS).kept.mean() < 0.3


def test_nothing_comes_back_from_beyond_the_range_limits() -> None:
    assert not measure(1.0).kept.any()
    assert not measure(121.0, material=Material.REFLECTOR).kept.any()
