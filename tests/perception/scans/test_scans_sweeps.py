"""Past scans are moved by poses into the current one, and all ways of running a detector read their ages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from perception.config import DetectorConfig, PillarConfig, from_dict
from perception.data.sample import sample_frames
from perception.detector import Detector
from perception.errors import ConfigError, ScanWarning
from perception.export.frame import ExportSteps
from perception.model.network import Network
from perception.model.pillars import make_pillars
from perception.registry import graph_steps, kind_of
from perception.run.eager import EagerRunner
from perception.run.graph import FrameRunner
from perception.scans.sweeps import PastScan, SweepBuffer, merge_scans
from perception.scans.tensors import as_tensor
from perception.types import PointCloud

PILLARS = PillarConfig(sweeps=3, max_age_s=0.35)
SECOND = 10**9


def scan(*places: tuple[float, float, float], time_ns: int | None = None) -> PointCloud:
    return PointCloud(np.array([(*place, 0.5) for place in places], np.float32), timestamp_ns=time_ns)


def pose(x: float, turn_rad: float = 0.0) -> np.ndarray:
    found = np.eye(4)
    found[:2, :2] = [[np.cos(turn_rad), -np.sin(turn_rad)], [np.sin(turn_rad), np.cos(turn_rad)]]
    found[0, 3] = x
    return found


def test_points_of_the_past_are_moved_and_aged() -> None:
    merged = merge_scans(
        scan((10, 0, 0)), [PastScan(scan((5, 0, 0), (0.5, -0.9, 0), (0.5, 2, 0)), pose(1.0), 0.1)]
    )
    # The own vehicle moved along, so its points of the past are left out.
    np.testing.assert_allclose(merged.points, [[10, 0, 0, 0.5], [6, 0, 0, 0.5], [1.5, 2, 0, 0.5]])
    assert merged.ages_s is not None
    np.testing.assert_allclose(merged.ages_s, [0, 0.1, 0.1])


def test_a_standing_point_stays_and_a_moving_one_leaves_a_trail() -> None:
    sweeps = SweepBuffer(PILLARS)
    for step in range(4):
        # The sensor drives 1 m a scan and turns; a post stands at 20, 5; a car drives 2 m a scan.
        here = pose(float(step), 0.1 * step)
        places = [np.linalg.inv(here) @ (x, y, 0, 1) for x, y in ((20, 5), (30 + 2 * step, 0))]
        merged = sweeps.merge(
            scan(*(tuple(place[:3]) for place in places), time_ns=step * SECOND // 10), here
        )
    assert merged.ages_s is not None
    np.testing.assert_allclose(merged.ages_s, [0, 0, 0.1, 0.1, 0.2, 0.2], atol=1e-6)
    there = merged.points[:, :3].astype(np.float64) @ here[:3, :3].T + here[:3, 3]
    np.testing.assert_allclose(there[::2, :2], [[20, 5]] * 3, atol=1e-4)
    np.testing.assert_allclose(there[1::2, :2], [[36, 0], [34, 0], [32, 0]], atol=1e-4)


def ages_of(sweeps: SweepBuffer, cloud: PointCloud, place: object = None) -> list[float]:
    merged = sweeps.merge(cloud, pose(0.0) if place is None else place)
    assert merged.ages_s is not None
    return [round(float(age), 3) for age in merged.ages_s]


def test_old_scans_jumps_and_gaps_are_left_out() -> None:
    sweeps, point = SweepBuffer(PILLARS), (9.0, 0.0, 0.0)
    assert ages_of(sweeps, scan(point, time_ns=0)) == [0]
    assert ages_of(sweeps, scan(point, time_ns=3 * SECOND // 10)) == [0, 0.3]
    assert ages_of(sweeps, scan(point, time_ns=4 * SECOND // 10)) == [0, 0.1]
    # Another drive: the clock was set back, then the pose jumps.
    assert ages_of(sweeps, scan(point, time_ns=SECOND // 10)) == [0]
    assert ages_of(sweeps, scan(point, time_ns=2 * SECOND // 10), pose(200.0)) == [0]
    # Without a pose, a scan comes alone, and so does the next one.
    alone = scan(point, time_ns=3 * SECOND // 10)
    assert sweeps.merge(alone) is alone
    assert ages_of(sweeps, scan(point, time_ns=4 * SECOND // 10)) == [0]
    sweeps.clear()
    assert ages_of(sweeps, scan(point, time_ns=5 * SECOND // 10)) == [0]


def test_scans_without_times_come_at_ten_hertz() -> None:
    sweeps = SweepBuffer(PILLARS)
    assert [ages_of(sweeps, scan((9, 0, 0))) for _ in range(3)] == [[0], [0, 0.1], [0, 0.1, 0.2]]
    with pytest.raises(ValueError, match="map_from_lidar"):
        sweeps.merge(scan((9, 0, 0)), np.zeros((4, 4)))


def test_one_sweep_changes_nothing() -> None:
    sweeps, cloud = SweepBuffer(PillarConfig()), scan((9, 0, 0))
    assert not sweeps.used
    assert sweeps.merge(cloud, pose(0.0)) is cloud
    assert as_tensor(replace(cloud, ages_s=np.ones(1, np.float32)), PillarConfig()).shape == (1, 4)


def test_tensors_have_ages() -> None:
    cloud = replace(scan((9, 0, 0), (8, 0, 0)), ages_s=np.array([0, 0.1], np.float32), sensor_height_m=2.73)
    wanted = torch.tensor([[9, 0, 1, 0.5, 0], [8, 0, 1, 0.5, 0.1]])
    torch.testing.assert_close(as_tensor(cloud, PILLARS), wanted)
    halved = as_tensor(cloud, replace(PILLARS, shrink=2.0))
    torch.testing.assert_close(halved[:, [0, 3, 4]], torch.tensor([[4.5, 0.5, 0], [4.0, 0.5, 0.1]]))
    for given in (wanted, wanted.double().numpy()):
        torch.testing.assert_close(as_tensor(given, PILLARS), wanted)
    assert as_tensor(wanted[:, :4], PILLARS)[:, 4].tolist() == [0, 0]
    with pytest.raises(ValueError, match="ages_s must be"):
        PointCloud(wanted[:, :4].numpy(), ages_s=np.zeros(3, np.float32))


def test_the_configuration_names_bad_values() -> None:
    for name, value in (("sweeps", 0), ("max_age_s", 0.0)):
        with pytest.raises(ConfigError, match=f"pillars.{name}"):
            PillarConfig(**{name: value})


@pytest.fixture(scope="module")
def network() -> Network:
    """Random weights with peaks all over, which read three sweeps of the sample's street."""
    torch.manual_seed(0)
    config = {
        "pillars": {
            "range_m": [0, -15.36, -3, 61.44, 15.36, 1], "pillar_size_m": 0.32, "channels": 8, "sweeps": 3,
            "max_age_s": 1.5,
        },
        "backbone": {"channels": [8, 8, 16], "blocks": [1, 0, 0]},
        "neck": {"channels": 16, "blocks": 1, "out_channels": 16},
        "head": {"channels": 16},
        "refine": {"channels": [8, 12, 20], "proposals": 20},
        "nms": {"score_threshold": 0.05},
    }  # fmt: skip
    made = Network(from_dict(DetectorConfig, config))
    with torch.no_grad():
        made.head.heat.bias.fill_(-1.0)
        made.head.heat.weight.mul_(20.0)
        made.refinements[0].out.weight.normal_(std=0.02)
    return made.eval()


