"""What something looks like that is not in the store: what a scan shows, or what words say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.errors import DataError
from memory.exchange.detections import DetectionOptions, is_detections, memories_from_frame
from memory.exchange.jsonl import Line, StreamLines, parse_object, read_lines
from memory.exchange.scenes import Scenes
from memory.types import Kind, Memory

_ORIGIN = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]


def look_of_text(text: str, encoder: str | None) -> tuple[str, NDArray[np.float32]]:
    """Name of an encoder of images and texts, ``class-names`` by default, and the vector of a text by it.

    Raises:
        ImportError, ValueError: it cannot be opened.
    """
    from memory.encode import open_image_text_encoder

    opened = open_image_text_encoder(encoder or "class-names")
    return opened.name, opened.encode_texts([text])[0]


def looks_of(word: str, kind: Kind) -> list[Memory]:
    """What the last scan of a file shows and has a vector, without an id.

    Args:
        word: path of a ``detections.jsonl``, or ``-`` for standard input.
        kind: objects, or the place.

    Raises:
        DataError: no such file, or it holds none of these; names it.
    """
    path = Path("standard input" if word == "-" else word)
    lines = StreamLines(sys.stdin.buffer, str(path)) if word == "-" else read_lines(path)
    last: Line | None = None
    for line in lines:
        last = line if line.raw.strip() else last
    record: dict[str, Any] = {} if last is None else parse_object(path, last)
    if last is None or not is_detections(record):
        raise DataError(
            f"{path}: no detections; --like takes the id of a memory, or what perceive detect wrote"
        )
    # Neither the time nor the place of it is asked for, only what it looks like.
    record = {"timestamp_ns": 0, **record, "pose": {"map_from_lidar": _ORIGIN}}
    record["timestamp_ns"] = record["timestamp_ns"] or 0
    try:
        found = memories_from_frame(record, 0, DetectionOptions(), Scenes())
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}:{last.number}: {error}") from error
    looks = [each for each in found if each.kind == kind and (each.embedding is not None or each.embeddings)]
    if not looks:
        reason = "its weights give none" if kind == "object" else "perceive detect writes what it is made of"
        raise DataError(
            f"{path}:{last.number}: no vector of {'an' if kind == 'object' else 'a'} {kind}: {reason}"
        )
    return looks
