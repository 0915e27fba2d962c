"""Writes that the system refuses: one line that names the file, and nothing half-written stays."""

from __future__ import annotations

import errno
import importlib
import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from memory import MemoryStore
from memory.config import StoreConfig
from memory.errors import StoreError
from memory.picture import draw_map
from perception.cli.records import FolderRecords
from perception.errors import DataError
from perception.io import save_point_cloud
from perception.io.text import write_text
from perception.train.checkpoint import write_checkpoint
from perception.train.events import EventFile
from perception.types import Detections, PointCloud
from perception.visualise import write_html
from sparse_core.common.commands import failure, run_command
from sparse_core.common.files import (
    GrowingFile,
    describe_file_error,
    naming,
    replacing,
    replacing_folder,
    save_torch,
    write_failure,
    write_file,
    write_tensors,
)

ROOT = Path(__file__).parents[3]
LIMIT_BYTES = 20_000
Limit = Callable[[int], AbstractContextManager[None]]
CLOUD = PointCloud(np.random.default_rng(0).random((3000, 4), np.float32), frame="lidar")


def by_numpy(file: Path) -> None:
    with replacing(file) as temporary:
        np.arange(9000.0).tofile(temporary)


def by_safetensors(file: Path) -> None:
    with replacing(file) as temporary:
        save_file({"a": torch.zeros(9000)}, temporary)


def by_pyarrow(file: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"a": np.random.default_rng(0).random(9000)})
    with replacing(file) as temporary:
        parquet.write_table(table, temporary)


def by_pillow(file: Path) -> None:
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)
    with replacing(file) as temporary:
        Image.fromarray(noise).save(temporary, format="PNG")


