"""Rows of numbers in records, and detections out of them again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from memory.exchange.vectors import rows_of
from perception import Detections
from perception.types import EMBEDDING_DIM
from perception.vectors import packed, unpacked


def units(count: int) -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(count, EMBEDDING_DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_rows_come_back_in_half_precision_here_and_in_the_memory(count: int) -> None:
    rows = units(count)
    record = json.loads(json.dumps(packed(rows)))
    assert (record["format"], record["dim"]) == ("float16", EMBEDDING_DIM)
    for read in (unpacked(record, "rows"), rows_of(record, "rows", count)):
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, rows.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("count", [0, 3])
def test_detections_come_back(count: int) -> None:
    boxes = np.arange(count * 7, dtype=np.float32).reshape(count, 7)
    scores, labels = np.linspace(1, 0, count, dtype=np.float32), ["Car"] * count
    found = Detections(boxes, scores, labels, 5, "a.bin", ("w",), units(count))
    again = Detections.from_dict(json.loads(json.dumps(found.to_dict())))
    assert (again.labels, again.timestamp_ns, again.source, again.warnings) == (labels, 5, "a.bin", ("w",))
    np.testing.assert_array_equal(again.boxes, boxes)
    np.testing.assert_allclose(again.embeddings, found.embeddings, atol=1e-3)
    bare = Detections(boxes, scores, labels)
    assert "embeddings" not in bare.to_dict()
    assert Detections.from_dict(bare.to_dict()).embeddings is None


BAD: list[tuple[Any, str]] = [
    ([[1.0, 2.0]], "rows must be an object with format 'float16'"),
    ({"format": "float32", "dim": 2, "base64": ""}, "format 'float16'"),
    ({"format": "float16", "dim": 0, "base64": ""}, "dim must be a whole number above 0, got 0"),
    ({"format": "float16", "dim": 2, "base64": "AAA"}, "base64"),
    ({"format": "float16", "dim": 2, "base64": 3}, "base64"),
    ({"format": "float16", "dim": 2, "base64": "AAAA"}, "3 bytes"),
]


@pytest.mark.parametrize(("record", "message"), BAD)
def test_what_is_no_rows_is_told(record: Any, message: str) -> None:
    for read in (unpacked, rows_of):
        with pytest.raises(ValueError, match=message):
            read(record, "rows")


def test_numbers_that_half_precision_cannot_hold() -> None:
    with pytest.raises(ValueError, match="at most 65504"):
        packed(np.full((1, 2), 1e6, np.float32))
    infinite = {"format": "float16", "dim": 1, "base64": "AHw="}
    with pytest.raises(ValueError, match="rows must be finite"):
        rows_of(infinite, "rows")
    with pytest.raises(ValueError, match="must have 2 rows, one per box, got 1"):
        rows_of(packed(np.ones((1, 2), np.float32)), "rows", 2)
    with pytest.raises(ValueError, match="boxes must be a list, got None"):
        Detections.from_dict({})
