"""Use everything that docs/adding.md adds, and print JSON. test_adding.py runs it on a copy of the packages.

Arguments: the copy, an empty folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sparse_core.linalg.row_sums.api import ROW_SUMS

import memory
import perception
import sparse_core
from memory import Memory, MemoryStore, Query, StoreConfig
from memory.config import TierOptions
from memory.index.kinds import table_of_kinds
from perception import Detector
from perception.checkpoints.compression import compress_network, save_compressed_weights
from perception.checkpoints.weights import load_weights, save_weights
from perception.cli import main as perceive
from perception.config import DetectorConfig, TrainConfig, from_dict
from perception.data import open_data_set
from perception.registry import make_network
from perception.train.data.frames import TrainingFrame
from perception.train.trainer import Trainer
from sparse_core.kernels.op import ops, table


def op(copy: Path) -> dict[str, Any]:
    """Compare both implementations by the contract of ops."""
    sys.path.insert(0, str(copy / "tests/contract"))
    sys.argv[1] = "cpu"
    compare = __import__("compare_ops")
    example = compare.EXAMPLES["row_sums"]
    return {
        "listed": ROW_SUMS in ops() and "row_sums" in str(table()),
        "auto": ROW_SUMS.choose("auto", torch.device("cpu")),
        "gradient": ROW_SUMS.gradient == bool(example.differentiated),
        "wrong": {name: compare.compare(ROW_SUMS, example, name, example.sizes)
                  for name in ROW_SUMS.implementations},
        "refused": compare.refusals(ROW_SUMS, example),
    }  # fmt: skip


def command(*words: str) -> tuple[int, str]:
    """Return exit status and output of ``perceive``."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = perceive(words)
    return status, printed.getvalue()


def data_set(folder: Path) -> dict[str, Any]:
    """Open and examine a folder of two frames."""
    folder.mkdir()
    random = np.random.default_rng(0)
    car = [10.0, 1.0, -0.9, 4.0, 1.7, 1.6, 0.3, "Car"]
    for name in ("a", "b"):
        ground = random.uniform([0, -20, -1.75, 0], [50, 20, -1.7, 1], (3000, 4))
        object_ = random.uniform([9, 0.5, -1.3, 0], [11, 1.5, -0.2, 1], (200, 4))
        np.save(folder / f"{name}.npy", np.concatenate([ground, object_]).astype(np.float32))
    (folder / "boxes.json").write_text(json.dumps({"a": [car], "b": [car]}))
    frames = open_data_set(folder, having="labels")
    status, told = command("doctor", str(folder), "--json")
    return {
        "class": type(frames).__name__,
        "frames": [[frame.frame_id, len(frame.points), frame.labels] for frame in frames],
        "doctor": [status, json.loads(told)],
    }


def index(folder: Path) -> dict[str, Any]:
    """Query a store before and after its index is read from its file."""
    config = StoreConfig(index="backwards", index_from=50, tiers=TierOptions(recent=50, background=False))
    vectors = np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32)
    found, tiers = [], []
    for _ in range(2):
        with MemoryStore.open(folder, dim=16, config=config) as store:
            if not found:
                store.add([Memory(time_ns=n, kind="note", embedding=row) for n, row in enumerate(vectors)])
            for row in (7, 290):
                (hit,) = store.query(Query(embedding=vectors[row], k=1))
                found.append(hit.memory.time_ns)
            store.settle()
            tier = store.tiers()["default"]
            tiers.append([tier.index, tier.recent, tier.long_term])
    return {"found": found, "tiers": tiers, "listed": "backwards" in str(table_of_kinds())}


def detectors(data: Path, folder: Path) -> dict[str, Any]:
    """Train, save, compress and run the backbone and the steps by name."""
    settings = {
        "pillars": {"range_m": [0, -8, -3, 16, 8, 1], "pillar_size_m": 0.25, "channels": 8},
        "backbone": {"kind": "pooled", "pool": "mean"},
        "neck": {"channels": 8, "blocks": 1, "out_channels": 8},
        "head": {"classes": ["Car"], "channels": 8},
        "nms": {"score_threshold": 0.0},
        "refine": {"channels": [8, 8]},
    }
    run = {"detector": settings, "steps": 2, "batch_size": 1, "workers": 0, "precision": "float32"}
    frame = open_data_set(data)[0]
    trained = TrainingFrame("a", frame.points, frame.truth.boxes, np.zeros(1, np.int64))
    trainer = Trainer(from_dict(TrainConfig, run), folder / "run", [trained])
    done = trainer.run(show_progress=False)
    network, plain, small = trainer.averaged_network(), folder / "a.safetensors", folder / "b.safetensors"
    save_weights(network, plain)
    folded = load_weights(plain).fold()
    save_compressed_weights(compress_network(folded, "int8"), folded.config, small)
    scan = str(data / "a.npy")
    found = {}
    for weights in (plain, small):
        out = folder / weights.stem
        status, _ = command("detect", scan, "--weights", str(weights), "--out", str(out), "--no-pictures")
        loaded = Detector.from_pretrained(weights)
        made, pool = type(loaded.network.backbone).__name__, vars(loaded.config.backbone)["pool"]
        found[out.name] = [status, made, pool, len(loaded(scan).boxes)]
    clusters = from_dict(DetectorConfig, {"backbone": {"kind": "clusters"}, "nms": {"score_threshold": 0.5}})
    detector = Detector(make_network(clusters))
    boxes = detector(scan)
    return {
        "done": done, "pooled": found, "stages": list(detector.profile(scan, repeats=1)),
        "boxes": boxes.boxes.tolist(), "scores": boxes.scores.tolist(),
        "stricter": len(detector.with_score_threshold(0.95)(scan).boxes),
    }  # fmt: skip


if __name__ == "__main__":
    copy, folder = map(Path, sys.argv[1:])
    report = {
        "packages": [str(Path(str(one.__file__)).parents[1]) for one in (sparse_core, perception, memory)],
        "data set": data_set(folder / "data"),
        "command": command("kinds"),
        "index": index(folder / "store"),
        "detectors": detectors(folder / "data", folder),
        "op": op(copy),
    }
    print(json.dumps(report))
