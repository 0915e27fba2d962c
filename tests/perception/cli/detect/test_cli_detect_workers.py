"""``perceive detect --workers``: what one process finds, by several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cloud_bags import write_bag
from PIL import Image

from perception.train.data.frames import TrainingFrame

Street = Callable[[int], TrainingFrame]
Perceive = Callable[..., Any]
#: What tells when a frame was detected, and how long that took.
CLOCKS = ("detected_ns", "elapsed_ms")


def records_of(out: Path) -> list[dict[str, Any]]:
    lines = (out / "detections.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in CLOCKS} for line in lines]


@pytest.fixture
def arguments(tiny_weights: Path) -> tuple[object, ...]:
    return ("--weights", tiny_weights, "--score", 0.0, "--no-pictures")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_ends_the_run(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "street0.png").symlink_to("/dev/full")
    options = ("--weights", tiny_weights, "--workers", 1, "--start", "2026-01-01")
    done = perceive("detect", scans, "--out", out, *options)
    assert done.status == 2
    assert done.remarks == (
        f"perceive detect: Disk full while writing {out / 'street0.png'}."
        " Free space, then rerun with --resume.\n"
    )


def test_the_records_are_those_of_one_process(
    perceive: Perceive, scans: Path, street: Street, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    """Files, one of them broken, and a bag whose later scans count intensity to 255; then the rest only."""
    (scans / "street1.bin").write_bytes(b"123")
    streets = [street(seed).points.copy() for seed in range(6)]
    for points in streets[3:5]:
        points[:, 3] *= 255
    paths = (scans, write_bag(tmp_path / "bag", streets, broken=1))
    plain = perceive("detect", *paths, "--out", tmp_path / "plain", *arguments)
    several = perceive("detect", *paths, "--out", tmp_path / "several", *arguments, "--workers", 2)
    assert plain.status == several.status == 1
    expected = records_of(tmp_path / "plain")
    assert len(expected) == 7
    assert records_of(tmp_path / "several") == expected
    assert plain.remarks == several.remarks
    assert f"7 of 9 frames in {tmp_path / 'several'}\n" in several.output
    assert "street0" not in several.output
    lines = (tmp_path / "several/detections.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "several/detections.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:40])
    rest = perceive("detect", *paths, "--out", tmp_path / "several", *arguments, "--workers", 1, "--resume")
    assert rest.status == 1
    assert "2 of 4 frames" in rest.output
    assert "5 from an earlier run" in rest.output
    assert records_of(tmp_path / "several") == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", 0), "--workers must be at least 1, got 0"),
        (("--address", "localhost:1"), "--engine ray"),
        (("--workers", 2, "--profile"), "or --workers"),
        (("--engine", "local", "--budget-ms", 5), "--budget-ms"),
        (("--workers", 1, "--range", "1,2"), "--range must be 'none' or six numbers"),
    ],
)
def test_options_that_do_not_go_together(
    perceive: Perceive,
    scans: Path,
    arguments: tuple[object, ...],
    tmp_path: Path,
    options: tuple[object, ...],
    message: str,
) -> None:
    done = perceive("detect", scans, "--out", tmp_path / "out", *arguments, *options)
    assert done.status == 2
    assert message in done.remarks


def test_ray_is_asked_for_by_its_extra(
    perceive: Perceive, scans: Path, arguments: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = perceive("detect", scans, "--json", *arguments, "--engine", "ray")
    assert done.status == 2
    assert "pip install 'sparsight[ray]'" in done.remarks


def test_pictures_and_crops_are_made_by_workers(
    perceive: Perceive, kitti_folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    """The same files, and the same counts of what was cut and what not."""
    scans = [kitti_folder / f"training/velodyne/00000{number}.bin" for number in (0, 3)]
    images = tmp_path / "images"
    images.mkdir()
    noise = np.random.default_rng(0).integers(0, 255, (375, 1242, 3), np.uint8)
    Image.fromarray(noise).save(images / "000000.png")
    told = []
    for name, options in (("plain", ()), ("several", ("--workers", 2))):
        arguments = ("--weights", tiny_weights, "--score", 0.0, "--crops", "--images", images, *options)
        done = perceive("detect", *scans, "--out", tmp_path / name, *arguments)
        assert done.status == 0
        told.append(done.remarks)
    assert told[0] == told[1]
    assert "1 scan without a picture" in told[0]
    files = [
        {path.relative_to(tmp_path / name): path for path in (tmp_path / name).rglob("*.*")}
        for name in ("plain", "several")
    ]
    assert files[1].keys() == files[0].keys() > {Path("player.html")}
    assert all(
        path.read_bytes() == files[0][name].read_bytes()
        for name, path in files[1].items()
        if path.suffix in (".jpg", ".png", ".html")
    )


def test_the_page_is_that_of_one_process(
    perceive: Perceive,
    scans: Path,
    street: Street,
    tiny_weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the byte, also of a bag that counts intensity to 255 in the end, of more frames than fit, and of a
    run that goes on."""
    monkeypatch.setattr("perception.visualise.web.MAX_FRAMES", 3)
    (scans / "street1.bin").write_bytes(b"123")
    streets = [street(seed).points.copy() for seed in range(4)]
    for points in streets[2:]:
        points[:, 3] *= 255
    paths = (scans, write_bag(tmp_path / "bag", streets))
    arguments = ("--weights", tiny_weights, "--score", 0.0)
    plain = perceive("detect", *paths, "--out", tmp_path / "plain", *arguments)
    several = perceive("detect", *paths, "--out", tmp_path / "several", *arguments, "--workers", 2)
    assert plain.status == several.status == 1
    assert "player.html: 3 of 6 frames" in several.output
    page = (tmp_path / "plain/player.html").read_bytes()
    assert (tmp_path / "several/player.html").read_bytes() == page
    (tmp_path / "several/player.html").unlink()
    lines = (tmp_path / "several/detections.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "several/detections.jsonl").write_bytes(b"".join(lines[:3]))
    again = perceive("detect", *paths, "--out", tmp_path / "several", *arguments, "--workers", 1, "--resume")
    assert "3 from an earlier run" in again.output
    assert (tmp_path / "several/player.html").read_bytes() == page


def test_records_are_printed_in_order(perceive: Perceive, scans: Path, arguments: tuple[object, ...]) -> None:
    done = perceive("detect", scans, "--json", *arguments, "--workers", 2)
    assert done.status == 0
    assert [json.loads(line)["frame"] for line in done.output.splitlines()] == [
        "street0",
        "street1",
        "street2",
    ]


def test_a_range_that_does_not_fit_is_said_once(
    perceive: Perceive, street: Street, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    """As one detector says it once, and not once for each worker."""
    scans = tmp_path / "far"
    scans.mkdir()
    for number in range(6):
        points = street(number).points.copy()
        points[::2, :2] = -points[::2, :2] * 3
        points.astype("<f4").tofile(scans / f"{number}.bin")
    for name, options in (("plain", ()), ("several", ("--workers", 2))):
        assert perceive("detect", scans, "--out", tmp_path / name, *arguments, *options).status == 0
    expected = records_of(tmp_path / "plain")
    assert sum("out of the range" in str(record["warnings"]) for record in expected) == 1
    assert records_of(tmp_path / "several") == expected


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_kills_lose_nothing_and_double_nothing(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path, engine: str
) -> None:
    """A worker is killed, then the driver; the run that goes on ends with what one process finds."""
    if engine == "ray":
        pytest.importorskip("ray", reason="ray is not installed (extra 'ray')")
    scans, out = tmp_path / "scans", tmp_path / "out"
    scans.mkdir()
    for number in range(400):
        street(number % 5).points.astype("<f4").tofile(scans / f"{number:03d}.bin")
    arguments = ("--weights", tiny_weights, "--score", 0.0, "--no-pictures")
    command = [sys.executable, "-m", "perception.cli", "detect", scans, "--out", out, *arguments]
    command += ["--engine", engine, "--workers", 2]
    driver = subprocess.Popen(list(map(str, command)), start_new_session=True)
    try:
        _wait_for(out, 10)
        workers = list(_workers_of(driver.pid, engine))
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        _wait_for(out, 100)
        driver.kill()
        driver.wait()
        held = (out / "detections.jsonl").read_bytes()
        # Nobody writes on, and nobody stays.
        for worker in workers[1:]:
            _wait_until(lambda worker=worker: not Path(f"/proc/{worker}/task").exists())
        assert (out / "detections.jsonl").read_bytes() == held
        assert held.count(b"\n") < 400
        rest = subprocess.run([*map(str, command), "--resume"], check=False, capture_output=True)
        assert rest.returncode == 0, rest.stderr
        assert perceive("detect", scans, "--out", tmp_path / "plain", *arguments).status == 0
        assert records_of(out) == records_of(tmp_path / "plain")
    finally:
        driver.kill()


def _wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def _wait_for(out: Path, lines: int) -> None:
    path = out / "detections.jsonl"
    _wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= lines)


def _workers_of(pid: int, engine: str) -> Iterator[int]:
    """Processes below a process that detect, however deep."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        child, parent = int(path.parent.name), int(words[1])
        if parent != pid or words[0] == "Z":
            continue
        forked = b"forkserver" in command
        if b"ray::_Worker" in command or (engine == "local" and pid != child and forked and _is_fork(child)):
            yield child
        yield from _workers_of(child, engine)


def _is_fork(pid: int) -> bool:
    """Whether a process was forked by the server: its parent has the same command."""
    parent = int((Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split())[1])
    own, above = (Path(f"/proc/{one}/cmdline").read_bytes() for one in (pid, parent))
    return own == above
