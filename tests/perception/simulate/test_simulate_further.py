"""Further classes: sizes, places and names."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from perception.boxes import rotated_iou_bev
from perception.simulate import (
    FURTHER,
    NUSCENES_DENSITY,
    SceneConfig,
    SensorModel,
    build_scene,
    simulate_scan,
)
from perception.simulate.surface import Material

#: Length, width and height that nuScenes' boxes of a class mostly lie between, metres.
SIZES_M = {
    "bus": ((8.0, 14.5), (2.4, 3.3), (2.8, 4.0)),
    "trailer": ((7.5, 15.5), (2.2, 3.1), (3.0, 4.4)),
    "truck": ((4.2, 10.5), (2.1, 3.0), (2.0, 4.0)),
    "construction_vehicle": ((4.4, 9.0), (2.0, 3.4), (2.3, 4.0)),
    "motorcycle": ((1.6, 2.6), (0.55, 1.1), (1.0, 1.8)),
    "barrier": ((0.3, 0.8), (1.7, 3.2), (0.8, 1.3)),
    "traffic_cone": ((0.15, 0.6), (0.15, 0.6), (0.45, 1.35)),
}
TEN = SceneConfig(
    extent_m=60.0,
    further_per_100m={kind: 3 * mean for kind, mean in NUSCENES_DENSITY.items()},
    naming="nuscenes",
)


@pytest.mark.parametrize("kind", list(FURTHER))
def test_meshes_have_sizes_of_their_class(kind: str) -> None:
    sizes = []
    for seed in range(20):
        mesh = FURTHER[kind](np.random.default_rng(seed))
        low, high = mesh.vertices.min(0), mesh.vertices.max(0)
        assert np.isfinite(mesh.vertices).all()
        np.testing.assert_allclose((low + high)[:2], 0, atol=1e-4)
        assert abs(low[2]) < 1e-4
        assert set(mesh.materials.tolist()) <= {int(material) for material in Material}
        assert ((mesh.reflectivity >= 0) & (mesh.reflectivity <= 1)).all()
        sizes.append(high - low)
    for values, (least, most) in zip(np.array(sizes).T, SIZES_M[kind], strict=True):
        assert least <= values.min() <= values.max() <= most
        assert np.ptp(values) > 0 or kind == "barrier"


def test_scenes_hold_all_ten_classes_and_nothing_stands_in_another() -> None:
    found: Counter[str] = Counter()
    for seed in range(4):
        scene = build_scene(seed, TEN)
        found.update(item.label for item in scene.objects)
        rows = []
        for item in scene.objects:
            length, width, height = np.ptp(item.mesh.vertices, axis=0)
            rows.append([item.spot.u, item.spot.v, 0, length, width, height, item.spot.heading_rad])
        overlap = rotated_iou_bev(np.array(rows, np.float32), np.array(rows, np.float32))
        assert (overlap[~np.eye(len(rows), dtype=bool)] == 0).all()
        assert [item.track_id for item in scene.objects] == list(range(len(rows)))
    assert found.keys() == {"car", "pedestrian", "bicycle", *FURTHER}
    assert min(found.values()) >= 2


def test_names_of_kitti() -> None:
    config = SceneConfig(extent_m=60.0, further_per_100m={"truck": 4.0, "bus": 4.0})
    labels = {item.label for seed in range(3) for item in build_scene(seed, config).objects}
    assert {"Truck", "Misc", "Car"} <= labels
    assert not labels & set(FURTHER)


def test_scenes_without_further_kinds_are_what_they_were() -> None:
    plain, named = (build_scene(4, SceneConfig(extent_m=40.0, naming=name)) for name in ("kitti", "nuscenes"))
    assert [item.spot for item in plain.objects] == [item.spot for item in named.objects]
    assert {item.label for item in named.objects} <= {"car", "pedestrian", "bicycle"}


def test_a_scan_of_all_classes() -> None:
    pytest.importorskip("open3d", exc_type=ImportError)
    dense = SceneConfig(extent_m=30.0, further_per_100m=dict.fromkeys(FURTHER, 4.0), naming="nuscenes")
    scan = simulate_scan(2, scene=dense, sensor=SensorModel.preset("16"))
    seen = {scan.boxes.labels[row] for row in np.flatnonzero(scan.point_counts > 0)}
    assert len(seen & set(FURTHER)) >= 4


@pytest.mark.parametrize("wrong", [{"tank": 1.0}, {"bus": -1.0}])
def test_kinds_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="further_per_100m"):
        SceneConfig(further_per_100m=wrong)
