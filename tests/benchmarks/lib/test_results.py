"""What is published stays short, holds no samples and comes from a commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results"
_MOST_LINES, _MOST_IN_ALL = 300, 10_000


def _values(dirty: bool | None, **parts: Any) -> dict[str, Any]:
    return {"benchmark": "x", "environment": {"code": {"commit": "0" * 40, "dirty": dirty}}, **parts}


def test_published_files_are_short() -> None:
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in RESULTS.glob("*.json")}
    assert {name: count for name, count in lines.items() if count >= _MOST_LINES} == {}
    assert sum(lines.values()) <= _MOST_IN_ALL


def test_published_files_are_what_the_writer_writes(load: Any) -> None:
    write = load("lib.results").published_text
    for path in RESULTS.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert write(json.loads(text)) == text, path.name


def test_published_file_has_summaries_only(load: Any, tmp_path: Path) -> None:
    samples = [1.0 / 3.0, 0.5]
    time = {"median_ms": 1.0 / 3.0, "iqr_ms": 0.1}
    rows = [
        {"time": time, "samples_ms": samples},
        {"accuracy": {"mean": 0.5, "values": samples}},
        {"values": "int4"},
    ]
    path = tmp_path / "x.json"
    load("lib.results").publish(_values(False, rows=rows), path)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["rows"] == [
        {"time": {"median_ms": 0.33333333}},
        {"accuracy": {"mean": 0.5}},
        {"values": "int4"},
    ]


def test_fields_that_no_page_reads_are_left_out_of_their_benchmark_only(load: Any) -> None:
    write = load("lib.results").published_text
    values = _values(False, cases=[{"memories": 3, "samples": [1, 2]}])
    assert json.loads(write(values)) == values
    served = {**values, "benchmark": "serve"}
    assert json.loads(write(served)) == {**served, "cases": [{"memories": 3}]}


@pytest.mark.parametrize("count", [0, 1, 250, 3000])
def test_published_text_reads_back_and_is_short(load: Any, count: int) -> None:
    values = _values(
        False, cases=[{"name": f"n{i}", "sides": {"a": [i, None], "ü\n": {}}} for i in range(count)]
    )
    text = load("lib.results").published_text(values)
    assert json.loads(text) == values
    assert len(text.splitlines()) < _MOST_LINES


def test_too_many_lines_are_refused(load: Any) -> None:
    with pytest.raises(ValueError, match="publish fewer cases"):
        load("lib.results").published_text(_values(False, cases=["word " * 200] * 400))


@pytest.mark.parametrize("dirty", [True, None])
def test_result_of_a_dirty_tree_is_refused(load: Any, tmp_path: Path, dirty: bool | None) -> None:
    with pytest.raises(ValueError, match="not clean"):
        load("lib.results").publish(_values(dirty), tmp_path / "x.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dirty", [True, None])
def test_benchmark_refuses_to_publish_from_a_dirty_tree(
    load: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dirty: bool | None
) -> None:
    options = load("lib.options")
    monkeypatch.setattr(options, "is_dirty", lambda: dirty)
    parser = options.common_parser(None, "x")
    assert options.parse(parser, []).publish is False
    with pytest.raises(SystemExit):
        options.parse(parser, ["--publish"])
    assert "commit first" in capsys.readouterr().err


def test_a_result_of_a_copy_is_that_of_the_commit_with_its_sources(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment, publish = load("lib.environment"), load("publish.__main__")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    for name in environment.SOURCES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "code.py").write_text(f"{name} = 1\n")
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    environment._git("init")
    environment._git("add", ".")
    assert environment._git(*identity, "commit", "-m", "first") is not None
    values = _values(True)
    values["environment"]["code"]["source_sha256"] = environment.source_digest(tmp_path)
    (tmp_path / "memory" / "code.py").write_text("memory = 2\n")
    code = publish.of_commit(values, "HEAD")["environment"]["code"]
    assert code["commit"] == environment._git("rev-parse", "HEAD")
    assert code["dirty"] is False
    values["environment"]["code"]["source_sha256"] = environment.source_digest(tmp_path)
    with pytest.raises(ValueError, match="measured with sources of digest"):
        publish.of_commit(values, "HEAD")
    with pytest.raises(ValueError, match="no-such"):
        publish.of_commit(values, "no-such")


def test_where_results_go(load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options, results = load("lib.options"), load("lib.results")
    monkeypatch.setattr(options, "is_dirty", lambda: False)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    (tmp_path / "results").mkdir()
    asked = options.parse(options.common_parser(None, "x"), ["--out", str(tmp_path / "y.json"), "--publish"])
    results.save(_values(False, samples_ms=[1.0]), asked)
    assert json.loads((tmp_path / "y.json").read_text())["samples_ms"] == [1.0]
    assert "samples_ms" not in json.loads((tmp_path / "results" / "x-cpu.json").read_text())
    assert options.parse(options.common_parser(None, "x"), []).out == results.WORKING / "x-cpu.json"
    assert options.parse(options.common_parser(None, "x", by_device=False), []).out.name == "x.json"


def test_new_results_leave_a_tree_clean(load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment = load("lib.environment")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    assert environment.is_dirty() is None
    environment._git("init")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "x.json").write_text("{}")
    assert environment.is_dirty() is False
    (tmp_path / "code.py").write_text("")
    assert environment.is_dirty() is True
