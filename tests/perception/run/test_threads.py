"""How many threads a frame gets where others want the cores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from perception import Detector
from perception.run.threads import SINGLE_S, SINGLE_TIMES, FrameThreads

ROOT = Path(__file__).parents[3]


class Clock:
    """What goes by, and what of it the thread runs."""

    def __init__(self) -> None:
        self.now, self.ran = 100.0, 7.0

    def frame(self, threads: FrameThreads, seconds: float, share: float) -> int:
        """The threads that a frame has that takes so long, of which this thread runs a share."""
        with threads.of_a_frame():
            found = torch.get_num_threads()
            self.now += seconds
            self.ran += share * seconds
        return found


@pytest.fixture
def several() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def made(clock: Clock, *, asleep: bool = False, soon: bool = False) -> FrameThreads:
    return FrameThreads(
        clock=lambda: clock.now, ran=lambda: clock.ran, asleep=lambda: asleep, soon=lambda: soon
    )


def test_all_threads_while_the_cores_are_free(several: int) -> None:
    clock = Clock()
    threads = made(clock)
    assert [clock.frame(threads, 0.1, 0.95) for _ in range(3)] == [several] * 3


def test_one_thread_after_a_frame_whose_core_others_had_and_all_again_later(several: int) -> None:
    clock = Clock()
    threads = made(clock)
    assert clock.frame(threads, 0.5, 0.4) == several
    until = clock.now + max(SINGLE_S, SINGLE_TIMES * 0.5)
    while clock.now < until:
        assert clock.frame(threads, 1.0, 0.4) == 1
        assert torch.get_num_threads() == several
    assert clock.frame(threads, 0.001, 0.1) == several
    until = clock.now + SINGLE_S
    assert clock.frame(threads, 0.5, 0.99) == 1
    clock.now = until
    assert clock.frame(threads, 0.1, 0.99) == several
    assert clock.frame(threads, 0.1, 0.99) == several


def test_threads_that_sleep_while_they_wait_stay(several: int) -> None:
    clock = Clock()
    threads = made(clock, asleep=True)
    assert [clock.frame(threads, 1.0, 0.1) for _ in range(3)] == [several] * 3


@pytest.mark.parametrize(("share", "then"), [(0.3, 3), (0.5, 1), (0.7, 1), (0.8, 3)])
def test_threads_that_sleep_soon_stay_among_many_programs(share: float, then: int, several: int) -> None:
    clock = Clock()
    threads = made(clock, soon=True)
    assert [clock.frame(threads, 1.0, share) for _ in range(2)] == [several, then]


def test_a_frame_that_fails_leaves_the_number_as_it_was(several: int) -> None:
    clock = Clock()
    threads = made(clock)
    clock.frame(threads, 1.0, 0.1)
    with pytest.raises(RuntimeError), threads.of_a_frame():
        raise RuntimeError
    assert torch.get_num_threads() == several


def test_detections_are_the_same_to_the_bit_whatever_the_threads(several: int) -> None:
    points = torch.rand(3000, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([60, 40, 2, 1])
    points -= torch.tensor([0.0, 20.0, 2.0, 0.0])
    detector = Detector.from_pretrained("pointpillars-kitti").with_score_threshold(0.01)
    torch.set_num_threads(1)
    one = detector(points)
    torch.set_num_threads(several)
    assert (detector(points).boxes == one.boxes).all()
    assert (detector(points).scores == one.scores).all()


@pytest.mark.parametrize(
    ("code", "environment", "expected"),
    [
        ("import perception, torch", {}, str(sys.platform != "linux")),
        ("import torch, perception", {"GOMP_SPINCOUNT": "0"}, "True"),
        ("import torch, perception", {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "9"}, "False"),
        ("import torch, perception", {}, "False"),
        ("import torch, perception", {"OMP_WAIT_POLICY": "PASSIVE"}, "True"),
        ("import perception, torch", {"OMP_WAIT_POLICY": "active"}, "False"),
    ],
)
def test_how_threads_wait_is_known(
    code: str, environment: dict[str, str], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("")
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    path = os.pathsep.join(map(str, (tmp_path, ROOT)))
    code += "; from sparse_core.waiting import waits_asleep; print(waits_asleep())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "PYTHONPATH": path, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == expected
