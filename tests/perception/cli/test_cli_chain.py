"""From scans to answers: ``perceive detect``, ``recall import``, ``recall query`` and ``recall ask``."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memory.cli import main as recall_main
from perception import Detections
from perception.types import EMBEDDING_DIM

Perceive = Callable[..., Any]
POSES = (
    '{"frame": "street0", "x": 0, "y": 0, "yaw": 0, "time": "2026-01-05T09:00:00Z"}\n'
    '{"frame": "street1", "x": 20, "y": 0, "yaw": 0, "time": "2026-01-05T09:00:10Z"}\n'
    '{"frame": "street2", "x": 0, "y": 0, "yaw": 0, "time": "2026-01-05T10:00:00Z"}\n'
)


@pytest.fixture
def poses(tmp_path: Path) -> Path:
    path = tmp_path / "poses.jsonl"
    path.write_text(POSES)
    return path


@pytest.fixture
def recall(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run ``recall`` with arguments, and ``piped`` as standard input."""
    monkeypatch.delenv("RECALL_STORE", raising=False)

    def run(*arguments: object, piped: str = "") -> Any:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(piped.encode())))
        status = recall_main([str(argument) for argument in arguments])
        output, remarks = capsys.readouterr()
        return SimpleNamespace(status=status, output=output, remarks=remarks)

    return run


def with_vectors(path: Path) -> list[str]:
    """The lines with vectors of the boxes: those of the same numbers are alike."""
    turn = np.random.default_rng(0).normal(size=(7, EMBEDDING_DIM))
    lines = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        found = Detections.from_dict(record)
        raw = np.cos(found.boxes @ turn)
        units = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
        told = Detections(found.boxes, found.scores, found.labels, embeddings=units).to_dict()
        record |= {"embeddings": told["embeddings"], "encoder": "boxes@1"}
        lines.append(json.dumps(record))
    path.write_text("".join(f"{line}\n" for line in lines))
    return lines


