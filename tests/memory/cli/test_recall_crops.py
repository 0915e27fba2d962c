"""Pictures of objects from the command line: imported, and found by words."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memory.encode
from memory.encode import ImageTextEncoder


@pytest.fixture
def record(coloured: Path) -> Path:
    """Three cars of one scan, two with pictures."""
    line = {
        "frame": "a", "timestamp_ns": 7, "boxes": [[10, y, -1, 4, 1.6, 1.5, 0] for y in (-9, 0, 9)],
        "scores": [0.9, 0.8, 0.7], "labels": ["Car"] * 3, "crops": ["crops/green.jpg", "crops/red.jpg", None],
    }  # fmt: skip
    path = coloured / "detections.jsonl"
    path.write_text(f"{json.dumps(line)}\n")
    return path


@pytest.fixture(autouse=True)
def _known_by_name(monkeypatch: pytest.MonkeyPatch, colours: ImageTextEncoder) -> None:
    """Commands open the quick encoder by its name, and others as they do."""
    usual = memory.encode.open_image_text_encoder

    def opened(name: str) -> ImageTextEncoder:
        return colours if name == "colours" else usual(name)

    monkeypatch.setattr(memory.encode, "open_image_text_encoder", opened)


def test_words_find_pictures(recall: Callable[..., Any], record: Path) -> None:
    done = recall("import", "new", record, "--image-encoder", "colours")
    assert done.status == 0
    assert "1 box without an image crop" in done.remarks
    assert "3 memories from 1 line" in done.output
    found = recall("query", "new", "--like-text", "red", "--encoder", "colours", "--json").json["hits"]
    assert [hit["memory"]["id"] for hit in found] == [2, 1]
    assert found[0]["memory"]["payload"]["crop"] == str(record.parent / "crops/red.jpg")
    told = recall("ask", "new", "similar", "--like-text", "green", "--encoder", "colours")
    assert told.output.startswith("2 memories similar to 'green': Car (memory 1) of ")
    alike = recall("ask", "new", "similar", "1", "--encoder", "colours")
    assert "1 memory similar to Car (memory 1): Car (memory 2)" in alike.output
    again = recall("import", "new", record, "--image-encoder", "colours")
    assert "0 memories from 0 lines; skipped 1 line that was imported before" in again.output
    assert again.remarks == ""


def test_lines_that_were_imported_without_say_so(recall: Callable[..., Any], record: Path) -> None:
    assert recall("import", "new", record).status == 0
    again = recall("import", "new", record, "--image-encoder", "colours")
    assert "no vectors of 'colours'. Undo" in again.remarks
    assert recall("undo", "new", 1).status == 0
    done = recall("import", "new", record, "--image-encoder", "colours")
    assert "3 memories from 1 line" in done.output
    assert (
        len(recall("query", "new", "--like-text", "red", "--encoder", "colours", "--json").json["hits"]) == 2
    )


def test_a_stream_names_the_folder_of_its_pictures(
    recall: Callable[..., Any], record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for crops, status in (((), 2), (("--crops", record.parent), 0)):
        with record.open() as stream:
            monkeypatch.setattr("sys.stdin", stream)
            done = recall("import", "new", "-", "--image-encoder", "colours", *crops)
        assert done.status == status, done.remarks
        assert ("--crops FOLDER" in done.remarks) == bool(status)


def test_nothing_is_made_where_a_package_is_missing(
    recall: Callable[..., Any], record: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = recall("import", "new", record, "--image-encoder", "google/siglip-base-patch16-224")
    assert done.status == 2
    assert "pip install 'sparsight[image-text]'" in done.remarks
    assert not (tmp_path / "new").exists()


def test_options_that_do_not_go_together(recall: Callable[..., Any], store: Path) -> None:
    for words, message in (
        (("similar", "1", "--like-text", "red"), "an ID and --like-text exclude each other"),
        (("similar", "--like", "1", "--like-text", "red"), "exclude each other"),
        (("last-seen", "--like-text", "red"), "last-seen does not accept --like-text"),
        (("where is the mug?", "--encoder", "colours"), "a question in words does not accept --encoder"),
    ):
        done = recall("ask", store, *words)
        assert (done.status, message in done.remarks) == (2, True), done.remarks
