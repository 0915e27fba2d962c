"""Vectors of objects that are not in the store: from a scan, or from a text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.errors import DataError
from memory.exchange.detections import is_detections, view_from_frame
from memory.exchange.jsonl import Line, StreamLines, parse_object, read_lines
from memory.types import Kind, Memory


def look_of_text(text: str, encoder: str | None) -> tuple[str, NDArray[np.float32]]:
    """Return the name of an image-text encoder (default: ``class-names``) and its vector of a text."""
    from memory.encode import open_image_text_encoder

    opened = open_image_text_encoder(encoder or "class-names")
    return opened.name, opened.encode_texts([text])[0]


def looks_of(word: str, kind: Kind) -> list[Memory]:
    """Return the memories with vectors of the last scan of a file; they have no ids.

    Args:
        word: path of a ``detections.jsonl``, or ``-`` for standard input.
        kind: ``"object"`` or ``"place"``.

    Raises:
        DataError: the file is missing or has no such vectors.
    """
    found, where = view_of(word)
    looks = [each for each in found if each.kind == kind and (each.embedding is not None or each.embeddings)]
    if not looks:
        fix = (
            "Detect with weights that have an embedding head"
            if kind == "object"
            else "Run perceive detect again"
        )
        raise DataError(f"{where}: the scan has no {kind} embeddings. {fix}")
    return looks


def view_of(word: str) -> tuple[list[Memory], str]:
    """Return the objects and the place of the last scan of a file, in the frame of its sensor, and its line.

    Args:
        word: path of a ``detections.jsonl``, or ``-`` for standard input.

    Raises:
        DataError: the file is missing or has no detections.
    """
    path = Path("standard input" if word == "-" else word)
    lines = StreamLines(sys.stdin.buffer, str(path)) if word == "-" else read_lines(path)
    last: Line | None = None
    for line in lines:
        last = line if line.raw.strip() else last
    record: dict[str, Any] = {} if last is None else parse_object(path, last)
    if last is None or not is_detections(record):
        raise DataError(
            f"{path}: no detections found. --like takes the id of a memory or a detections.jsonl of perceive"
        )
    try:
        return view_from_frame(record), f"{path}:{last.number}"
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}:{last.number}: {error}") from error
