"""``perceive detect`` with addresses: scans of object stores and servers, by fsspec."""

from __future__ import annotations

import functools
import http.server
import json
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Perceive = Callable[..., Any]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *values: object) -> None:
        """Nothing: tests read what is printed."""


@pytest.fixture
def server(scans: Path) -> Iterator[str]:
    """The folder of scans on a server of this machine."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed (extra 'archives')")
    handler = functools.partial(_Quiet, directory=str(scans))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture
def store(scans: Path) -> Iterator[str]:
    """The same in fsspec's memory of this process, with notes beside them."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (extra 'archives')")
    files, folder = fsspec.filesystem("memory"), f"/{uuid.uuid4().hex}"
    for path in scans.iterdir():
        files.pipe_file(f"{folder}/{path.name}", path.read_bytes())
    files.pipe_file(f"{folder}/notes.txt", b"1 2 3")
    yield f"memory:/{folder}"
    files.rm(folder, recursive=True)


@pytest.fixture
def arguments(tiny_weights: Path) -> tuple[object, ...]:
    return ("--weights", tiny_weights, "--score", 0.0, "--no-pictures")


def found_in(out: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (out / "detections.jsonl").read_text().splitlines())
    # A store does not say when its files were last changed.
    clocks = ("detected_ns", "elapsed_ms", "assumed_ns", "assumed_from")
    return [{k: v for k, v in line.items() if k not in clocks} for line in lines]


@pytest.fixture
def expected(
    perceive: Perceive, scans: Path, arguments: tuple[object, ...], tmp_path: Path
) -> list[dict[str, Any]]:
    """What is found in the folder."""
    assert perceive("detect", scans, "--out", tmp_path / "plain", *arguments).status == 0
    return found_in(tmp_path / "plain")


def test_a_store_gives_what_its_files_would(
    perceive: Perceive,
    store: str,
    expected: list[dict[str, Any]],
    arguments: tuple[object, ...],
    tmp_path: Path,
) -> None:
    """By pattern, and by folder; a run that was cut off goes on with each scan once."""
    named = [record | {"source": f"{store}/{record['frame']}.bin"} for record in expected]
    for number, address in enumerate((f"{store}/*.bin", store, f"{store}/")):
        out = tmp_path / str(number)
        done = perceive("detect", address, "--out", out, *arguments)
        assert done.status == 0, done.remarks
        assert found_in(out) == named
    lines = (out / "detections.jsonl").read_bytes().splitlines(keepends=True)
    (out / "detections.jsonl").write_bytes(lines[0] + lines[1][:30])
    again = perceive("detect", store, "--out", out, *arguments, "--resume")
    assert "2 of 2 frames" in again.output
    assert found_in(out) == named


def test_a_server_gives_what_its_files_would(
    perceive: Perceive,
    server: str,
    expected: list[dict[str, Any]],
    arguments: tuple[object, ...],
    tmp_path: Path,
) -> None:
    """One file, then all by pattern and by several processes, which fetch for themselves."""
    named = [record | {"source": f"{server}/{record['frame']}.bin"} for record in expected]
    out = tmp_path / "out"
    one = perceive("detect", f"{server}/street0.bin", "--out", out, *arguments)
    assert one.status == 0, one.remarks
    done = perceive("detect", f"{server}/*.bin", "--out", out, *arguments, "--workers", 2, "--resume")
    assert done.status == 0, done.remarks
    assert "2 of 2 frames" in done.output
    assert found_in(out) == named
    whole = perceive("detect", f"{server}/", "--out", tmp_path / "folder", *arguments)
    assert whole.status == 0, whole.remarks
    assert found_in(tmp_path / "folder") == named
    missing = perceive("detect", f"{server}/none.bin", "--json", *arguments)
    assert missing.status == 2
    assert f"{server}/none.bin: no such file" in missing.remarks


def test_a_worker_writes_the_page_of_one_process(
    perceive: Perceive, server: str, tiny_weights: Path, tmp_path: Path
) -> None:
    """The process that was started fetches the scans of the page once more."""
    arguments = ("--weights", tiny_weights, "--score", 0.0)
    for out, workers in (("one", ()), ("two", ("--workers", 1))):
        done = perceive("detect", f"{server}/*.bin", "--out", tmp_path / out, *arguments, *workers)
        assert done.status == 0, done.remarks
    page = (tmp_path / "one" / "player.html").read_bytes()
    assert page == (tmp_path / "two" / "player.html").read_bytes()


def test_files_of_this_machine_may_be_addresses(
    perceive: Perceive,
    scans: Path,
    expected: list[dict[str, Any]],
    arguments: tuple[object, ...],
    tmp_path: Path,
) -> None:
    assert perceive("detect", scans.as_uri(), "--out", tmp_path / "out", *arguments).status == 0
    assert found_in(tmp_path / "out") == expected


def test_a_damaged_file_is_named_by_its_address(
    perceive: Perceive, store: str, arguments: tuple[object, ...]
) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file(f"{store.removeprefix('memory:/')}/street1.bin", b"123")
    done = perceive("detect", store, "--json", *arguments)
    assert done.status == 1
    assert f"skipped: {store}/street1.bin: " in done.remarks
    assert len(done.output.splitlines()) == 2


def test_what_is_missing_is_named(
    perceive: Perceive, store: str, arguments: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for address, message in (
        ("s3://bucket/scans/*.bin", "pip install s3fs"),
        ("nothing://scans", "Protocol not known: nothing"),
        (f"{store}/*.pcd", f"{store}/*.pcd: no .bin, .npy"),
        (f"{store}/none", f"{store}/none: listing failed"),
        ("zip://a.bin::memory://b.zip", "chained addresses"),
    ):
        done = perceive("detect", address, "--json", *arguments)
        assert done.status == 2
        assert message in done.remarks
    several = perceive("detect", store, "--json", *arguments, "--workers", 2)
    assert several.status == 2
    assert "in the memory of one process" in several.remarks
    monkeypatch.setitem(sys.modules, "fsspec", None)
    without = perceive("detect", store, "--json", *arguments)
    assert without.status == 2
    assert "needs fsspec: pip install 'sparsight[archives]'" in without.remarks
