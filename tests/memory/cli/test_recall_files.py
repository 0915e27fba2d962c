"""``recall import`` and ``recall export``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

Recall = Callable[..., Any]


def frame(name: str, time_ns: int | None = None) -> dict[str, Any]:
    found = {"frame": name, "source": f"{name}.bin", "timestamp_ns": time_ns, "warnings": []}
    return found | {"boxes": [[10, 0, 0, 4, 2, 1.5, 0]], "scores": [0.75], "labels": ["Car"]}


def lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_detections_with_rows_of_poses(recall: Recall, store: Path, tmp_path: Path) -> None:
    lines(tmp_path / "detections.jsonl", [frame("000000"), frame("000001")])
    # Straight on at first, then turned to the left: x of the LiDAR is y of the map.
    (tmp_path / "poses.txt").write_text("1 0 0 5 0 1 0 0 0 0 1 2\n0 -1 0 5 1 0 0 0 0 0 1 2\n")
    arguments = ("import", store, "detections.jsonl", "--poses", "poses.txt", "--map", "street")
    missing = recall(*arguments)
    assert missing.status == 2
    assert "detections.jsonl:1: the frame has no time" in missing.remarks
    done = recall(*arguments, "--start", "2026-03-01", "--rate", 1, "--json")
    assert done.json["files"][0]["memories"] == 2
    hits = recall("query", store, "--map", "street", "--json").json["hits"]
    second, first = (hit["memory"] for hit in hits)
    assert first["position"] == pytest.approx([15.0, 0.0, 2.0])
    assert second["position"] == pytest.approx([5.0, 10.0, 2.0])
    assert second["yaw"] == pytest.approx(1.5708, abs=1e-4)
    assert (first["time"], second["time"]) == ("2026-03-01T00:00:00Z", "2026-03-01T00:00:01Z")
    assert first["payload"] == {"size_m": [4.0, 2.0, 1.5], "frame": "000000", "seen_from": [5.0, 0.0, 0.0]}
    assert second["payload"]["seen_from"] == pytest.approx([5.0, 0.0, 1.5708], abs=1e-4)
    again = recall(*arguments, "--start", "2026-03-01")
    assert "skipped 2 lines that were imported before" in again.output


def test_detections_without_dates_are_named(recall: Recall, store: Path, tmp_path: Path) -> None:
    assumed = {"assumed_ns": 1_772_496_000 * 10**9, "assumed_from": "file"}
    lines(tmp_path / "file.jsonl", [frame("0") | assumed, frame("1") | assumed | {"timestamp_ns": 70}])
    lines(tmp_path / "start.jsonl", [frame("2") | assumed | {"assumed_from": "start"}])
    lines(tmp_path / "others.jsonl", [frame("3") | {"timestamp_ns": 70}])
    done = recall("import", store, "file.jsonl", "start.jsonl", "others.jsonl")
    assert "file.jsonl: 2 lines have no date" in done.remarks
    assert "start.jsonl: no date" not in done.remarks
    assert "others.jsonl: 1 line has times before 2000" in done.remarks
    hits = recall("query", store, "--between", "2026-03-03", "2026-03-03", "--json").json["hits"]
    assert len(hits) == 3
    done = recall("import", store, "others.jsonl", "--again", "--start", "2026-03-05")
    assert "before 2000" not in done.remarks
    assert len(recall("query", store, "--between", "2026-03-05", "2026-03-05", "--json").json["hits"]) == 1


def test_what_the_detector_takes_for_no_object_is_left_out(
    recall: Recall, store: Path, tmp_path: Path
) -> None:
    unsure = {**frame("a", 5), "least_scores": {"Car": 1.0}}
    lines(tmp_path / "detections.jsonl", [unsure])
    done = recall("import", store, "detections.jsonl")
    assert done.status == 0
    assert "0 memories from 1 line" in done.output
    assert "skipped 1 box with a low score; --min-score 0" in done.remarks
    taken = recall("import", store, "detections.jsonl", "--min-score", 0)
    assert "1 memory from 1 line" in taken.output
    assert "low score" not in taken.remarks


def test_without_poses_it_says_so(recall: Recall, store: Path, tmp_path: Path) -> None:
    lines(tmp_path / "detections.jsonl", [frame("a", 5)])
    done = recall("import", store, "detections.jsonl")
    assert done.status == 0
    assert "at the map origin" in done.remarks


def test_bad_lines(recall: Recall, store: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"time_ns": 1}\n{"time_ns": 2, "colour": "red"}\n{"time_ns": 3}\n')
    done = recall("import", store, "a.jsonl")
    assert done.status == 2
    assert "recall import: a.jsonl:2: unknown field 'colour'" in done.remarks
    assert "The lines before it are imported. Correct it and rerun" in done.remarks
    done = recall("import", store, "a.jsonl", "--skip-bad", "--json")
    assert done.status == 1
    assert "skipped: a.jsonl:2: unknown field" in done.remarks
    (report,) = done.json["files"]
    assert (report["memories"], report["known_lines"], len(report["problems"])) == (1, 1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["missing.jsonl"], "missing.jsonl: cannot read the file"),
        (["first.jsonl", "--rate", "5"], "--rate needs --start"),
        (["first.jsonl", "--camera-poses"], "--camera-poses needs --poses"),
        (["first.jsonl", "--poses", "missing.txt"], "missing.txt: cannot read the file"),
        (["first.jsonl", "--min-score", "2"], "min_score must be from 0 to 1"),
        (["table.csv"], "table.csv: CSV cannot be imported"),
        (["first.jsonl", "--format", "parquet"], "first.jsonl: cannot read it as Parquet"),
        (["first.jsonl", "--format", "detections"], "first.jsonl:1: boxes must be a list, got None"),
    ],
)
def test_bad_import(recall: Recall, store: Path, options: list[str], message: str) -> None:
    done = recall("import", store, *options)
    assert (done.status, done.output) == (2, "")
    assert message in done.remarks


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_out_and_in_again(recall: Recall, store: Path, tmp_path: Path, suffix: str) -> None:
    assert recall("export", store, f"all.{suffix}").output == f"4 memories in all.{suffix}\n"
    recall("init", "copy", "--dim", 3)
    assert recall("import", "copy", f"all.{suffix}").status == 0
    texts = [recall("export", folder, "-").output for folder in (store, "copy")]
    assert texts[0] == texts[1]
    assert len(texts[0].splitlines()) == 4


def test_a_part_as_geojson(recall: Recall, store: Path, tmp_path: Path) -> None:
    options = ("--label", "mug", "--near", 0, 0, "--radius", 3, "--origin", 49, 8.4, "--json")
    assert recall("export", store, "mugs.geojson", *options).json["memories"] == 1
    (feature,) = json.loads((tmp_path / "mugs.geojson").read_text())["features"]
    assert feature["properties"]["caption"] == "red mug"
    assert feature["geometry"]["coordinates"] == pytest.approx([8.4, 49.0], abs=1e-4)


def test_parquet_without_vectors(recall: Recall, store: Path, tmp_path: Path) -> None:
    recall("export", store, "a.pq", "--no-vectors", "--between", "2026-01-02", "2026-01-03")
    table = pyarrow.parquet.read_table(tmp_path / "a.pq")
    assert table.column("caption").to_pylist() == ["red mug", "blue mug"]
    assert "embedding" not in table.column_names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["a.txt"], "unknown suffix"),
        (["-", "--json"], "standard output"),
        (["-", "--format", "parquet"], "Parquet is binary"),
        (["a.jsonl", "--origin", "1", "2"], "--format geojson"),
        (["a.geojson", "--origin", "1"], "two or three numbers"),
        (["a.jsonl", "--near", "1", "2"], "--near and --radius belong together"),
        (["nowhere/a.jsonl"], "nowhere"),
        (["a.jsonl", "--label", "Mugs"], "Did you mean 'mug'?"),
        (
            ["a.jsonl", "--label", "mug", "--label", "zebra"],
            "The labels are charger, door, mug",
        ),
    ],
)
def test_bad_export(recall: Recall, store: Path, options: list[str], message: str) -> None:
    done = recall("export", store, *options)
    assert (done.status, done.output) == (2, "")
    assert message in done.remarks


def test_parquet_without_the_library(
    recall: Recall, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    done = recall("export", store, "a.parquet")
    assert done.status == 2
    assert "Parquet needs pyarrow: pip install 'sparsight[parquet]'" in done.remarks
    assert not (tmp_path / "a.parquet").exists()
    assert recall("export", store, "a.jsonl").status == 0


def test_only_what_matters(recall: Recall, store: Path, tmp_path: Path) -> None:
    rows = [
        {"time_ns": at, "label": "wall", "embedding": [1, 0, 0], "x": 50, "y": 0, "marked": at == 7}
        for at in range(30)
    ]
    lines(tmp_path / "walls.jsonl", rows)
    done = recall("import", store, "walls.jsonl", "--observe")
    assert done.status == 0
    assert "walls.jsonl: 2 of 30 observations kept, from 30 lines; undo with: recall undo" in done.output
    assert "less important than others of their place and time" in done.output
    assert "the first of their kind at their place" in done.output
    again = recall("import", store, "walls.jsonl", "--observe", "--json").json["files"][0]
    assert (again["known_lines"], again["observed"], again["why_kept"]) == (30, 0, {})
    more = recall("import", store, "walls.jsonl", "--observe", "--again", "--json").json["files"][0]
    assert (more["observed"], more["memories"]) == (30, 1)
    assert more["why_kept"] == {"marked by the user": 1}
    assert recall("query", store, "--label", "wall", "--json").output.count('"wall"') == 3
    # Without it all are kept, and nothing is said about observing.
    plain = recall("import", store, "walls.jsonl", "--again", "--json").json["files"][0]
    assert plain["memories"] == 30
    assert "observed" not in plain


def test_import_makes_the_store(recall: Recall, tmp_path: Path) -> None:
    lines(tmp_path / "detections.jsonl", [frame("gate", 7)])
    done = recall("import", "new", "detections.jsonl")
    assert done.status == 0
    assert "created new with vector length 256" in done.remarks
    record = {"time": "2026-01-01", "label": "mug", "embedding": [1.0, 0.0, 0.5]}
    lines(tmp_path / "memories.jsonl", [{"time": "2026-01-01", "label": "door"}, record])
    assert recall("import", "other", "memories.jsonl", "--observe").status == 0
    assert recall("stats", "other", "--json").json["dim"] == 3
    missing = recall("import", "third", "missing.jsonl")
    assert (missing.status, (tmp_path / "third").exists()) == (2, False)


@pytest.mark.parametrize("line", ['{"t": 1, "class": "mug"}', "stamp,x,y", "[]", "\x80"])
def test_a_bad_first_line_leaves_no_store(recall: Recall, tmp_path: Path, line: str) -> None:
    """A store of a guessed vector length would refuse the corrected file."""
    (tmp_path / "a.jsonl").write_text(f"{line}\n", encoding="latin-1")
    done = recall("import", "new", "a.jsonl")
    assert (done.status, (tmp_path / "new").exists()) == (2, False)
    assert "a.jsonl:1: " in done.remarks
    lines(tmp_path / "a.jsonl", [{"time": "2026-01-01", "label": "mug", "embedding": [1.0, 0.0]}])
    assert recall("import", "new", "a.jsonl").status == 0


def test_an_empty_import_creates_no_store(recall: Recall, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n")
    done = recall("import", "new", "a.jsonl")
    assert (done.status, done.output) == (2, "")
    assert "a.jsonl: nothing to import, so no store was created" in done.remarks
    assert not (tmp_path / "new").exists()


def test_a_folder_in_place_of_its_file_is_named(recall: Recall, tmp_path: Path) -> None:
    (tmp_path / "tracks").mkdir()
    assert "Give the output of perceive detect --parquet" in recall("import", "new", "tracks").remarks
    lines(tmp_path / "tracks/detections.jsonl", [frame("gate", 7)])
    assert "Give its file detections.jsonl" in recall("import", "new", "tracks").remarks


@pytest.mark.parametrize("command", [("init",), ("import", "folder/a.jsonl")])
def test_a_folder_of_other_files_becomes_no_store(
    recall: Recall, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "folder").mkdir()
    lines(tmp_path / "folder/a.jsonl", [{"time": "2026-01-01T10:00:00Z"}])
    done = recall(*command, "--store", "folder")
    assert done.status == 2
    assert "folder is no store, but holds other files, such as a.jsonl" in done.remarks
    assert len(list((tmp_path / "folder").iterdir())) == 1
    (tmp_path / "folder/a.jsonl").rename("folder/memory.db.new")
    assert recall("init", "folder").status == 0


@pytest.mark.parametrize("command", [("stats",), ("add", "--label", "mug"), ("undo",), ("query",)])
def test_broken_settings_are_an_error_until_repaired(
    recall: Recall, store: Path, command: tuple[str, ...]
) -> None:
    (store / "config.json").write_text("{broken")
    done = recall(*command, "--store", store)
    assert done.status == 2
    assert "config.json: not valid JSON" in done.remarks
    assert "recall check --repair" in done.remarks
    assert recall("check", store, "--repair").status == 0
    assert recall(*command, "--store", store).status == 0


def test_a_byte_order_mark_is_ignored(recall: Recall, store: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"time": "2026-01-01", "label": "mug"}\r\n')
    assert "1 memory from 1 line" in recall("import", store, "a.jsonl").output


def test_seconds_are_named(recall: Recall, store: Path, tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", [{"time_ns": 1_767_603_600, "label": "mug"}])
    done = recall("import", store, "a.jsonl")
    assert "times such as 1970-01-01T00:00:01Z are before 2000" in done.remarks


def test_an_import_again_with_other_times_says_what_to_do(
    recall: Recall, store: Path, tmp_path: Path
) -> None:
    lines(tmp_path / "detections.jsonl", [frame("gate", 7)])
    assert recall("import", store, "detections.jsonl").status == 0
    again = recall("import", store, "detections.jsonl", "--start", "2026-01-01")
    assert "keep their times and poses" in again.remarks
