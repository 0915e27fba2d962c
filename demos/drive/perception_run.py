"""Perceiving a long drive once, day by day, on several processes; what is there already is left alone."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path

import torch

import memory.encode.scene
import perception.simulate
from drive.frames import DriveConfig, Frame, simulated
from drive.perceiving import DETECTOR, Percept, Senses, remembered
from drive.percepts import perceive, read_percepts, write_percepts
from drive.town import Town, TownConfig
from perception.checkpoints.weights import resolve_weights

#: Changed when frames or percepts of the same settings become others.
VERSION = 1


def setting_of(town: TownConfig, drive: DriveConfig, range_m: float | None = None) -> str:
    """A name for what percepts depend on: settings, the simulator's sources, the weights of both networks."""
    digest = hashlib.sha256()
    said = {"version": VERSION, "town": asdict(town), "drive": asdict(replace(drive, seed=0))}
    if range_m is not None:
        said["range_m"] = range_m
    digest.update(json.dumps(said, sort_keys=True).encode())
    sources = sorted(Path(perception.simulate.__file__).parent.rglob("*.py"))
    for path in [*sources, resolve_weights(DETECTOR), memory.encode.scene.WEIGHTS]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def file_of(
    folder: Path, town: TownConfig, drive: DriveConfig, day: int, range_m: float | None = None
) -> Path:
    """Where the percepts of a day are kept."""
    return folder / setting_of(town, drive, range_m) / f"seed{drive.seed}-day{day}.jsonl.gz"


def perceive_days(
    folder: Path,
    town: TownConfig,
    drives: Sequence[DriveConfig],
    *,
    processes: int,
    range_m: float | None = None,
) -> Iterator[tuple[int, int]]:
    """Perceive every day of several drives that is not in the folder yet.

    Args:
        folder: for the percepts.
        town: its sizes; each drive has its own town by its seed.
        drives: by seed.
        processes: that work at the same time, each on one thread.
        range_m: keep detections that are remembered within this range only; None: all that there are.

    Yields:
        Days that are there, and of how many, whenever one is done.
    """
    wanted = [(town, drive, day, range_m) for drive in drives for day in range(drive.days)]
    missing = [job for job in wanted if not file_of(folder, *job).exists()]
    done = len(wanted) - len(missing)
    yield done, len(wanted)
    if not missing:
        return
    file_of(folder, *missing[0]).parent.mkdir(parents=True, exist_ok=True)
    start = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=start) as pool:
        for future in as_completed([pool.submit(_perceive_day, folder, *job) for job in missing]):
            future.result()
            done += 1
            yield done, len(wanted)


def recalled(
    folder: Path, town: TownConfig, drive: DriveConfig, range_m: float | None = None
) -> Iterator[tuple[Frame, Percept]]:
    """A drive with what was made of it, from the folder."""
    for day in range(drive.days):
        yield from read_percepts(file_of(folder, town, drive, day, range_m))


def _perceive_day(
    folder: Path, town: TownConfig, drive: DriveConfig, day: int, range_m: float | None
) -> None:
    torch.set_num_threads(1)
    frames = simulated(Town(town, drive.days, drive.seed), drive, [day])
    perceived = perceive(frames, Senses())
    if range_m is not None:
        perceived = ((frame, _kept(percept, range_m)) for frame, percept in perceived)
    write_percepts(file_of(folder, town, drive, day, range_m), perceived)


def _kept(percept: Percept, range_m: float) -> Percept:
    return percept._replace(detections=percept.detections[remembered(percept.detections, range_m)])
