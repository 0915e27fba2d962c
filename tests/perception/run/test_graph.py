"""Whole frames with fixed shapes: the boxes of the detector, growth, overflow, batches."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from perception import Detector
from perception.config import DetectorConfig, PillarConfig
from perception.data.sample import sample_frames
from perception.model.layers import DenseUnit
from perception.model.network import Network
from perception.registry import graph_steps, make_network
from perception.run.fixed import SparseSteps
from perception.run.graph import FrameRunner
from perception.run.results import FrameResult
from perception.run.stream import stream_frames
from perception.run.warm import WarmKeeper
from perception.stages.report import ReportRules, fixed_report
from perception.types import Detections
from sparse_core.errors import CapacityWarning

CONFIG = DetectorConfig(
    pillars=PillarConfig(range_m=(0.0, -7.68, -3.0, 15.36, 7.68, 1.0), pillar_size_m=0.32, channels=16)
)


def cloud(points: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.tensor([0.0, -7.6, -2.0, 0.0]), torch.tensor([15.3, 7.6, 0.5, 1.0])
    return torch.rand((points, 4), generator=generator) * (high - low) + low


@pytest.fixture(scope="module")
def detector() -> Detector:
    torch.manual_seed(0)
    network = Network(CONFIG)
    with torch.no_grad():
        # Untrained heat is 0.01 everywhere; this makes peaks that differ.
        network.head.heat.bias.fill_(0.0)
        network.head.heat.weight.mul_(20.0)
    return Detector(network.eval())


def runner(detector: Detector, **options: object) -> FrameRunner:
    return FrameRunner(
        detector.network,
        graph_steps(detector.network.config),
        dtype=torch.float32,
        impl="reference",
        **options,
    )  # type: ignore[arg-type]


def test_frames_give_the_detectors_boxes(detector: Detector) -> None:
    clouds = [cloud(900, 0), cloud(0, 1), cloud(300, 2)]
    expected = [detector(one) for one in clouds]
    assert len(expected[0]) > 3
    with torch.inference_mode():
        for found in (runner(detector)(clouds), [runner(detector)([one])[0] for one in clouds]):
            for mine, theirs in zip(found, expected, strict=True):
                assert len(mine.boxes) == len(theirs)
                # Yaw may come back a full turn off, so its direction is compared.
                np.testing.assert_allclose(mine.boxes[:, :6], theirs.boxes[:, :6], rtol=0, atol=1e-4)
                np.testing.assert_allclose(np.cos(mine.boxes[:, 6]), np.cos(theirs.boxes[:, 6]), atol=1e-3)
                np.testing.assert_allclose(mine.scores, theirs.scores, rtol=0, atol=1e-5)
    assert len(found[1].boxes) == 0
    assert found[1].pillars == 0


def test_a_graph_reports_the_limits_that_its_frames_reach(detector: Detector) -> None:
    clouds = [cloud(900, 0), cloud(0, 1)]
    few, more = detector.with_limits(0.1).config, detector.with_limits(100).config
    assert runner(detector, config=few)(clouds)[0].counts[:2] == few.limits[:2]
    assert runner(detector, config=more)(clouds)[0].counts[:2] == (0, 0)


def test_what_a_frame_is_reported_by_is_held(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[ReportRules] = []

    def noted(*parts: object, impl: str) -> Tensor:
        rules = parts[6]
        assert isinstance(rules, ReportRules)
        given.append(rules)
        return fixed_report(*parts, impl=impl)  # type: ignore[arg-type]

    monkeypatch.setattr("perception.run.graph.fixed_report", noted)
    graph = runner(detector).graph_for([cloud(100, 0)])
    assert given
    assert all(rules.table is graph.rules.table for rules in given)


def test_many_frames_go_in_batches(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perception.run.graph._LARGEST_BATCH", 2)
    clouds = [cloud(200 + 50 * seed, seed) for seed in range(5)]
    expected = [detector(one) for one in clouds]
    monkeypatch.setattr(detector, "_graphs", runner(detector))
    assert detector.fast
    found = detector.detect_batch(clouds)
    assert set(detector._graphs._graphs) == {1, 2}  # type: ignore[union-attr]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.boxes[:, :6], theirs.boxes[:, :6], rtol=0, atol=1e-4)
        assert mine.labels == theirs.labels
    # More points than a graph is good for go without one.
    monkeypatch.setattr("perception.detector._MOST_POINTS_IN_A_GRAPH", 100)
    np.testing.assert_array_equal(detector(clouds[0]).boxes, expected[0].boxes)


def test_later_batch_sizes_capture_no_graph(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU the first batch of another size waited seconds for its capture."""
    clouds = [cloud(100 + 50 * seed, seed) for seed in range(8)]
    expected = [detector(one) for one in clouds]
    graphs = runner(detector)
    monkeypatch.setattr(detector, "_graphs", graphs)

    def check(count: int, sizes: list[int]) -> None:
        assert graphs.split(count) == sizes
        found = detector.detect_batch(clouds[:count])
        assert [one.labels for one in found] == [one.labels for one in expected[:count]]
        for mine, theirs in zip(found, expected[:count], strict=True):
            np.testing.assert_allclose(mine.boxes[:, :6], theirs.boxes[:, :6], rtol=0, atol=1e-4)

    detector(clouds[0])
    check(3, [1, 1, 1])
    assert set(graphs._graphs) == {1}
    detector.warmup(clouds[0], frames=4)
    assert set(graphs._graphs) == {1, 4}
    check(3, [3])
    check(2, [1, 1])
    check(7, [4, 3])
    assert set(graphs._graphs) == {1, 4}


