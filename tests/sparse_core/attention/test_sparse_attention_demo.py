from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from sparse_core.attention import from_distance

Main = Callable[..., str]
SMALL = ("--device", "cpu", "--length", "256", "--heads", "2", "--dim", "16", "--block-size", "32")


@pytest.fixture(scope="module")
def demo(repository: Path) -> Iterator[ModuleType]:
    """The demo as a module, for what needs no process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(repository / "demos"))
        yield importlib.import_module("sparse_attention")
    for name in ("sparse_attention", "attention_patterns", "attention_timing"):
        del sys.modules[name]


@pytest.fixture
def patterns(demo: ModuleType) -> ModuleType:
    return sys.modules["attention_patterns"]


@pytest.fixture
def timing(demo: ModuleType) -> ModuleType:
    return sys.modules["attention_timing"]


@pytest.fixture
def main(
    demo: ModuleType,
    timing: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Main]:
    """Run the demo in this process; returns what it prints."""
    monkeypatch.setattr(timing, "BUDGET_S", 0.0)
    monkeypatch.setattr(timing, "SAMPLE_MS", 0.0)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(
            sys, "argv", ["sparse_attention.py", *SMALL, *arguments, "--out", str(tmp_path / "out")]
        )
        demo.main()
        return capsys.readouterr().out

    # So little work is not worth more, on a machine that does other things too.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield run
    torch.set_num_threads(threads)


def as_json(main: Main, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(main("--json", *arguments))
    return found


def test_everything_is_drawn_described_and_timed(
    run_demo: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = run_demo("sparse_attention.py", *SMALL, "--densities", "0.25", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    names = {
        "local",
        "strided",
        "global",
        "random",
        "bigbird",
        "causal-bigbird",
        "radius",
        "top-k",
        "dynamic",
    }
    assert {file.stem for file in tmp_path.iterdir()} == names | {"overview"}
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in tmp_path.iterdir())
    for text in (
        *names,
        "index KiB",
        "times as fast",
        "forward and backward",
        "dense is faster in",
        "Z curve",
    ):
        assert text in done.stdout


def test_json_tells_what_the_tables_tell(main: Main) -> None:
    report = as_json(main, "--patterns", "local", "bigbird", "--densities", "1", "0.5")
    assert list(report["patterns"]) == ["local", "bigbird"]
    assert report["patterns"]["local"]["query_length"] == 256
    assert [(row["length"], row["density"]) for row in report["timings"]] == [
        (length, density) for length in (64, 128, 256) for density in (1.0, 0.5)
    ]
    for row in report["timings"]:
        assert 0 < row["difference"] < 1e-5
        for mode in ("forward", "forward and backward"):
            taken = row[mode]
            assert taken["speedup"] == pytest.approx(taken["dense_ms"] / taken["sparse_ms"])


def test_timing_can_be_left_out(main: Main) -> None:
    printed = main("--patterns", "random", "--no-timing")
    assert "dense" not in printed
    assert "pictures: 2 in" in printed


def test_points_of_a_file(main: Main, tmp_path: Path) -> None:
    points = np.random.default_rng(0).uniform(0, 10, (500, 4)).astype(np.float32)
    points[7, 0] = np.nan
    points.tofile(tmp_path / "scan.bin")
    np.save(tmp_path / "few.npy", points[:100, :3])
    arguments = ("--patterns", "radius", "--no-timing", "--radius", "1.5", "--points")
    report = as_json(main, *arguments, str(tmp_path / "scan.bin"))
    assert report["patterns"]["radius"]["query_length"] == 256
    assert 0 < report["patterns"]["radius"]["density"] < 0.2
    assert report["patterns"]["radius"]["block_density"] < report["radius_unsorted_block_density"]
    few = as_json(main, *arguments, str(tmp_path / "few.npy"))
    assert few["patterns"]["radius"]["query_length"] == 99


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--patterns", "spiral"), "invalid choice: 'spiral'"),
        (("--densities", "0.5", "1.5"), "--densities must be above 0 and at most 1, got 1.5"),
        (("--densities", "0"), "got 0.0"),
        (("--block-size", "50"), "--block-size must be a multiple of 16 from 16 to 128, got 50"),
        (("--dim", "20"), "--dim must be a multiple of 8 from 16 to 256, got 20"),
        (("--length", "-5"), "--length must be at least 1, got -5"),
        (("--length", "0"), "--length must be at least 1, got 0"),
        (("--device", "abacus"), "--device must be cpu or cuda, got 'abacus'"),
        (("--device", "meta"), "--device must be cpu or cuda, got meta"),
    ],
)
def test_bad_options(
    main: Main, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(*arguments)
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed
    if "spiral" in message:
        assert "causal-bigbird" in printed.partition("invalid choice")[2]


def test_bad_files_and_radius(main: Main, tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.full((3, 3), np.inf, dtype=np.float32))
    for arguments, message in (
        (("--points", str(tmp_path / "none.bin")), "none.bin"),
        (("--points", str(tmp_path / "cloud.e57")), "unknown kind of scan"),
        (("--points", str(tmp_path / "empty.npy")), "no point with finite coordinates"),
        (("--patterns", "radius", "--radius", "-1"), "radius must be a number of at least 0"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(*arguments)
        text = str(stopped.value)
        assert text.startswith("sparse_attention: ")
        assert message in text
        assert "\n" not in text


def test_a_wrong_result_stops_the_demo(
    timing: ModuleType, main: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = timing.sparse_attention
    monkeypatch.setattr(timing, "sparse_attention", lambda *operands: right(*operands) + 0.01)
    with pytest.raises(SystemExit, match="differs from dense masked attention"):
        main("--patterns", "local")


def test_what_is_too_large_is_not_checked(
    timing: ModuleType, main: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "CHECKED", {"cpu": 2 * 128**2, "cuda": 0})
    printed = main("--patterns", "local", "--densities", "0.5")
    assert printed.count("not checked") == 1


def test_verdict_counts_where_dense_wins(timing: ModuleType) -> None:
    rows = [
        {"forward": {"speedup": 0.5}, "forward and backward": {"speedup": 2.0}},
        {"forward": {"speedup": 0.9}, "forward and backward": {"speedup": 0.99}},
    ]
    text = timing.verdict(rows, torch.device("cpu"))
    assert text.startswith("dense is faster in 2 of 2 rows forward, 1 with backward; on a CPU")
    assert "CPU" not in timing.verdict(rows, torch.device("cuda"))


def test_points_along_the_curve(patterns: ModuleType) -> None:
    corners = torch.tensor([[0.0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
    assert patterns.curve_order(corners).tolist() == [0, 2, 3, 5, 4, 1]
    positions = torch.rand(1000, 3, generator=torch.Generator().manual_seed(0))
    along, as_given = patterns.sampled(positions, 200)
    assert len(along) == len(as_given) == len(torch.unique(along, dim=0)) == 200
    assert torch.equal(torch.unique(along, dim=0), torch.unique(as_given, dim=0))
    steps = [(x[1:] - x[:-1]).norm(dim=1).mean() for x in (along, as_given)]
    assert steps[0] < 0.5 * steps[1]
    assert torch.equal(patterns.sampled(positions[:50], 200)[1], positions[:50])


def test_street_is_the_same_each_time_and_like_a_scan(patterns: ModuleType) -> None:
    points = patterns.street_scan()
    assert torch.equal(points, patterns.street_scan())
    assert len(points) > 20_000
    assert points.isfinite().all()
    assert float(points.norm(dim=1).max()) < 71
    # The sensor stands 1.8 m above the ground.
    assert float(points[:, 2].min()) == pytest.approx(-1.8, abs=0.1)
    assert float((points[:, 2] > -1.5).float().mean()) > 0.2


def test_what_the_page_says_about_sorted_points(patterns: ModuleType) -> None:
    along, as_given = patterns.sampled(patterns.street_scan(), 2048)
    coarse, unsorted = (from_distance(positions, radius=2.0) for positions in (along, as_given))
    assert coarse.block_density == pytest.approx(0.25, abs=0.03)
    assert unsorted.block_density == pytest.approx(0.75, abs=0.04)
    assert from_distance(along, radius=2.0, block_size=32).block_density < 0.7 * coarse.block_density


@pytest.mark.gpu
def test_on_a_gpu(main: Main, cuda: torch.device) -> None:
    arguments = ("--device", "cuda", "--length", "512", "--dim", "64", "--block-size", "64")
    report = as_json(main, *arguments, "--densities", "0.5")
    assert report["dtype"] == "bfloat16"
    assert len(report["patterns"]) == 9
    assert all(0 < row["difference"] < 0.05 for row in report["timings"])
