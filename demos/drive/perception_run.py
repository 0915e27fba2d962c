"""Perception of a long drive, day by day in several processes; finished days are skipped."""

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
from drive.frames import DriveConfig, Frame, simulated_frames
from drive.percepts import perceive, read_percepts, write_percepts
from drive.senses import DETECTOR, Percept, Senses, rememberable
from drive.town import Town, TownConfig
from perception.checkpoints.weights import resolve_weights

#: Increment when the same settings give other frames or percepts.
VERSION = 1


def setting_of(town: TownConfig, drive: DriveConfig, range_m: float | None = None) -> str:
    """Return a name for all inputs of percepts: settings, simulator sources, and weights of both networks."""
    digest = hashlib.sha256()
    inputs = {"version": VERSION, "town": asdict(town), "drive": asdict(replace(drive, seed=0))}
    if range_m is not None:
        inputs["range_m"] = range_m
    digest.update(json.dumps(inputs, sort_keys=True).encode())
    sources = sorted(Path(perception.simulate.__file__).parent.rglob("*.py"))
    for path in [*sources, resolve_weights(DETECTOR), memory.encode.scene.WEIGHTS]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def file_of(
    folder: Path, town: TownConfig, drive: DriveConfig, day: int, range_m: float | None = None
) -> Path:
    """Return the file with the percepts of a day."""
    return folder / setting_of(town, drive, range_m) / f"seed{drive.seed}-day{day}.jsonl.gz"


def perceive_days(
    folder: Path,
    town: TownConfig,
    drives: Sequence[DriveConfig],
    *,
    processes: int,
    range_m: float | None = None,
) -> Iterator[tuple[int, int]]:
    """Perceive every missing day of several drives.

    Args:
        folder: for the percepts.
        town: settings; each drive has its own town by seed.
        drives: by seed.
        processes: number of worker processes, each with one thread.
        range_m: store only detections to remember within this range; None: all detections.

    Yields:
        Number of finished days and of all days, after each day.
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


def read_drive(
    folder: Path, town: TownConfig, drive: DriveConfig, range_m: float | None = None
) -> Iterator[tuple[Frame, Percept]]:
    """Yield the frames of a drive with their percepts, from the folder."""
    for day in range(drive.days):
        yield from read_percepts(file_of(folder, town, drive, day, range_m))


def _perceive_day(
    folder: Path, town: TownConfig, drive: DriveConfig, day: int, range_m: float | None
) -> None:
    torch.set_num_threads(1)
    frames = simulated_frames(Town(town, drive.days, drive.seed), drive, [day])
    perceived = perceive(frames, Senses())
    if range_m is not None:
        perceived = ((frame, _kept(percept, range_m)) for frame, percept in perceived)
    write_percepts(file_of(folder, town, drive, day, range_m), perceived)


def _kept(percept: Percept, range_m: float) -> Percept:
    return percept._replace(detections=percept.detections[rememberable(percept.detections, range_m)])