def merged_street() -> list[PointCloud]:
    sweeps = SweepBuffer(PillarConfig(sweeps=3, max_age_s=1.5))
    return [sweeps.merge(frame.cloud, frame.pose) for frame in sample_frames()[:4]]


@pytest.mark.parametrize("bounded", [True, False])
def test_steps_of_graphs_equal_eager_code_and_read_ages(network: Network, bounded: bool) -> None:
    if not bounded:
        network = Detector(network).with_range(None).network
    clouds = [as_tensor(cloud, network.config.pillars) for cloud in merged_street()[::3]]
    folded = Detector(network).network
    eager = EagerRunner(folded, kind_of(folded.config).eager)
    steps = FrameRunner(folded, graph_steps(folded.config), dtype=torch.float32, impl="reference")
    fixed, shuffled = steps(clouds), eager([cloud[torch.randperm(len(cloud))] for cloud in clouds])
    young = eager([cloud * torch.tensor([1, 1, 1, 1, 0.0]) for cloud in clouds])
    together = zip(fixed, eager(clouds), shuffled, young, strict=True)
    for number, (found, wanted, other, without) in enumerate(together):
        assert len(wanted.boxes) > 3
        # A point on the face of a box may count in one of both.
        same = np.isclose(found.boxes, wanted.boxes, rtol=0, atol=2e-4).all(1)
        assert same.mean() > (0.999 if bounded else 0.98)
        torch.testing.assert_close(found.scores, wanted.scores, rtol=0, atol=1e-5 if bounded else 1e-3)
        assert np.array_equal(other.boxes, wanted.boxes)
        # The first scan has no past, so its ages are zero anyway.
        assert np.array_equal(without.scores, wanted.scores) == (number == 0)


def test_compiled_pillars_of_five_columns_equal_plain_torch(network: Network) -> None:
    pillars = network.config.pillars
    cloud = as_tensor(merged_street()[-1], pillars)
    cloud[::50, 4] = torch.nan
    quick, plain = make_pillars([cloud], pillars), make_pillars([cloud], pillars, impl="reference")
    assert quick.points.shape[1] == 5
    assert int(quick.invalid) == len(cloud[::50])
    assert torch.equal(quick.points, plain.points)
    assert torch.equal(quick.counts, plain.counts)


def test_a_detector_warns_of_a_scan_alone(network: Network) -> None:
    detector = Detector(network)
    merged = merged_street()[-1]
    assert not any("sweeps" in text for text in detector(merged).warnings)
    with pytest.warns(ScanWarning, match="reads 3 sweeps"):
        alone = detector(sample_frames()[3].cloud)
    assert any("--poses FILE" in text for text in alone.warnings)
    # Arrays with ages give the same boxes.
    assert merged.ages_s is not None
    array = np.column_stack([merged.points, merged.ages_s])
    assert np.array_equal(detector(array).boxes, detector(merged).boxes)
    assert np.array_equal(detector(torch.from_numpy(array)).boxes, detector(merged).boxes)


def test_export_refuses_sweeps(network: Network) -> None:
    with pytest.raises(ConfigError, match="several sweeps"):
        ExportSteps(network)
