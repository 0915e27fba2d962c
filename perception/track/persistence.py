"""Saving and loading of a tracker between frames; the loaded tracker continues bit for bit.

The file is a ``.npz`` with the arrays of the tracks and one line of JSON. It contains no code.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from perception.errors import DataError
from perception.track.config import ClassConfig, Parameters, TrackerConfig
from perception.track.lifecycle import LostTracks
from perception.track.poses import SensorPath
from perception.track.state import COUNTS, NUMBERS, TrackState
from perception.track.tracker import Tracker
from perception.types import EMBEDDING_DIM
from sparse_core.common.files import replacing

_VERSION = 3


def save_tracker(tracker: Tracker, path: str | Path) -> None:
    """Write a tracker to a file in an existing folder.

    Raises:
        DataError: the file cannot be written.
    """
    config, path_of = tracker.config, tracker.path
    about = {
        "version": _VERSION,
        "classes": {name: asdict(one) for name, one in config.classes.items()},
        "other": asdict(config.other),
        "frame_s": config.frame_s,
        "names": tracker.parameters.names,
        "next_id": tracker.next_id,
        "time_ns": tracker.time_ns,
        "interval_s": tracker.interval_s,
        "sector": list(tracker.sector),
        "seconds": path_of.seconds,
        "given": path_of.given,
        "placed": path_of.pose is not None,
    }
    arrays: dict[str, Any] = {"motion": path_of.motion}
    arrays["pose"] = np.eye(4) if path_of.pose is None else path_of.pose
    for name, state in (("tracks", tracker.state), ("waiting", tracker.lost.state)):
        for part in ("numbers", "counts", "embeddings"):
            arrays[f"{name}_{part}"] = getattr(state, part)
    try:
        with replacing(Path(path)) as temporary, temporary.open("wb") as stream:
            np.savez(stream, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
    except OSError as error:
        raise DataError(f"{path}: cannot write the file ({error.strerror}). Check the folder") from error


def load_tracker(path: str | Path) -> Tracker:
    """Load a tracker from a file.

    Raises:
        DataError: the file is missing, damaged, or of another version.
    """
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        about = json.loads(arrays["about"].tobytes())
        if about["version"] != _VERSION:
            raise DataError(
                f"{path}: saved with format {about['version']}, but this version reads format {_VERSION};"
                " start a new Tracker"
            )
        return _tracker(about, arrays)
    except OSError as error:
        raise DataError(
            f"{path}: cannot read the file ({error.strerror or error}). Check the path"
        ) from error
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a saved tracker ({error}); write one with save_tracker") from error


def _tracker(about: dict[str, Any], arrays: dict[str, Any]) -> Tracker:
    config = TrackerConfig(
        classes={name: ClassConfig(**one) for name, one in about["classes"].items()},
        other=ClassConfig(**about["other"]),
        frame_s=about["frame_s"],
    )
    tracker = Tracker(config)
    tracker.parameters = Parameters(config, about["names"])
    tracker.state, tracker.lost = _state(arrays, "tracks"), LostTracks(_state(arrays, "waiting"))
    tracker.path = SensorPath(
        arrays["pose"] if about["placed"] else None, arrays["motion"], about["seconds"], about["given"]
    )
    tracker.next_id, tracker.time_ns = about["next_id"], about["time_ns"]
    tracker.interval_s = about["interval_s"]
    tracker.sector = about["sector"][0], about["sector"][1]
    return tracker


def _state(arrays: dict[str, Any], name: str) -> TrackState:
    numbers, counts, vectors = (arrays[f"{name}_{part}"] for part in ("numbers", "counts", "embeddings"))
    shapes = numbers.shape, counts.shape, vectors.shape
    if shapes != ((len(counts), NUMBERS), (len(counts), COUNTS), (len(counts), EMBEDDING_DIM)):
        raise ValueError(f"arrays of tracks have shapes {shapes}")
    return TrackState(numbers, counts, vectors)
