"""The detector: bad input, order, batches, kinds of input."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perception import Detections, Detector, PointCloud
from perception.checkpoints.weights import load_weights, shipped_weights
from perception.config import DetectorConfig
from perception.errors import ConfigError, DataError, PrecisionWarning, ScanWarning
from perception.model.network import Network
from perception.registry import make_network
from perception.run.eager import densest_first
from perception.run.precision import has_bfloat16
from perception.run.results import FrameResult
from perception.train.data.frames import TrainingFrame
from perception.types import FloatArray
from sparse_core.errors import CapacityWarning

Street = Callable[[int], TrainingFrame]


@pytest.fixture
def detector(tiny_network: Network) -> Detector:
    """Random weights, heat around 1/2; everything is reported, and every frame reaches its limits."""
    torch.nn.init.zeros_(tiny_network.head.heat.bias)
    return Detector(tiny_network).with_score_threshold(0.0)


def same(first: Detections, second: Detections) -> bool:
    return (
        np.array_equal(first.boxes, second.boxes)
        and np.array_equal(first.scores, second.scores)
        and first.labels == second.labels
    )


def assert_close(first: Detections, second: Detections) -> None:
    assert first.labels == second.labels
    np.testing.assert_allclose(first.scores, second.scores, atol=1e-5)
    np.testing.assert_allclose(first.boxes, second.boxes, atol=1e-4)


def test_detections_are_well_formed(detector: Detector, street: Street) -> None:
    found = detector(street(0).points)
    assert 0 < len(found) <= detector.config.nms.max_boxes
    assert found.boxes.dtype == found.scores.dtype == np.float32
    assert found.boxes.shape == (len(found), 7)
    assert (np.diff(found.scores) <= 0).all()
    assert ((found.scores >= 0) & (found.scores <= 1)).all()
    assert np.isfinite(found.boxes).all()
    assert (found.boxes[:, 3:6] > 0).all()
    assert (np.abs(found.boxes[:, 6]) <= np.float32(np.pi)).all()
    assert set(found.labels) <= {"Car", "Pedestrian"}
    assert [text for text in found.warnings if "reached its limit" not in text] == []


def test_limits_grow_with_the_area_of_the_range(tiny_config: DetectorConfig) -> None:
    configured = tiny_config.head.top_k, tiny_config.refine.proposals, tiny_config.nms.max_boxes
    assert tiny_config.limits == configured
    shipped = load_weights("pointpillars-anywhere").config
    area = (2 * 56.32) ** 2 / (69.12 * 79.36)
    assert shipped.limits == (math.ceil(100 * area), math.ceil(48 * area), math.ceil(64 * area))
    assert shipped.with_range(None).limits == (1600, 768, 1024)
    assert shipped.with_range((-1024, -1024, -4, 1024, 1024, 1.6)).limits == (1600, 768, 1024)


def test_a_frame_that_reaches_a_limit_says_so(detector: Detector, street: Street) -> None:
    few, many = detector(street(0).points), detector.with_limits(50)(street(0).points)
    assert "limit of 20 peaks (head.top_k) and 8 proposals (refine.proposals)" in few.warnings[-1]
    assert few.limits_reached == ("head.top_k", "refine.proposals")
    assert len(many) > len(few)
    assert many.limits_reached == ()
    assert not any("reached its limit" in text for text in many.warnings)


def test_proposals_that_cannot_be_reported_take_no_place(tiny_network: Network, street: Street) -> None:
    """Floors leave the reported boxes as they are, and are those of rounding below a threshold of 1."""
    torch.nn.init.zeros_(tiny_network.head.heat.bias)
    everything = Detector(tiny_network).with_score_threshold(0.0).with_limits(50)
    found = everything(street(0).points)
    score = float(np.sort(found.scores)[len(found) // 2])
    strict = everything.with_score_threshold({"Car": score, "Pedestrian": 1.0})
    assert strict.config.proposal_scores == pytest.approx((score**2, 1.0), rel=1e-3)
    wanted = [row for row in range(len(found)) if found.labels[row] == "Car" and found.scores[row] >= score]
    assert len(wanted) > 1
    np.testing.assert_array_equal(strict(street(0).points).boxes, found.boxes[wanted])


def test_scores_below_the_threshold_are_left_out(detector: Detector, street: Street) -> None:
    points = street(0).points
    everything = detector(points)
    threshold = float(np.sort(everything.scores)[-3])
    strict = detector.with_score_threshold(threshold)
    assert 0 < len(strict(points)) <= 3
    assert (strict(points).scores >= np.float32(threshold)).all()
    assert strict.network is detector.network
    assert same(detector(points), everything)  # the first detector is as before
    assert len(detector.with_score_threshold(1.0)(points)) == 0
    with pytest.raises(ConfigError, match="score_threshold"):
        detector.with_score_threshold(1.5)


def test_thresholds_by_class(detector: Detector, street: Street) -> None:
    points = street(0).points
    with torch.no_grad():
        weight, bias = detector.network.head.heat.weight, detector.network.head.heat.bias
        assert bias is not None
        # As many pedestrians as cars.
        weight[1], bias[1] = weight[0], bias[0]
    everything = detector(points)
    cars = np.array([label == "Car" for label in everything.labels])
    assert 2 < cars.sum() < len(cars)
    threshold = float(np.sort(everything.scores[cars])[-2])
    some = detector.with_score_threshold({"Car": threshold})
    kept = ~cars | (everything.scores >= np.float32(threshold))
    found = some(points)
    np.testing.assert_array_equal(found.boxes, everything.boxes[kept])
    np.testing.assert_array_equal(found.scores, everything.scores[kept])
    assert found.labels.count("Car") == 2
    assert same(some.reporting_everything()(points), everything)
    assert same(some.with_score_threshold(0.0)(points), everything)
    with pytest.raises(ConfigError, match="report_thresholds"):
        detector.with_score_threshold({"Tram": 0.5})
    with pytest.raises(ConfigError, match="report_thresholds of Car"):
        detector.with_score_threshold({"Car": 1.5})


def test_footprints_take_the_place_of_lengths_and_widths(detector: Detector, street: Street) -> None:
    points = street(1).points
    wanted = detector(points)
    network = copy.deepcopy(detector.network)
    nms = replace(detector.config.nms, footprints_m={wanted.labels[0]: (0.8, 0.6)})
    network.config = replace(detector.config, nms=nms)
    found = Detector(network)(points)
    expected = wanted.boxes.copy()
    expected[np.array(wanted.labels) == wanted.labels[0], 3:5] = 0.8, 0.6
    assert np.array_equal(found.boxes, expected)
    assert not np.array_equal(found.boxes, wanted.boxes)
    assert np.array_equal(found.scores, wanted.scores)


def test_shipped_weights_name_thresholds_for_all_their_classes() -> None:
    for name in shipped_weights():
        config = load_weights(name).config
        assert config.nms.score_threshold == 0.1  # what evaluation looks at
        assert set(config.nms.report_thresholds) == set(config.head.classes)


@pytest.fixture(params=["float32", "bfloat16"])
def planned(request: pytest.FixtureRequest, tiny_network: Network) -> Detector:
    """As ``detector``, in each precision that a CPU has."""
    if request.param == "bfloat16" and not has_bfloat16():
        pytest.skip("this CPU has no products of bfloat16")
    torch.nn.init.zeros_(tiny_network.head.heat.bias)
    return Detector(tiny_network, precision=request.param).with_score_threshold(0.0)


@pytest.fixture
def sizes(street: Street) -> list[FloatArray]:
    """A street, and parts of it down to a single point."""
    points = street(0).points
    chosen = np.random.default_rng(0).permutation(len(points))
    return [points, *(points[chosen[:count]] for count in (1, 5, 7, 10, 13, 50, 150, 400))]


def test_the_number_of_threads_changes_no_bit(
    planned: Detector, sizes: list[FloatArray], threads: Callable[[int], None]
) -> None:
    threads(1)
    alone = [planned(points) for points in sizes]
    assert min(map(len, alone)) > 0
    for count in (2, 3, 5):
        threads(count)
        assert all(same(planned(points), found) for points, found in zip(sizes, alone, strict=True))


def test_a_batch_changes_no_bit(
    planned: Detector, sizes: list[FloatArray], threads: Callable[[int], None]
) -> None:
    for count in (1, 2, 3):
        threads(count)
        alone = [planned(points) for points in sizes]
        together = planned.detect_batch(sizes)
        assert all(same(*pair) for pair in zip(alone, together, strict=True))
        assert torch.get_num_threads() == count


def test_the_densest_frames_of_a_batch_start_first(
    detector: Detector, sizes: list[FloatArray], threads: Callable[[int], None]
) -> None:
    threads(2)
    grid = detector.config.pillars.grid
    scans = [sizes[4], sizes[0], sizes[8], sizes[1], sizes[1] + 1e6, sizes[8]]
    assert densest_first([torch.from_numpy(scan) for scan in scans], grid) == [1, 2, 5, 0, 3, 4]
    crowded = np.concatenate([np.repeat(sizes[8][:1], 9000, 0), sizes[8]])
    # Many points of one pillar are no more pillars.
    assert densest_first([torch.from_numpy(scan) for scan in (sizes[8], crowded)], grid) == [0, 1]
    started, run = [], detector._eager._run

    def running(clouds: Sequence[torch.Tensor]) -> list[FrameResult]:
        started.append(len(clouds[0]))
        return run(clouds)

    detector._eager._run = running  # type: ignore[method-assign, assignment]
    found = detector.detect_batch(scans)
    assert started.index(len(sizes[0])) < 2
    assert sorted(started[-2:]) == [1, 1]
    assert all(same(together, detector(scan)) for together, scan in zip(found, scans, strict=True))


def test_autocast_holds_in_a_batch(
    detector: Detector, sizes: list[FloatArray], threads: Callable[[int], None]
) -> None:
    threads(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.warns(PrecisionWarning, match="precision='bfloat16' or precision='int8'") as caught:
            rounded = detector(sizes[0])
        assert caught[0].filename == __file__
        # It warns once.
        assert same(detector.detect_batch(sizes[:2])[0], rounded)
        assert same(detector.with_score_threshold(0.0).detect_batch(sizes[:2])[0], rounded)
    assert not same(detector(sizes[0]), rounded)


@pytest.mark.parametrize(("iou_weight", "expected"), [(0.0, 0.25), (0.5, 0.3), (1.0, 0.36)])
def test_scores_join_heat_and_fit(
    tiny_network: Network, street: Street, iou_weight: float, expected: float
) -> None:
    heat, last = tiny_network.head.heat, tiny_network.refinements[-1].out
    with torch.no_grad():
        heat.weight.zero_()
        heat.bias.fill_(float(np.log(0.25 / 0.75)))
        last.weight[7].zero_()
        last.bias[7] = float(np.log(0.36 / 0.64))
    head = replace(tiny_network.config.head, iou_weight=iou_weight)
    tiny_network.config = replace(tiny_network.config, head=head)
    scores = Detector(tiny_network)(street(0).points).scores
    assert len(scores) > 0
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 4), (1, 4)])
def test_hardly_any_points(detector: Detector, shape: tuple[int, int]) -> None:
    found = detector(np.full(shape, 0.5, np.float32))
    assert found.boxes.shape[1] == 7
    assert np.isfinite(found.boxes).all()
    if shape[0] == 0:
        assert len(found) == 0
        assert found.to_dict()["boxes"] == []


def test_points_out_of_range_are_an_empty_cloud(detector: Detector) -> None:
    assert len(detector(np.full((50, 4), 1e6, np.float32))) == 0


def test_nan_and_infinite_points_are_left_out_and_reported(detector: Detector, street: Street) -> None:
    points = street(0).points
    bad = points[:4].copy()
    bad[[0, 1, 2, 3], [0, 1, 2, 3]] = [np.nan, np.inf, -np.inf, np.nan]
    found = detector(np.concatenate([bad, points]))
    assert same(found, detector(points))
    assert found.warnings[0] == "4 points with NaN or infinite values left out"
    only_bad = detector(bad)
    assert len(only_bad) == 0
    assert only_bad.warnings


@pytest.mark.parametrize(
    "points",
    [np.zeros((5, 2), np.float32), np.zeros((5, 6), np.float32), np.zeros(4, np.float32), torch.zeros(5, 6)],
)
def test_wrong_columns(detector: Detector, points: Any) -> None:
    with pytest.raises(ValueError, match=r"\(N, 4\).*got") as caught:
        detector(points)
    assert ("points[:, :4]" in str(caught.value)) == (points.ndim == 2 and points.shape[1] > 4)


@pytest.mark.parametrize("convert", [np.array, torch.from_numpy, lambda points: points.astype(np.float64)])
def test_points_without_intensity_are_taken_as_in_files(
    detector: Detector, street: Street, convert: Callable[[FloatArray], Any]
) -> None:
    points = street(0).points.copy()
    points[:, 3] = 0
    found = detector(convert(points[:, :3].copy()))
    assert same(found, detector(points))
    assert found.warnings[0].startswith("intensity is zero or missing")


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((3, 4), complex),
        np.full((3, 4), "1"),
        np.zeros((3, 4), bool),
        torch.zeros(3, 4, dtype=torch.cfloat),
    ],
)
def test_numbers_that_are_not_real(detector: Detector, points: Any) -> None:
    with pytest.raises(TypeError, match="float or integer numbers"):
        detector(points)


@pytest.mark.parametrize("points", [[[1.0, 2.0, 3.0, 0.5]], b"scan.bin", None])
def test_wrong_type(detector: Detector, points: Any) -> None:
    with pytest.raises(TypeError, match=type(points).__name__):
        detector(points)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_without_cuda(tiny_network: Network) -> None:
    with pytest.raises(ValueError, match="device='cpu'"):
        Detector(tiny_network, device="cuda")
    with pytest.raises(ValueError, match="no device 'gpu'"):
        Detector(tiny_network, device="gpu")


def test_order_of_points_does_not_matter(detector: Detector, street: Street) -> None:
    points = np.concatenate([street(0).points, street(0).points[:100]])  # duplicates too
    shuffled = np.random.default_rng(0).permutation(points)
    assert not np.array_equal(points, shuffled)
    assert same(detector(points), detector(shuffled))


def read_only(points: FloatArray) -> FloatArray:
    copy = points.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize(
    "convert",
    [
        lambda points: points.astype(np.float64),
        torch.from_numpy,
        lambda points: torch.from_numpy(points).double(),
        lambda points: torch.from_numpy(points).requires_grad_(),
        PointCloud,
        np.asfortranarray,
        read_only,
        lambda points: points.astype(">f4"),
        lambda points: np.repeat(points, 2, axis=0)[::2],
        lambda points: np.hstack([points, points])[:, :4],
        lambda points: torch.from_numpy(np.hstack([points, points]))[:, :4],
    ],
    ids=[
        "float64",
        "tensor",
        "double tensor",
        "gradient",
        "PointCloud",
        "fortran",
        "read-only",
        "big-endian",
        "every second row",
        "columns of a wider array",
        "columns of a wider tensor",
    ],
)
def test_kinds_of_input(detector: Detector, street: Street, convert: Callable[[FloatArray], Any]) -> None:
    points = street(0).points
    assert same(detector(convert(points.copy())), detector(points))


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.int8, np.uint16, torch.bfloat16, torch.int64])
def test_coarse_numbers(detector: Detector, street: Street, dtype: Any) -> None:
    points = np.abs(street(0).points.round())
    given = torch.from_numpy(points).to(dtype) if isinstance(dtype, torch.dtype) else points.astype(dtype)
    assert same(detector(given), detector(points))


def test_numbers_beyond_float32_are_infinite(detector: Detector, street: Street) -> None:
    points = np.concatenate([street(0).points.astype(np.float64), [[1e300, 0, 0, 0.5], [0, -1e39, 0, 0.5]]])
    found = detector(points)
    assert same(found, detector(street(0).points))
    assert found.warnings[0] == "2 points with NaN or infinite values left out"
    large = np.full((5, 4), np.finfo(np.float32).max)
    assert len(detector(np.concatenate([large, -large]))) == 0


def test_the_input_is_left_alone(detector: Detector, street: Street) -> None:
    points = street(0).points
    before = points.copy()
    detector(points)
    assert np.array_equal(points, before)


def test_time_and_source_are_copied(detector: Detector, street: Street) -> None:
    cloud = PointCloud(street(0).points, timestamp_ns=17, source="lidar top")
    assert (detector(cloud).timestamp_ns, detector(cloud).source) == (17, "lidar top")
    empty = detector(replace(cloud, points=np.zeros((0, 4), np.float32)))
    assert (empty.timestamp_ns, empty.source) == (17, "lidar top")


def test_batch_equals_single_calls(detector: Detector, street: Street) -> None:
    clouds = [street(0).points, np.zeros((0, 4), np.float32), street(1).points[::5], street(2).points]
    found = detector.detect_batch(clouds)
    assert [len(result) > 0 for result in found] == [True, False, True, True]
    for together, cloud in zip(found, clouds, strict=True):
        assert_close(together, detector(cloud))
    assert detector.detect_batch([]) == []


def test_overflow_is_reported_with_the_frame_it_happened_in(
    tiny_config: DetectorConfig, street: Street
) -> None:
    small = replace(tiny_config, pillars=replace(tiny_config.pillars, max_pillars=300))
    detector = Detector(Network(small).eval())
    with pytest.warns(CapacityWarning, match="pillars left out"):
        crowded, sparse = detector.detect_batch([street(0).points, street(1).points[:100]])
    assert len(crowded.warnings) == 1
    assert "max_pillars" in crowded.warnings[0]
    assert sparse.warnings == ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert detector(street(0).points).warnings == crowded.warnings


def test_stage_times_are_reported(detector: Detector, street: Street) -> None:
    laps = detector.profile(street(0).points, repeats=2)
    refinements = [f"refine {step}" for step in range(1, len(detector.network.refinements) + 1)]
    stages = ["pillars", "encoder", "backbone", "neck", "head", "proposals", *refinements, "NMS"]
    assert list(laps) == stages
    assert all(elapsed_ms >= 0 for elapsed_ms in laps.values())


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_every_configuration_runs(
    tiny_config: DetectorConfig, street: Street, kind: str, enabled: bool
) -> None:
    config = replace(
        tiny_config,
        backbone=replace(tiny_config.backbone, kind=kind),
        refine=replace(tiny_config.refine, enabled=enabled),
    )
    found = Detector(make_network(config)).with_score_threshold(0.0)(street(0).points)
    assert len(found) > 0


def test_from_pretrained_reads_a_file(tiny_weights: Path, street: Street) -> None:
    detector = Detector.from_pretrained(tiny_weights)
    assert detector.config.name == "tiny"
    assert detector.device.type == "cpu"
    assert same(detector(street(0).points), Detector.from_pretrained(str(tiny_weights))(street(0).points))


def test_a_list_of_scans_gives_a_list(detector: Detector, street: Street) -> None:
    scans = [street(0).points, street(1).points[:500]]
    for given in (scans, tuple(scans)):
        first, second = detector(given)
        assert same(first, detector(scans[0]))
        assert same(second, detector(scans[1]))
    assert detector([]) == []


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_a_fifth_column_is_dropped_with_a_warning(
    detector: Detector, street: Street, kind: Callable[[FloatArray], Any]
) -> None:
    points = street(0).points
    rings = np.arange(len(points), dtype=np.float32) % 64
    with pytest.warns(ScanWarning, match="ring"):
        found = detector(kind(np.column_stack([points, rings])))
    assert same(found, detector(points))
    assert any("fifth column" in text for text in found.warnings)


def test_paths_of_scans(detector: Detector, street: Street, tmp_path: Path) -> None:
    path = tmp_path / "scan.bin"
    street(0).points.astype("<f4").tofile(path)
    expected = detector(street(0).points)
    for given in (path, str(path)):
        found = detector(given)
        assert same(found, expected)
        assert found.source == str(path)
    assert [found.source for found in detector.detect_batch([path, street(0).points])] == [str(path), None]
    assert [same(found, expected) for found in detector.stream([path, str(path)])] == [True, True]
    with pytest.raises(DataError, match=r"none\.bin: "):
        detector("none.bin")