def test_the_first_batch_decides_the_size_of_a_graph(detector: Detector) -> None:
    graphs = runner(detector)
    assert graphs.split(3) == [3]
    assert graphs.split(18) == [8, 8, 1, 1]
    assert graphs.split(0) == []


def test_scans_are_checked_while_the_device_computes(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    graphs, watch = runner(detector), detector.watch
    points, check = cloud(300, 0), watch.check
    monkeypatch.setattr(detector, "_graphs", graphs)
    detector(points)
    graph = graphs.graph_for([points])
    replay, layout = graph.replay, graph.layout
    monkeypatch.setattr(graph, "replay", lambda: (order.append("replay"), replay()))
    monkeypatch.setattr(watch, "check", lambda scan: (order.append("check"), check(scan))[1])

    class Layout:
        def views(self, words: object) -> object:
            order.append("read")
            return layout.views(words)  # type: ignore[arg-type]

    monkeypatch.setattr(graph, "layout", Layout())
    detector(points)
    assert order == ["replay", "check", "read"]


def test_empty_frames_between_calls_change_nothing(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, points = runner(detector), cloud(300, 0)
    monkeypatch.setattr(detector, "_graphs", graphs)
    assert not graphs.rehearse()
    expected = detector(points)
    done, enough = threading.Event(), 3
    rehearsed: list[bool] = []
    rehearse = graphs.rehearse

    def counted() -> None:
        rehearsed.append(rehearse())
        if rehearsed.count(True) >= enough:
            done.set()

    monkeypatch.setattr(graphs, "rehearse", counted)
    with detector.keep_warm(interval_s=1e-3):
        assert done.wait(60)
        found = detector(points)
    np.testing.assert_array_equal(found.boxes, expected.boxes)
    assert not any(thread.name == "keep-warm" for thread in threading.enumerate())


def test_no_empty_frame_runs_during_a_call_or_a_stream(detector: Detector) -> None:
    graphs, points = runner(detector), cloud(300, 0)
    graphs.frames([points])
    during: list[bool] = []
    graphs.frames([points], lambda: during.append(graphs.rehearse()))
    with graphs.streaming():
        during.append(graphs.rehearse())
    assert during == [False, False]
    assert graphs.rehearse()


def test_keeping_warm_needs_graphs(detector: Detector) -> None:
    with pytest.raises(ValueError, match="keep_warm needs CUDA graphs"):
        detector.keep_warm()
    with pytest.raises(ValueError, match="interval_s must be positive"):
        WarmKeeper(int, 0.0)


def test_bad_points_are_left_out_and_counted(detector: Detector) -> None:
    broken = cloud(500, 3)
    broken[::50, 1] = torch.nan
    broken[7] = torch.inf
    with torch.inference_mode():
        found = runner(detector)([broken])[0]
    assert found.invalid == 11
    expected = detector(broken)
    assert len(found.boxes) == len(expected)


@pytest.mark.slow
def test_a_frame_that_does_not_fit_grows_the_room(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perception.run.room._LEAST_PILLARS", 64)
    many = cloud(900, 4)
    with torch.inference_mode():
        growing = runner(detector)
        small = growing([cloud(20, 5)])
        before = growing.graph_for([many]).room.capacities
        found = growing([many])[0]
        after = growing.graph_for([many]).room.capacities
        alone = runner(detector)([many])[0]
    assert small[0].overflow == found.overflow == 0
    assert before == (64, 64, 64)
    assert after[0] > found.pillars > 64
    torch.testing.assert_close(found.boxes, alone.boxes, rtol=0, atol=0)


def test_overflow_is_told(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perception.run.room._LEAST_PILLARS", 64)
    with torch.inference_mode(), pytest.warns(CapacityWarning, match="the CUDA graph is too small"):
        found = runner(detector, overflow="warn")([cloud(900, 4)])[0]
    assert found.overflow > 100
    assert found.pillars > 64
    with pytest.raises(ValueError, match="overflow must be"):
        runner(detector, overflow="ignore")


def test_order_of_points_does_not_matter(detector: Detector) -> None:
    points = cloud(700, 6)
    shuffled = points[torch.randperm(700, generator=torch.Generator().manual_seed(0))]
    with torch.inference_mode():
        first, second = (runner(detector)([one])[0] for one in (points, shuffled))
    assert np.array_equal(first.boxes, second.boxes)
    assert np.array_equal(first.scores, second.scores)


def test_stages_are_timed(detector: Detector) -> None:
    times = runner(detector).profile([cloud(200, 7)], repeats=2)
    assert list(times) == [
        "pillars", "encoder", "backbone 1/1", "backbone 1/2", "backbone 1/4", "neck", "head", "proposals",
        "refine 1", "NMS",
    ]  # fmt: skip
    assert all(value > 0 for value in times.values())


def test_other_thresholds_share_the_network(detector: Detector) -> None:
    points = cloud(900, 0)
    strict = detector.with_score_threshold(0.6)
    with torch.inference_mode():
        found = runner(detector).with_config(strict.config)([points])[0]
    assert len(found.boxes) == len(strict(points)) < len(detector(points))


def test_only_dilating_sparse_networks(detector: Detector) -> None:
    dense = make_network(replace(CONFIG, backbone=replace(CONFIG.backbone, kind="dense"))).eval().fold()
    with pytest.raises(ValueError, match="sparse backbone"):
        SparseSteps(dense, batch_size=1, capacities=(9, 9, 9))
    with pytest.raises(ValueError, match="3 entries"):
        SparseSteps(detector.network, batch_size=1, capacities=(9,))
    with pytest.raises(ValueError, match="fast=True needs CUDA graphs, but the device is cpu"):
        Detector(Network(CONFIG).eval(), fast=True)
    with pytest.raises(ValueError, match="precision must be"):
        Detector(Network(CONFIG).eval(), precision="float8")  # type: ignore[arg-type]


def test_dense_frames_give_the_detectors_boxes() -> None:
    torch.manual_seed(0)
    network = make_network(replace(CONFIG, backbone=replace(CONFIG.backbone, kind="dense"))).eval()
    with torch.no_grad():
        network.head.heat.bias.fill_(0.0)
        network.head.heat.weight.mul_(20.0)
    dense = Detector(network)
    clouds = [cloud(900, 0), cloud(0, 1), cloud(300, 2)]
    for found, wanted in zip(runner(dense)(clouds), map(dense, clouds), strict=True):
        assert len(found.boxes) == len(wanted)
        np.testing.assert_allclose(found.boxes[:, :6], wanted.boxes[:, :6], rtol=0, atol=1e-4)
        np.testing.assert_allclose(found.scores, wanted.scores, rtol=0, atol=1e-5)


@pytest.mark.gpu
def test_dense_weights_run_as_graphs_on_a_gpu(cuda: torch.device) -> None:
    """Their users wait for no more than the convolutions, which cuDNN fuses with what follows them."""
    pytest.importorskip("triton")
    name = "pointpillars-kitti-dense"
    fast, plain = (Detector.from_pretrained(name, cuda, fast=fast) for fast in (None, False))
    assert fast.fast
    assert not plain.fast
    scan = sample_frames()[0].cloud
    found, wanted = fast(scan), plain(scan)
    strong = wanted.scores > 0.6
    assert strong.any()
    distances = np.abs(found.boxes[:, None, :2] - wanted.boxes[None, strong, :2]).max(2).min(0)
    assert (distances < 0.1).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("stride", "kernel", "skip"), [(1, 3, False), (1, 3, True), (2, 3, False), (1, 1, False)]
)
def test_fused_convolutions_of_a_dense_unit(
    cuda: torch.device, dtype: torch.dtype, stride: int, kernel: int, skip: bool
) -> None:
    torch.manual_seed(0)
    unit = DenseUnit(16, 16, stride=stride, kernel_size=kernel).eval()
    unit.fold()
    unit = unit.to(cuda, dtype).to(memory_format=torch.channels_last)
    image = torch.randn(2, 16, 19, 23, device=cuda, dtype=dtype).to(memory_format=torch.channels_last)
    added = image if skip else None
    with torch.no_grad():
        assert unit._fuses(image)
        found = unit(image, added)
    wanted = unit.double()(image.double(), None if added is None else added.double())
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-2)


def test_stream_on_a_cpu_is_one_by_one(detector: Detector) -> None:
    clouds = [cloud(300, seed) for seed in range(3)]
    detector.warmup(clouds[0])
    assert not detector.fast
    streamed = list(detector.stream(iter(clouds)))
    for found, one in zip(streamed, clouds, strict=True):
        np.testing.assert_array_equal(found.boxes, detector(one).boxes)
    assert set(detector.profile(clouds[0], repeats=2)) >= {"pillars", "backbone", "NMS"}


@pytest.mark.gpu
def test_graphs_on_a_gpu(cuda: torch.device) -> None:
    pytest.importorskip("triton")
    fast, plain = (Detector.from_pretrained("pointpillars-kitti", cuda, fast=fast) for fast in (True, False))
    assert fast.fast
    assert not plain.fast
    clouds = [cloud(9000, seed) * torch.tensor([3.0, 3.0, 1.0, 1.0]) for seed in range(5)]
    clouds.insert(2, torch.zeros((0, 4)))
    alone = [fast(one) for one in clouds]
    for found, streamed in zip(alone, fast.stream(iter(clouds)), strict=True):
        np.testing.assert_array_equal(found.boxes, streamed.boxes)
    for found, again in zip(alone, [fast(one[torch.randperm(len(one))]) for one in clouds], strict=True):
        np.testing.assert_array_equal(found.boxes, again.boxes)
        np.testing.assert_array_equal(found.scores, again.scores)
    assert len(alone[2]) == 0
    assert sum(fast.profile(clouds[0], repeats=3).values()) > 0


def seen_on(cuda: torch.device) -> tuple[Detector, Tensor, Detections]:
    """A detector in graphs, a scan, and what is in it."""
    pytest.importorskip("triton")
    detector = Detector.from_pretrained("pointpillars-kitti", cuda)
    scan = cloud(9000, 1) * torch.tensor([3.0, 3.0, 1.0, 1.0])
    expected = detector(scan)
    assert len(expected) > 0
    return detector, scan, expected


@pytest.mark.gpu
def test_memory_that_others_take_is_not_read(cuda: torch.device) -> None:
    """A graph has addresses only: what it reads must be held as long as it is replayed."""
    detector, scan, expected = seen_on(cuda)
    taken = [torch.full((size,), 7.0, device=cuda) for size in (16, 128, 1024, 2**16) for _ in range(500)]
    found = [detector(scan)]
    detector.warmup(scan, frames=3)  # A graph of its own, and rules of its own.
    detector.detect_batch([scan] * 3)
    found.append(detector(scan))
    for one in found:
        np.testing.assert_array_equal(one.boxes, expected.boxes)
        np.testing.assert_array_equal(one.scores, expected.scores)
    assert all(bool((one == 7.0).all()) for one in taken)


@pytest.mark.gpu
def test_batches_share_graphs_on_a_gpu(cuda: torch.device) -> None:
    detector, scan, expected = seen_on(cuda)
    scans = [scan, scan[:0], *[scan] * 3]
    assert set(detector._graphs._graphs) == {1}  # type: ignore[union-attr]
    alone = detector.detect_batch(scans)
    assert set(detector._graphs._graphs) == {1}  # type: ignore[union-attr]
    detector.warmup(scan, frames=8)
    together = detector.detect_batch(scans)
    assert set(detector._graphs._graphs) == {1, 8}  # type: ignore[union-attr]
    for place, found in enumerate(alone):
        assert len(found) == len(together[place]) == (0 if place == 1 else len(expected))
        np.testing.assert_array_equal(found.boxes, expected.boxes[: len(found)])
        np.testing.assert_allclose(together[place].boxes[:, :3], found.boxes[:, :3], rtol=0, atol=0.05)


@pytest.mark.gpu
def test_empty_frames_change_nothing_on_a_gpu(cuda: torch.device) -> None:
    detector, scan, expected = seen_on(cuda)
    rehearsed: list[bool] = []
    rehearse = detector._graphs.rehearse  # type: ignore[union-attr]
    detector._graphs.rehearse = lambda: rehearsed.append(rehearse())  # type: ignore
    with detector.keep_warm(interval_s=2e-4):
        calls = 0
        while rehearsed.count(True) < 20 or calls < 200:
            found = detector(scan)
            np.testing.assert_array_equal(found.boxes, expected.boxes)
            calls += 1
            if calls % 10 == 0:
                for streamed in detector.stream([scan] * 3):
                    np.testing.assert_array_equal(streamed.boxes, expected.boxes)
                time.sleep(1e-3)


@pytest.mark.gpu
def test_a_stream_on_a_busy_gpu(cuda: torch.device) -> None:
    """Its buffers are made behind what the device has to do, and scans are copied beside that."""
    detector, scan, expected = seen_on(cuda)
    torch.cuda._sleep(400_000_000)
    for found in detector.stream([scan] * 4):
        np.testing.assert_array_equal(found.boxes, expected.boxes)
        np.testing.assert_array_equal(found.scores, expected.scores)


@pytest.mark.gpu
def test_plain_torch_on_a_gpu(cuda: torch.device) -> None:
    """No graph: frames, batches, streams and stages give what a CPU gives, to rounding."""
    clouds = [cloud(900, 0), cloud(300, 2), cloud(700, 4)]
    found: dict[str, list[FrameResult]] = {}
    for device in ("cpu", str(cuda)):
        torch.manual_seed(0)
        network = Network(CONFIG).eval()
        with torch.no_grad():
            network.head.heat.bias.fill_(0.0)
            network.head.heat.weight.mul_(20.0)
        made = runner(Detector(network, device=device, fast=False))
        found[device] = made(clouds)
        if device != "cpu":
            found["alone"] = [made([one])[0] for one in clouds]
            found["stream"] = list(stream_frames(made, iter(clouds)))
            assert sum(made.profile(clouds, repeats=2).values()) > 0
    expected = found.pop("cpu")
    assert len(found) == 3
    assert len(expected[0].boxes) > 3
    for results in found.values():
        for mine, theirs in zip(results, expected, strict=True):
            assert mine.labels.tolist() == theirs.labels.tolist()
            torch.testing.assert_close(mine.boxes[:, :6], theirs.boxes[:, :6], rtol=0, atol=1e-3)
            torch.testing.assert_close(mine.scores, theirs.scores, rtol=0, atol=1e-4)