WRITERS: dict[str, Callable[[Path], object]] = {
    "bytes": lambda file: write_file(file, bytes(30_000)),
    "torch": lambda file: save_torch(file, {"a": torch.zeros(9000)}),
    "tensors": lambda file: write_tensors(file, {"a": torch.zeros(9000)}, kind="test", version="1"),
    "numpy": by_numpy,
    "safetensors": by_safetensors,
    "pyarrow": by_pyarrow,
    "pillow": by_pillow,
    "page": lambda file: write_html(file, CLOUD, Detections.empty()),
    "map": lambda file: draw_map(file, [], title="a map"),
    "checkpoint": lambda file: write_checkpoint(file, {"a": torch.zeros(9000)}),
    "text": lambda file: write_text(file, "a" * 30_000),
    **{
        suffix: lambda file: save_point_cloud(file, CLOUD)
        for suffix in (".bin", ".npy", ".pcd", ".ply", ".csv", ".txt")
    },
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_refused_write_names_the_file_and_keeps_the_old_one(
    limit_file_size: Limit, writer: str, tmp_path: Path
) -> None:
    file = tmp_path / f"file{writer if writer.startswith('.') else ''}"
    WRITERS[writer](file)  # Loads the writer's modules and fills its caches, before the limit.
    file.write_text("old")
    with (
        limit_file_size(5000 if writer == "map" else LIMIT_BYTES),
        pytest.raises((OSError, DataError)) as caught,
    ):
        WRITERS[writer](file)
    found = write_failure(caught.value)
    assert found is not None
    assert (found.errno, found.filename) == (errno.EFBIG, str(file))
    assert failure(caught.value).startswith(f"{file} would be larger than")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == [file.name]


def test_a_limit_cuts_no_bytecode(
    limit_file_size: Limit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "long_module_of_this_test.py").write_text(f"TEXT = {'a' * 1000!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = sys.dont_write_bytecode
    with limit_file_size(100):
        assert importlib.import_module("long_module_of_this_test").TEXT
    assert os.listdir(tmp_path) == ["long_module_of_this_test.py"]
    assert sys.dont_write_bytecode is before


def test_records_end_with_their_last_whole_line_and_resume(limit_file_size: Limit, tmp_path: Path) -> None:
    records = FolderRecords(tmp_path, overwrite=False, resume=False)

    def write() -> None:
        for number in range(100):
            records.write({"frame": f"{number}", "source": "scan", "text": "a" * 900})

    with limit_file_size(LIMIT_BYTES), records.open(), pytest.raises(OSError, match="too large") as caught:
        write()
    assert caught.value.filename == str(tmp_path / "detections.jsonl")
    written = [json.loads(line) for line in records.path.read_text().splitlines()]
    assert [line["frame"] for line in written] == [f"{number}" for number in range(len(written))]
    again = FolderRecords(tmp_path, overwrite=False, resume=True)
    assert len(again) == len(written) > 10
    with again.open():
        again.write({"frame": "next", "source": "scan"})
    assert json.loads(records.path.read_text().splitlines()[-1])["frame"] == "next"


def test_events_end_with_their_last_whole_record(limit_file_size: Limit, tmp_path: Path) -> None:
    events = EventFile(tmp_path, 0)

    def write() -> None:
        for step in range(100):
            events.write(step, {"loss": 1.0})

    with closing(events), limit_file_size(300), pytest.raises(OSError, match="too large") as caught:
        write()
    (file,) = (tmp_path / "tensorboard").iterdir()
    content, place = file.read_bytes(), 0
    while place < len(content):
        place += 16 + int.from_bytes(content[place : place + 8], "little")
    assert place == len(content) > 200
    assert caught.value.filename == str(file)


@pytest.mark.parametrize("kind", ["mcap", "rerun"])
def test_recordings_report_a_refused_write(limit_file_size: Limit, kind: str, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    from perception.visualise.recording import RecordingMoment
    from perception.visualise.recordings import open_recordings

    file = tmp_path / {"mcap": "a.mcap", "rerun": "a.rrd"}[kind]
    target = {kind: str(file) if kind == "rerun" else file}

    def write(frames: int = 100) -> None:
        with open_recordings(title="a test", **target) as recordings:  # type: ignore[arg-type]
            for number in range(frames):
                recordings.scan(CLOUD, Detections.empty(), RecordingMoment(number, None))

    write(1)  # Loads modules and fills caches, before the limit.
    with limit_file_size(LIMIT_BYTES), pytest.raises(OSError, match="too large") as caught:
        write()
    assert caught.value.filename == str(file)


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").touch()

    def fill() -> None:
        with replacing_folder(folder) as made:
            (made / "first").touch()
            (made / "missing" / "file").touch()

    with pytest.raises(FileNotFoundError) as caught:
        fill()
    assert caught.value.filename == str(folder / "missing" / "file")
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(folder) == ["old"]
    with replacing_folder(folder) as made:
        (made / "new").touch()
    assert os.listdir(folder) == ["new"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("growing", [False, True])
def test_a_full_disk(growing: bool, tmp_path: Path) -> None:
    link = tmp_path / "player.html"
    link.symlink_to("/dev/full")

    def write() -> None:
        if not growing:
            write_file(link, "page")
        with closing(GrowingFile(link)) as file:
            file.write("line\n")

    with pytest.raises(OSError, match="No space left") as caught:
        write()
    options = Namespace(out=tmp_path, resume=False)
    told = f"Disk full while writing {link}. Free space, then rerun"
    assert failure(caught.value, options) == f"{told} with --resume."
    assert failure(caught.value, Namespace(out=tmp_path)) == f"{told}."
    # --resume does not continue files that lie elsewhere.
    assert failure(caught.value, Namespace(out=tmp_path / "other", resume=False)) == f"{told}."
    assert link.is_symlink()


def test_a_link_keeps_its_place_and_its_target_is_replaced(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "folder" / "target"
    target.parent.mkdir()
    link.symlink_to(target)
    write_file(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errno.ENOSPC, "Disk full while writing x. Free space, then rerun."),
        (errno.EDQUOT, "Disk quota used up while writing x. Free space or raise the quota, then rerun."),
        (errno.EROFS, "x is on a read-only file system. Write to another folder."),
        (errno.EACCES, "x: no permission; use another path, or change its permissions"),
        (errno.EISDIR, "x: there is a folder where a file is needed; use another file"),
        (errno.ENOTDIR, "x: there is a file where a folder is needed; use another folder"),
        (errno.ENOENT, "x: no such file or folder; check the path"),
        (errno.EIO, f"x: {os.strerror(errno.EIO)}"),
    ],
)
def test_reasons(code: int, told: str) -> None:
    with pytest.raises(OSError, match=r"\[Errno") as caught, naming(Path("x"), Path("temporary")):
        raise OSError(code, os.strerror(code), "temporary")
    assert describe_file_error(caught.value) == told


def test_wrong_places_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for place, told in {
        "missing/new": "missing does not exist (create it first)",
        "file/new": "file: there is a file where a folder is needed; use another folder",
        "folder": "folder: there is a folder where a file is needed; use another file",
    }.items():
        with pytest.raises((FileNotFoundError, NotADirectoryError, IsADirectoryError)) as caught:
            write_file(tmp_path / place, "text")
        assert failure(caught.value).endswith(told)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_an_error_that_is_no_write_keeps_its_type(tmp_path: Path) -> None:
    for error in (RuntimeError("a bug"), ValueError("a bug"), ConnectionError(errno.ECONNRESET, "gone")):
        with pytest.raises(type(error)) as caught, replacing(tmp_path / "file"):
            raise error
        assert caught.value is error
        assert getattr(error, "filename", None) is None


def test_a_backup_that_does_not_fit_names_the_copy(limit_file_size: Limit, tmp_path: Path) -> None:
    with (
        MemoryStore.open(tmp_path / "store", dim=4) as store,
        limit_file_size(40_000),
        pytest.raises(StoreError) as caught,
    ):
        store.backup(tmp_path / "copy")
    assert str(caught.value).startswith(f"{tmp_path / 'copy' / 'memory.db'}: ")
    assert not os.listdir(tmp_path / "copy")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_behind_the_output(tmp_path: Path) -> None:
    code = "import sys; from memory.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "init", str(tmp_path / "store"), "--dim", "4"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert done.returncode == 2
    assert done.stderr == "recall init: Disk full while writing the output. Free space, then rerun.\n"


def test_a_command_that_fails_prints_one_line(
    limit_file_size: Limit, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run(options: Namespace) -> int:
        with limit_file_size(10):
            StoreConfig().save(options.out)
        return 0

    options = Namespace(run=run, command="init", out=tmp_path)
    assert run_command("recall", options, (OSError,)) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"recall init: {tmp_path}/")
    assert line.count("\n") == 1
    assert not os.listdir(tmp_path)