def test_the_chain_works_without_another_word(
    perceive: Perceive, recall: Any, scans: Path, poses: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    # The robot comes back to where it was: the last scan is the first one.
    (scans / "street2.bin").write_bytes((scans / "street0.bin").read_bytes())
    out, store = tmp_path / "out", tmp_path / "store"
    done = perceive(
        "detect", scans, "--poses", poses, "--out", out, "--weights", tiny_weights, "--no-pictures",
        "--score", 0,
    )  # fmt: skip
    assert done.status == 0
    with_vectors(out / "detections.jsonl")
    done = recall("import", store, out / "detections.jsonl", "--min-score", 0)
    assert done.status == 0
    assert f"vector length {EMBEDDING_DIM}" in done.remarks
    assert "no pose" not in done.remarks
    assert "no time" not in done.remarks
    hits = json.loads(recall("query", store, "--like", 1, "--json").output)["hits"]
    # The same box an hour later.
    assert hits[0]["score"] > 0.999
    assert hits[0]["memory"]["time"] == "2026-01-05T10:00:00Z"
    assert "memories similar to" in recall("ask", store, "similar").output
    assert "Yes: " in recall("ask", store, "have I seen this before?").output
    assert "Yes: " in recall("ask", store, "seen-before").output
    here = recall("ask", store, "have I been here before?")
    assert "was visited on 1 earlier visit, the last on 2026-01-05 09:00:00 UTC" in here.output
    assert "0.0 m from here by the poses of map default" in here.output
    # A scan that is not stored, from a file and from a pipe.
    (line, *_) = (out / "detections.jsonl").read_text().splitlines()
    alone = tmp_path / "alone.jsonl"
    alone.write_text(line)
    told = recall("ask", store, "have I seen this before?", "--like", alone).output.splitlines()
    assert len(told) == len(json.loads(line)["labels"])
    assert all(each.startswith("Yes: what looks like this (") for each in told)
    answers = json.loads(recall("ask", store, "been-here", "--like", "-", "--json", piped=line).output)
    assert answers["answers"][0]["hits"][0]["score"] == pytest.approx(1.0, abs=1e-3)
    assert "such as 'have I seen" in recall("ask", store, "where is the car?", "--like", alone).remarks
    bare = {name: value for name, value in json.loads(line).items() if name != "embeddings"}
    alone.write_text(json.dumps(bare))
    refused = recall("ask", store, "similar", "--like", alone)
    assert (refused.status, "alone.jsonl:1: the scan has no object emb" in refused.remarks) == (2, True)
    (first, *_) = json.loads(recall("query", store, "--kind", "place", "--json").output)["hits"]
    assert json.loads(recall("query", store, "--like", first["memory"]["id"], "--json").output)["hits"]


def test_a_stream_is_imported_as_it_is_read_and_known_again(
    perceive: Perceive, recall: Any, scans: Path, poses: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    options = ("--poses", poses, "--weights", tiny_weights, "--score", 0)
    done = perceive("detect", scans, "--json", *options)
    assert done.status == 0
    assert len(done.output.splitlines()) == 3
    assert not list(tmp_path.glob("*/*.png"))
    store = tmp_path / "store"
    first = recall("import", store, "-", "--min-score", 0, "--no-tracks", piped=done.output)
    assert first.status == 0
    assert "standard input: " in first.output
    assert "memories from 3 lines" in first.output
    assert "without an embedding" in first.remarks
    again = recall("import", store, "-", "--min-score", 0, "--no-tracks", piped=done.output)
    assert "0 memories from 0 lines; skipped 3 lines that were imported before" in again.output
    told = recall("ask", store, "have I seen this before?")
    assert told.status == 2
    assert "none of the newest objects has an embedding" in told.remarks
    assert "memory 1 has no embedding" in recall("query", store, "--like", 1).remarks


@pytest.mark.slow
def test_two_programs_and_a_pipe(
    scans: Path, poses: Path, tiny_weights: Path, tmp_path: Path, repository: Path
) -> None:
    program = (
        f"'{sys.executable}' -m perception.cli detect '{scans}' --json --poses '{poses}' --score 0 --weights"
        f" '{tiny_weights}'"
    )
    stored = f"{program} | '{sys.executable}' -m memory.cli import '{tmp_path}/store' - --min-score 0"
    for command, status, said in (
        (stored, [0, 0], "memories from 3 lines"),
        (stored.replace("--poses", "--no-places --poses"), [0, 0], "memories from 3 lines"),
        # Whoever reads has enough: no traceback.
        (f"{program} | head -c 10", [1, 0], '{"frame": '),
    ):
        done = subprocess.run(
            ["bash", "-c", f"{command}; echo ${{PIPESTATUS[@]}}"],
            cwd=repository, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert said in done.stdout
        assert "Traceback" not in done.stderr
        assert done.stdout.split()[-2:] == [str(one) for one in status]


def test_a_scan_without_a_pose_is_skipped_and_named(
    perceive: Perceive, scans: Path, poses: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    poses.write_text(POSES.splitlines()[0])
    done = perceive(
        "detect", scans, "--poses", poses, "--out", tmp_path / "out", "--weights", tiny_weights,
        "--no-pictures",
    )  # fmt: skip
    assert done.status == 1
    assert "poses.jsonl: no pose" in done.remarks
    (line,) = (tmp_path / "out/detections.jsonl").read_text().splitlines()
    assert json.loads(line)["pose"]["map_from_lidar"][0] == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--json alone"),
        (("--json", "--resume"), "is missing"),
        (("--json", "--camera-poses"), "--camera-poses needs --poses"),
        (("--json", "--poses", "none.txt"), "none.txt"),
    ],
)
def test_bad_options(perceive: Perceive, scans: Path, options: tuple[str, ...], message: str) -> None:
    done = perceive("detect", scans, *options)
    assert (done.status, done.output) == (2, "")
    assert message in done.remarks


def test_places_can_be_left_out(perceive: Perceive, scans: Path, tiny_weights: Path) -> None:
    done = perceive("detect", scans / "street0.bin", "--json", "--weights", tiny_weights)
    assert {"structure", "detected_ns"} <= json.loads(done.output).keys()
    done = perceive("detect", scans / "street0.bin", "--json", "--weights", tiny_weights, "--no-places")
    assert "structure" not in json.loads(done.output)


def test_vectors_that_do_not_fit_say_what_to_do(
    perceive: Perceive, recall: Any, scans: Path, poses: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out, wide, store = tmp_path / "out", tmp_path / "wide", tmp_path / "store"
    perceive(
        "detect", scans, "--poses", poses, "--out", out, "--weights", tiny_weights, "--no-pictures",
        "--score", 0,
    )  # fmt: skip
    path = out / "detections.jsonl"
    with_vectors(path)
    assert recall("init", wide).status == 0
    refused = recall("import", wide, path, "--min-score", 0)
    assert refused.status == 2
    assert "detections.jsonl:1: embeddings have" in refused.remarks
    assert "--no-vectors" in refused.remarks
    beside = recall("import", wide, path, "--min-score", 0, "--encoder", "boxes")
    assert beside.status == 0
    assert json.loads(recall("query", wide, "--like", 1, "--json").output)["hits"]
    # Of other weights, and so of another space.
    assert recall("import", store, path, "--min-score", 0).status == 0
    path.write_text(path.read_text().replace("boxes@1", "boxes@2"))
    refused = recall("import", store, path, "--min-score", 0)
    assert refused.status == 2
    assert "of 'boxes@1'" in refused.remarks
    assert recall("import", store, path, "--min-score", 0, "--no-vectors").status == 0
