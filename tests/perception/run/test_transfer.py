"""Blocks that carry frames to a graph and back."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from perception import Detector
from perception.run import transfer
from perception.run.transfer import InputBlock
from sparse_core.errors import ImplementationError
from sparse_core.kernels import native


@pytest.mark.parametrize("batch_size", [1, 3, 4, 5])
def test_clouds_arrive_with_their_lengths(batch_size: int) -> None:
    block, host = (InputBlock(batch_size, 10, device=torch.device("cpu")) for _ in range(2))
    random = torch.Generator().manual_seed(batch_size)
    clouds = [torch.randn((count % 11, 4), generator=random) for count in range(4, 4 + batch_size)]
    block.send(host, clouds)
    assert block.scans.lengths.tolist() == [len(cloud) for cloud in clouds]
    assert block.scans.points.shape == (batch_size, 10, 4)
    assert block.scans.points.data_ptr() % 16 == 0
    for row, cloud in zip(block.scans.points, clouds, strict=True):
        assert torch.equal(row[: len(cloud)], cloud)


def test_a_frame_goes_from_block_to_block() -> None:
    block, staged = (InputBlock(1, 2000, device=torch.device("cpu")) for _ in range(2))
    for count in (1500, 0, 3):
        cloud = torch.rand((count, 4))
        staged.send(staged, [cloud])
        block.take(staged, count)
        assert block.scans.lengths.tolist() == [count]
        assert torch.equal(block.scans.points[0, :count], cloud)


def test_many_points_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perception.run.transfer._MANY", 100)
    block, host = (InputBlock(2, 3000, device=torch.device("cpu")) for _ in range(2))
    clouds = [torch.rand((count, 4)) for count in (2999, 101)]
    block.send(host, clouds)
    for row, cloud in zip(block.scans.points, clouds, strict=True):
        assert torch.equal(row[: len(cloud)], cloud)


def test_other_dtypes_and_strides_arrive_as_float32() -> None:
    block = InputBlock(1, 6, device=torch.device("cpu"))
    wide = torch.arange(40, dtype=torch.float64).reshape(5, 8)
    block.send(block, [wide[:, ::2]])
    assert block.scans.points[0, :5].tolist() == wide[:, ::2].tolist()


def test_memory_goes_with_the_block() -> None:
    block = InputBlock(1, 2000, device=torch.device("cpu"))
    block.send(block, [torch.rand((10, 4))])
    words = weakref.ref(block.words)
    gc.disable()
    try:
        del block
        # A larger graph's memory is asked for now: nothing may wait for the collector of cycles.
        assert words() is None
    finally:
        gc.enable()


# Copies in C++: a library that copies on the host takes the place of the driver's.

DRIVER = """
#include <cstdint>
#include <cstring>
#include <mutex>
extern "C" {
int64_t copies, last[4], failing = -1;
static std::mutex lock;
static int copied(void *to, const void *from, size_t size, void *stream)
{
    std::lock_guard<std::mutex> held(lock);
    if (copies == failing) return 7;
    std::memcpy(to, from, size);
    ++copies;
    last[0] = (int64_t)stream;
    return 0;
}
int to_device(uint64_t to, const void *from, size_t size, void *stream)
{
    return copied((void *)to, from, size, stream);
}
int to_host(void *to, uint64_t from, size_t size, void *stream)
{
    return copied(to, (void *)from, size, stream);
}
int on_device(uint64_t to, uint64_t from, size_t size, void *stream)
{
    return copied((void *)to, (void *)from, size, stream);
}
int record(void *event, void *stream) { last[1] = (int64_t)event; last[2] = (int64_t)stream; return 0; }
int wait_event(void *stream, void *event, unsigned) { last[3] = (int64_t)stream + (int64_t)event; return 0; }
int wait_stream(void *stream) { last[3] = -(int64_t)stream; return 0; }
int get_context(void **context) { *context = nullptr; return 0; }
int set_context(void *) { return 0; }
}
"""
FUNCTIONS = (
    "to_device",
    "to_host",
    "on_device",
    "record",
    "wait_event",
    "wait_stream",
    "get_context",
    "set_context",
)


class Driver:
    """Functions of the C++ file over that library."""

    def __init__(self, folder: Path) -> None:
        if not transfer._COPIES.ready():
            pytest.skip("no C++ compiler")
        found = transfer._COPIES.library()
        assert found is not None
        self.copies = found
        source = folder / "driver.cpp"
        source.write_text(DRIVER)
        self.library = native.load(source)
        addresses = (
            ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0 for name in FUNCTIONS
        )
        self.entries = native.int64_array(*addresses)
        # A library is loaded once, and keeps its numbers.
        for name, start in (("copies", 0), ("failing", -1)):
            ctypes.c_int64.in_dll(self.library, name).value = start

    def send(
        self, host: Tensor, device: Tensor, clouds: Sequence[Tensor], room: int, threads: int = 1
    ) -> int:
        first = 4 * (-(-len(clouds) // 4) * 4)
        listed = native.int64_array(*(one for cloud in clouds for one in (cloud.data_ptr(), len(cloud))))
        blocks = (host.data_ptr(), device.data_ptr(), first, room, 4 * clouds[0].shape[1])
        status: int = self.copies.send_clouds(self.entries, 5, *blocks, listed, len(clouds), threads)
        return status

    def value(self, name: str) -> int:
        return ctypes.c_int64.in_dll(self.library, name).value

    @property
    def last(self) -> list[int]:
        return list((ctypes.c_int64 * 4).in_dll(self.library, "last"))


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


@pytest.mark.parametrize(("threads", "columns"), [(1, 4), (2, 4), (2, 5)])
@pytest.mark.parametrize(
    "counts", [(17000,), (0,), (0, 5, 0), (1, 16384, 16385, 0, 30000), (400_000,), (90_000, 90_000)]
)
def test_scans_are_sent_with_their_lengths(
    driver: Driver, counts: tuple[int, ...], threads: int, columns: int
) -> None:
    room = max(counts) + 3
    words = -(-len(counts) // 4) * 4 + len(counts) * room * columns
    host, device = (torch.full((words,), float("nan")) for _ in range(2))
    clouds = [torch.rand(count, columns) for count in counts]
    assert driver.send(host, device, clouds, room, threads) == 0
    assert device[: len(counts)].view(torch.int32).tolist() == list(counts)
    points = device[-len(counts) * room * columns :].view(len(counts), room, columns)
    for row, cloud in zip(points, clouds, strict=True):
        assert torch.equal(row[: len(cloud)], cloud)
        assert row[len(cloud) :].isnan().all()
    assert driver.last[0] == 5
    # No more copies than quarters of a megabyte, and no frame of its own for the lengths.
    assert driver.value("copies") == max(
        1, sum(-(-4 * columns * count // 2**18) for count in counts) + (counts[0] == 0 < max(counts))
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_copy_that_fails_is_told(driver: Driver, threads: int) -> None:
    host, device = (torch.zeros(4 + 4 * 200_000) for _ in range(2))
    ctypes.c_int64.in_dll(driver.library, "failing").value = 4
    assert driver.send(host, device, [torch.rand(200_000, 4)], 200_000, threads) == 7
    with pytest.raises(ImplementationError, match="driver error 7"):
        transfer._done(7)
    assert transfer._done(0)
    assert not transfer._done(201)


def test_blocks_are_handed_over_and_results_fetched(driver: Driver) -> None:
    source, target = torch.rand(100), torch.zeros(100)
    addresses = (source.data_ptr(), target.data_ptr())
    assert driver.copies.hand_over(driver.entries, 3, 4, 9, *addresses, 200) == 0
    assert torch.equal(target[:50], source[:50])
    assert not target[50:].any()
    assert driver.last == [4, 9, 3, 13]
    assert driver.copies.fetch(driver.entries, 6, *addresses, 400, 8) == 0
    assert torch.equal(target, source)
    assert driver.last[:3] == [6, 8, 6]
    assert driver.copies.fetch(driver.entries, 6, *addresses, 400, 0) == 0
    assert driver.last[3] == -6


@pytest.mark.gpu
def test_torch_and_the_driver_bring_the_same_frames(
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    assert transfer._COPIES.ready()
    detector = Detector.from_pretrained("pointpillars-kitti", cuda)
    generator = torch.Generator().manual_seed(3)
    counts = (9000, 0, 40_000, 17_000, 1, 150_000)
    scale = torch.tensor([20.0, 10.0, 2.0, 1.0])
    scans = [
        (torch.rand(count, 4, generator=generator) * scale - torch.tensor([0, 5, 2, 0])).numpy()
        for count in counts
    ]

    def found() -> list[list[object]]:
        calls = [detector(scan) for scan in scans]
        several = [
            *calls,
            *detector.detect_batch(scans),
            *detector.stream(scans * 2),
            *detector.stream(iter(scans)),
        ]
        side = torch.cuda.Stream(cuda)
        with torch.cuda.stream(side):
            several += [detector(scan) for scan in scans]
        return [[one.boxes.tolist(), one.scores.tolist(), list(one.labels)] for one in several]

    found()  # Graphs grow, and others may round otherwise.
    driven = found()
    monkeypatch.setattr(transfer, "_compiled", lambda device: None)
    assert driven == found()
    monkeypatch.undo()
    # Of a stream that is left early nothing is written to memory that is given back.
    for _ in range(3):
        assert next(iter(detector.stream(scans))) is not None
    assert driven == found()
