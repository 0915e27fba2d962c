"""Calls of the detector, from a numpy array to detections, compared with the dense baseline and on a busy
machine."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.calls.rows import beside, timed
from benchmarks.lib.environment import ROOT
from benchmarks.lib.scenes import load_frames
from benchmarks.lib.timing import interleave
from perception import Detector
from perception.run.precision import has_bfloat16
from perception.types import FloatArray

SPARSE, DENSE = "pointpillars-kitti", "pointpillars-kitti-dense"
_FIRST = """
import sys
from pathlib import Path
import numpy as np
from perception import Detector
Detector.from_pretrained(sys.argv[1], device=sys.argv[2])(np.load(sys.argv[3]))
"""

#: Environments of a fresh process: OpenMP reads them once, when torch is loaded.
_WAITS: dict[str, dict[str, str]] = {
    "import perception": {},
    "perceive (sleeps soon)": {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
#: Prints the milliseconds of a frame for each line of its input.
_ANSWERING = """
import sys, time
import numpy as np
from perception import Detector
detector, points = Detector.from_pretrained(sys.argv[1]), np.load(sys.argv[2])
detector(points)
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    detector(points)
    print((time.perf_counter() - start) * 1e3, flush=True)
"""


def eight_clouds(options: argparse.Namespace) -> list[FloatArray]:
    """Return eight scans; they repeat if the data have fewer."""
    found = [np.array(points) for points in load_frames(options.data, 8, seed=options.seed).points]
    return (found * 8)[:8]


def frames(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A call, a stream and a batch of eight: camera's view, host arrays in, host results out."""
    device = torch.device(options.device)
    clouds = eight_clouds(options)
    ours, dense = (Detector.from_pretrained(name, device=options.device) for name in (SPARSE, DENSE))
    few = clouds[:2] if options.quick else clouds
    # Long enough that neither its first nor its last frame counts for much.
    long = few if options.quick else clouds * 8
    called: dict[str, Callable[[FloatArray], object]] = {"ours": ours, "dense": dense}
    if device.type == "cpu" and has_bfloat16():
        called["bfloat16"] = Detector.from_pretrained(SPARSE, precision="bfloat16")
        called["dense bfloat16"] = partial(_autocast, dense)
    calls: dict[str, list[float]] = {name: [] for name in called}
    for points in few:
        sides = {name: partial(detector, points) for name, detector in called.items()}
        for name, samples in interleave(sides, device, rounds=options.rounds, warmup=2).items():
            calls[name] += samples
    for detector in (ours, dense):
        detector.warmup(clouds[0], frames=len(clouds))
    together = interleave(
        {
            "stream": lambda: list(ours.stream(long)),
            "batch": lambda: ours.detect_batch(clouds),
            "dense": lambda: dense.detect_batch(clouds),
        },
        device,
        rounds=max(1, options.rounds // 4),
    )
    a_frame = {
        "stream": [sample / len(long) for sample in together["stream"]],
        "batch": [sample / len(clouds) for sample in together["batch"]],
        "dense": [sample / len(clouds) for sample in together["dense"]],
    }
    gpu = device.type == "cuda"
    halves = []
    if "bfloat16" in calls:
        half = beside("the same in float32", calls["ours"], calls["bfloat16"])
        row = timed("detector(points), bfloat16", calls["bfloat16"], **half)
        fair = beside("dense baseline in bfloat16", calls["dense bfloat16"], calls["bfloat16"])
        halves = [
            row | {"aim_times": 1.5, "met": row["times"] >= 1.5},
            timed("detector(points), both in bfloat16", calls["bfloat16"], **fair),
        ]
    return [
        timed(
            "detector(points)",
            calls["ours"],
            0.31 if gpu else None,
            **beside("dense baseline, same API", calls["dense"], calls["ours"]),
        ),
        *halves,
        timed("Detector.stream, a frame", a_frame["stream"], 0.25 if gpu else None),
        timed(
            "detect_batch of 8, a frame",
            a_frame["batch"],
            0.12 if gpu else None,
            **beside("dense baseline, same API", a_frame["dense"], a_frame["batch"]),
        ),
    ]


def _autocast(detector: Detector, points: FloatArray) -> object:
    with torch.autocast("cpu", torch.bfloat16):
        return detector(points)


def large(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time one scan of a million points."""
    points = _repeated(load_frames(options.data, 1, seed=options.seed).points[0], options)
    detector = Detector.from_pretrained(SPARSE, device=options.device)
    device = torch.device(options.device)
    samples = interleave({"ours": lambda: detector(points)}, device, rounds=options.rounds, warmup=2)["ours"]
    return [
        timed(f"detector(points), {len(points):,} points", samples, 3.0 if device.type == "cuda" else None)
    ]


def _repeated(points: FloatArray, options: argparse.Namespace) -> FloatArray:
    """So many points as of one scan that each is there several times, moved by some centimetres."""
    count = 50_000 if options.quick else 1_000_000
    many = np.resize(points, (count, points.shape[1])).astype(np.float32)
    generator = np.random.default_rng(options.seed)
    many[:, :3] += generator.normal(0.0, 0.02, (count, 3)).astype(np.float32)
    return many


def busy(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time frames with and without a program that spins on a core, interleaved, in processes with all
    threads.

    The threads and how they wait are those that a program gets which sets nothing.
    """
    points = load_frames(options.data, 1, seed=options.seed).points[0]
    ours, dense = (Detector.from_pretrained(name, device=options.device) for name in (SPARSE, DENSE))
    sides = {"ours": lambda: ours(points), "dense": lambda: dense(points)}
    idle, taken = alone_and_beside(sides, torch.device(options.device), options)
    slower = float(np.median(taken["ours"]) / np.median(idle["ours"]))
    return [
        timed(
            "detector(points), no core taken",
            idle["ours"],
            **beside("dense baseline, same API", idle["dense"], idle["ours"]),
        ),
        timed(
            "detector(points), one core taken",
            taken["ours"],
            **beside("dense baseline, same API", taken["dense"], taken["ours"]),
        )
        | {"slower": round(slower, 2), "aim_slower": 1.7, "met": slower <= 1.7},
    ]


def alone_and_beside(
    sides: Mapping[str, Callable[[], object]], device: torch.device, options: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return milliseconds of the interleaved sides, without and with a program that spins on a core."""
    idle: dict[str, list[float]] = {name: [] for name in sides}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    interleave(sides, device, rounds=1)
    for round_ in range(max(2, options.rounds // 4)):
        for target, spins in ((idle, False), (taken, True)):
            other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if spins else None
            try:
                time.sleep(0.1)
                for name, samples in interleave(sides, device, rounds=4, warmup=0, seed=round_).items():
                    target[name] += samples
            finally:
                if other is not None:
                    other.kill()
                    other.wait()
    return idle, taken


def waiting(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time CPU frames by wait policy of the threads, interleaved, with no core, one core and all cores
    busy."""
    scan = folder / "scan.npy"
    np.save(scan, load_frames(options.data, 1, seed=options.seed).points[0])
    words = [sys.executable, "-c", _ANSWERING, SPARSE, str(scan)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    everything = os.cpu_count() or 1
    taken: dict[tuple[str, int], list[float]] = {}
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(_process(words, inherited | more)) for name, more in _WAITS.items()
        }
        for _ in range(max(2, options.rounds)):
            for cores in sorted({0, 1, everything}):
                with ExitStack() as others:
                    for _ in range(cores):
                        others.enter_context(_process([sys.executable, "-c", "while True: pass"], inherited))
                    time.sleep(0.1)
                    for name, side in sides.items():
                        taken.setdefault((name, cores), []).append(_answer(side))
    return [
        timed(f"detector(points), {name}, {cores} of {everything} cores taken", samples)
        | {"slower": round(float(np.median(samples) / np.median(taken[name, 0])), 2)}
        for (name, cores), samples in taken.items()
    ]


@contextmanager
def _process(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _answer(side: subprocess.Popen[str]) -> float:
    assert side.stdin is not None
    assert side.stdout is not None
    side.stdin.write("\n")
    side.stdin.flush()
    while (line := side.stdout.readline()) == "ready\n":
        pass
    return float(line)


def first(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """First detections of a fresh process, with no kernel cached and again.

    Python's bytecode is there, as after an installation: a process before them writes it.
    """
    scan = folder / "scan.npy"
    np.save(scan, load_frames(options.data, 1, seed=options.seed).points[0])
    with tempfile.TemporaryDirectory() as bytecode:
        with tempfile.TemporaryDirectory() as cache:
            _fresh(scan, options, cache, bytecode)
        with tempfile.TemporaryDirectory() as cache:
            taken = [_fresh(scan, options, cache, bytecode) for _ in range(2)]
    gpu = options.device == "cuda"
    return [
        timed("first detections of a fresh process", taken[:1], 5000.0 if gpu else None),
        timed("first detections of the process after it", taken[1:], 2000.0 if gpu else None),
    ]


def _fresh(scan: Path, options: argparse.Namespace, cache: str, bytecode: str) -> float:
    folders = dict.fromkeys(("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"), cache)
    folders |= {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    words: Sequence[str] = [sys.executable, "-c", _FIRST, SPARSE, options.device, str(scan)]
    start = time.perf_counter()
    subprocess.run(words, cwd=ROOT, check=True, env={**os.environ, **folders}, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1e3
