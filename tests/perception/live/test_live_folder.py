"""A folder that grows: scans are taken whole, once, in order, however they are written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.errors import DataError
from perception.live import Arrival, GrowingFolder

Points = Callable[[int], np.ndarray]


def test_scans_are_taken_when_whole(tmp_path: Path, points: Points, listening: Any) -> None:
    np.save(tmp_path / "before.npy", points(0))
    with listening(GrowingFolder(tmp_path, settle_s=0.2)) as heard:
        time.sleep(0.1)
        whole = points(1).tobytes()
        with (tmp_path / "000001.bin").open("wb") as file:
            for part in (whole[:320], whole[320:]):
                file.write(part)
                file.flush()
                time.sleep(0.1)
        (one,) = heard.until(1)
        assert one.name == "000001"
        assert np.array_equal(one.cloud.points, points(1))
        assert abs(one.cloud.timestamp_ns - time.time_ns()) < 60e9
        # Renamed when whole: taken at once, though it changed a moment ago.
        (tmp_path / "000002.bin.tmp").write_bytes(points(2).tobytes())
        time.sleep(0.06)
        os.rename(tmp_path / "000002.bin.tmp", tmp_path / "000002.bin")
        renamed_s = time.monotonic()
        two = heard.until(2)[1]
        assert two.arrived_s - renamed_s < 0.15
        assert [one.name for one in heard.came] == ["000001", "000002"]
        assert [one.position for one in heard.came] == [0, 1]


def test_names_tell_times_and_damaged_scans_are_told(tmp_path: Path, points: Points, listening: Any) -> None:
    with listening(GrowingFolder(tmp_path, settle_s=0.0)) as heard:
        time.sleep(0.05)
        (tmp_path / "damaged.npy").write_bytes(b"no array")
        (tmp_path / "notes.md").write_text("no scan")
        (bad,) = heard.until(1)
        assert isinstance(bad, DataError)
        assert "damaged.npy" in str(bad)
        np.save(tmp_path / "1305031102.175304.npy", points(3))
        good = heard.until(2)[1]
        assert isinstance(good, Arrival)
        assert good.cloud.timestamp_ns == 1305031102_175304000


def test_no_more_names_are_held_than_the_folder_has(tmp_path: Path, points: Points, listening: Any) -> None:
    source = GrowingFolder(tmp_path, settle_s=0.0, existing=True)
    with listening(source) as heard:
        for number in range(5):
            np.save(tmp_path / f"{number}.npy", points(number))
            heard.until(number + 1)
            (tmp_path / f"{number}.npy").unlink()
        np.save(tmp_path / "last.npy", points(9))
        heard.until(6)
        assert source._taken == {"last.npy"}


def test_a_folder_that_vanishes_is_an_error_and_can_be_opened_again(
    tmp_path: Path, points: Points, listening: Any
) -> None:
    folder = tmp_path / "scans"
    with pytest.raises(DataError, match=r"scans: no such folder; make it"):
        GrowingFolder(folder)
    folder.mkdir()
    source = GrowingFolder(folder, settle_s=0.0)
    with listening(source) as heard:
        time.sleep(0.05)
        folder.rmdir()
        assert isinstance(heard.until(1)[0], FileNotFoundError)
    folder.mkdir()
    with listening(source) as heard:
        np.save(folder / "a.npy", points(0))
        assert heard.until(1)[0].name == "a"
