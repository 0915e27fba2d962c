"""Missing extras are reported with the pip command, before PyTorch is imported."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from perception.cli import extras, main
from perception.cli.console import scan_warnings_logged
from perception.errors import ScanWarning
from sparse_core.common.console import log_to_console


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("detect a.bin b.laz --out o", "lazrs", "las"),
        ("detect drive.mcap --out o", "rosbags", "ros"),
        ("track --out o run.pcap", "dpkt", "packets"),
        ("detect s3://bucket/a.bin --json", "fsspec", "archives"),
        ("detect a.bin --out o --mcap=o.mcap", "foxglove", "foxglove"),
        ("detect a.bin --out o --parquet", "pyarrow", "parquet"),
        ("detect a.bin --out o --engine ray", "ray", "ray"),
        ("live ros2:/points", "zenoh", "ros2"),
        ("live folder --publish foxglove=:8765", "foxglove", "foxglove"),
        ("export pointpillars-kitti", "onnxscript", "onnx"),
        ("simulate --out o", "open3d", "simulate"),
        ("push pointpillars-kitti a/b", "huggingface_hub", "hub"),
    ],
)
def test_a_missing_extra_is_named(
    command: str,
    missing: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == missing else True)
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert f"needs {missing}: pip install 'sparsight[{extra}]'" in error


@pytest.mark.parametrize(
    "command",
    [
        "detect a.bin --out o.mcap",
        "detect a.bin --mcap o.mcap --out o",
        "live udp://:2368",
        "export w --format aoti",
        "detect x.las --help",
    ],
)
def test_nothing_else_is_needed(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    present = ("foxglove", "mcap")
    monkeypatch.setattr(extras, "find_spec", lambda name: True if name in present else None)
    extras.check_extras(command.split())


def test_torch_is_not_imported() -> None:
    script = (
        "import sys\n"
        "from perception.cli import extras, main\n"
        "extras.find_spec = lambda name: None\n"
        "assert main(['detect', 'a.las', '--out', 'o']) == 2\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(("option", "shown"), [("--quiet", False), ("-q", False), ("", True), ("-v", True)])
def test_verbosity(
    option: str, shown: bool, tmp_path: Path, tiny_weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Warnings and debug messages of a run appear as the options say; errors always do."""
    np.zeros((10, 4), np.float32).tofile(tmp_path / "a.bin")
    (tmp_path / "b.bin").write_bytes(b"1")
    command = ["detect", str(tmp_path), "--out", str(tmp_path / "out"), "--weights", str(tiny_weights)]
    assert main([*command, "--no-pictures", *option.split()]) == 1
    errors = capsys.readouterr().err
    assert "skipped:" in errors
    assert ("warning:" in errors) == shown
    assert ("loaded" in errors) == (option == "-v")


def test_a_bad_file_needs_no_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.bin").write_bytes(b"1")
    command = ["detect", str(tmp_path / "a.bin"), "--out", str(tmp_path / "out"), "--weights", "none"]
    assert main(command) == 1
    assert "a.bin: truncated" in capsys.readouterr().err


@pytest.mark.parametrize(("level", "shown"), [(0, "warning: too many points\n"), (-1, "")])
def test_warnings_about_scans_are_logged(level: int, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the place in the code, and not with ``-q``; other warnings stay as they are."""
    log_to_console(level)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with scan_warnings_logged():
            warnings.warn("too many points", ScanWarning, stacklevel=1)
            assert capsys.readouterr().err == shown
            with pytest.warns(UserWarning, match="another"):
                warnings.warn("another", UserWarning, stacklevel=1)
