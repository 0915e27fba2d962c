"""Pictures of detected objects, and their vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from memory import MemoryStore, Query
from memory.encode import ImageTextEncoder
from memory.errors import DataError
from memory.exchange import import_source, open_source
from memory.exchange.crops import Crops
from memory.exchange.detections import DetectionOptions
from memory.persistence.sqlite.database import SqliteDatabase
from perception.vectors import packed


def frame(number: int, crops: Any) -> dict[str, Any]:
    """Three objects, the last one too unlikely to be imported."""
    return {
        "frame": f"{number}",
        "timestamp_ns": number,
        "boxes": [[10, 2, -1, 4, 1.6, 1.5, 0.3], [5, 0, -1, 0.8, 0.6, 1.7, 3], [20, 0, 0, 4, 2, 2, 0]],
        "scores": [0.9, 0.8, 0.2],
        "labels": ["Car", "Cyclist", "Car"],
        "least_scores": {"Car": 0.5},
        "embeddings": packed(np.eye(3, 8, dtype=np.float32)),
        "crops": crops,
    }


@pytest.fixture
def record(coloured: Path) -> Path:
    """Two scans with pictures, and one without."""
    lines = [
        frame(1, ["crops/red.jpg", "crops/blue.jpg", "crops/none.jpg"]),
        frame(2, [None, "crops/green.jpg", None]),
        {name: value for name, value in frame(3, None).items() if name != "crops"},
    ]
    path = coloured / "detections.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def import_file(folder: Path, path: Path, pictures: ImageTextEncoder, **options: Any) -> Any:
    """Import into a store for vectors of eight numbers."""
    source = open_source(path, detections=DetectionOptions(image_encoder=pictures, **options))
    with SqliteDatabase.open(folder, create=True, dim=8) as database:
        return import_source(database, source), source


def test_words_find_what_the_camera_saw(record: Path, tmp_path: Path, colours: ImageTextEncoder) -> None:
    done, source = import_file(tmp_path / "store", record, colours)
    # The unlikely car has no picture there, which nobody opens.
    assert (done.memories, source.boxes, source.pictured) == (6, 6, 3)
    with MemoryStore.open(tmp_path / "store", readonly=True) as store:
        assert store.encoders() == {"default": 8, "colours": 3}
        for word, label, moment in (("red", "Car", 1), ("blue", "Cyclist", 1), ("green", "Cyclist", 2)):
            hits = store.query(Query(embedding=colours.encode_texts([word])[0], encoder="colours", k=9))
            assert len(hits) == 3
            assert (hits[0].memory.label, hits[0].memory.time_ns) == (label, moment)
            assert hits[0].score > 0.99 > hits[1].score
        first, *_ = store.get([1])
        assert first.payload["crop"] == str(record.parent / "crops/red.jpg")
        # The vector of the box is beside it.
        np.testing.assert_array_equal(first.embedding, np.eye(8)[0])
    again, source = import_file(tmp_path / "store", record, colours)
    assert (again.memories, again.known_lines) == (0, 3)
    assert source.expected == {"colours": "colours"}


def test_vectors_of_boxes_under_another_name_stay_beside(
    record: Path, tmp_path: Path, colours: ImageTextEncoder
) -> None:
    import_file(tmp_path / "store", record, colours, encoder="boxes")
    with MemoryStore.open(tmp_path / "store", readonly=True) as store:
        (memory,) = store.get([1])
        assert (memory.embedding, set(memory.embeddings)) == (None, {"boxes", "colours"})


def test_without_an_encoder_pictures_are_named_and_not_opened(
    tmp_path: Path, colours: ImageTextEncoder
) -> None:
    crops = Crops(tmp_path)
    (path, none) = crops.paths({"crops": ["crops/red.jpg", None]}, 2)
    assert (path, none) == (tmp_path / "crops/red.jpg", None)
    assert crops.vectors([path, none]) == [{}, {}]
    assert Crops(tmp_path, colours).vectors([None]) == [{}]


def test_names_are_relative_to_the_folder_that_is_given(
    record: Path, tmp_path: Path, colours: ImageTextEncoder
) -> None:
    moved = record.rename(tmp_path / "moved.jsonl")
    with pytest.raises(DataError, match=r"moved\.jsonl:1: .*red\.jpg: no such image"):
        import_file(tmp_path / "store", moved, colours)
    assert import_file(tmp_path / "store", moved, colours, crops=tmp_path / "out")[1].pictured == 3


def test_a_picture_that_cannot_be_read_keeps_its_line_out(
    record: Path, tmp_path: Path, colours: ImageTextEncoder
) -> None:
    (record.parent / "crops/green.jpg").write_bytes(b"no picture")
    with pytest.raises(
        DataError, match=r"detections\.jsonl:2: .*green\.jpg: not an image .*--crops --overwrite"
    ):
        import_file(tmp_path / "store", record, colours)
    with MemoryStore.open(tmp_path / "store", readonly=True) as store:
        assert [memory.time_ns for memory in store.get([1, 2])] == [1, 1]
        assert len(store) == 2
    Image.new("RGB", (9, 9), (0, 200, 0)).save(record.parent / "crops/green.jpg")
    done, _ = import_file(tmp_path / "store", record, colours)
    assert (done.memories, done.known_lines) == (4, 1)


@pytest.mark.parametrize(
    ("crops", "message"),
    [
        ("crops/red.jpg", "crops must be a list of 3 names"),
        (["crops/red.jpg"], "crops must be a list of 3 names or nulls"),
        ([None, 3, None], r"crops\[1\] must be the name of a file or null, got 3"),
        ([None, None, ""], r"crops\[2\] must be the name of a file or null, got ''"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, crops: Any, message: str, colours: ImageTextEncoder) -> None:
    path = tmp_path / "detections.jsonl"
    path.write_text(json.dumps(frame(1, crops)))
    with pytest.raises(DataError, match=rf"detections\.jsonl:1: {message}"):
        import_file(tmp_path / "store", path, colours)


def test_vectors_of_another_length_are_refused(
    record: Path, tmp_path: Path, colours: ImageTextEncoder
) -> None:
    import_file(tmp_path / "store", record, colours)
    colours.dim = 4
    source = open_source(record, detections=DetectionOptions(image_encoder=colours))
    with (
        SqliteDatabase.open(tmp_path / "store") as database,
        pytest.raises(DataError, match="image encoder's vectors have 4 numbers"),
    ):
        import_source(database, source, again=True)
