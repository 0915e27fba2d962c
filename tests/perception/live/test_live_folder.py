"""A folder that grows: scans are taken whole, once, in order, however they are written."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.errors import DataError
from perception.live import Arrival, GrowingFolder

Points = Callable[[int], np.ndarray]


class Between(threading.Event):
    """The ``stop`` of a source that does a step between two looks, and is set after the last."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        self._steps.pop(0)()
        if not self._steps:
            self.set()
        return self.is_set()


def put(folder: Path, name: str, points: np.ndarray) -> None:
    """Write a scan elsewhere and move it, so that nobody sees a part of it."""
    np.save(folder.parent / name, points)
    os.replace(folder.parent / name, folder / name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty one."""
    made = tmp_path / "scans"
    made.mkdir()
    return made


def nothing() -> None:
    """Do nothing between two looks."""


def test_scans_are_taken_when_whole(folder: Path, points: Points) -> None:
    np.save(folder / "before.npy", points(0))
    # Whatever this test writes has changed a moment ago, if it does not say otherwise.
    source = GrowingFolder(folder, settle_s=3600.0)
    whole, path = points(1).tobytes(), folder / "000001.bin"
    looks: list[int] = []

    def settled() -> None:
        path.write_bytes(whole)
        os.utime(path, ns=(0, 0))

    def look() -> None:
        looks.append(len(came))

    began_ns, came = time.time_ns(), list[Arrival | DataError]()
    stop = Between(lambda: path.write_bytes(whole[:320]), nothing, look, settled, look, look)
    for one in source.arrivals(stop):
        came.append(one)
    # A file that changes is left, and one that has changed is looked at twice.
    assert looks == [0, 0, 1]
    (one,) = came
    assert isinstance(one, Arrival)
    assert (one.name, one.position) == ("000001", 0)
    assert np.array_equal(one.cloud.points, points(1))
    assert one.cloud.timestamp_ns is not None
    assert began_ns <= one.cloud.timestamp_ns <= time.time_ns()


def test_a_scan_renamed_when_whole_is_taken_at_the_next_look(folder: Path, points: Points) -> None:
    source = GrowingFolder(folder, settle_s=3600.0)
    part, path = folder / "000002.bin.tmp", folder / "000002.bin"
    stop = Between(
        lambda: part.write_bytes(points(2).tobytes()), lambda: os.rename(part, path), nothing, nothing
    )
    (one,) = source.arrivals(stop)
    assert isinstance(one, Arrival)
    assert (one.name, one.position) == ("000002", 0)
    assert np.array_equal(one.cloud.points, points(2))


def test_a_scan_written_before_the_first_look_is_new(folder: Path, points: Points) -> None:
    np.save(folder / "before.npy", points(0))
    source = GrowingFolder(folder, settle_s=0.0)
    put(folder, "after.npy", points(1))
    (one,) = source.arrivals(Between(nothing, nothing, nothing))
    assert isinstance(one, Arrival)
    assert one.name == "after"


def test_names_tell_times_and_damaged_scans_are_told(folder: Path, points: Points, listening: Any) -> None:
    with listening(GrowingFolder(folder, settle_s=0.0)) as heard:
        (folder / "damaged.npy").write_bytes(b"no array")
        (folder / "notes.md").write_text("no scan")
        (bad,) = heard.until(1)
        assert isinstance(bad, DataError)
        assert "damaged.npy" in str(bad)
        put(folder, "1305031102.175304.npy", points(3))
        good = heard.until(2)[1]
        assert isinstance(good, Arrival)
        assert good.cloud.timestamp_ns == 1305031102_175304000


def test_no_more_names_are_held_than_the_folder_has(folder: Path, points: Points, listening: Any) -> None:
    source = GrowingFolder(folder, settle_s=0.0, existing=True)
    with listening(source) as heard:
        for number in range(5):
            put(folder, f"{number}.npy", points(number))
            heard.until(number + 1)
            (folder / f"{number}.npy").unlink()
        put(folder, "last.npy", points(9))
        heard.until(6)
        assert source._taken == {"last.npy"}


def test_a_folder_that_vanishes_is_an_error_and_can_be_opened_again(
    tmp_path: Path, points: Points, listening: Any
) -> None:
    folder = tmp_path / "scans"
    with pytest.raises(DataError, match=r"scans: no such folder"):
        GrowingFolder(folder)
    folder.mkdir()
    source = GrowingFolder(folder, settle_s=0.0)
    with listening(source) as heard:
        folder.rmdir()
        assert isinstance(heard.until(1)[0], FileNotFoundError)
    folder.mkdir()
    with listening(source) as heard:
        put(folder, "a.npy", points(0))
        assert heard.until(1)[0].name == "a"
