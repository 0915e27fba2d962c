"""Compress the shipped detector: size, average precision and latency of each way to store its weights.

    python demos/compress_detector.py                    # size and AP on the validation split, one table
    python demos/compress_detector.py --latency          # on an idle machine: times beside them
    python demos/compress_detector.py --limit 2 --rows float16 2:4+int8

2:4 rows are pruned by SparseGPT on training frames, in one pass, unless they say magnitude. Finished rows
stay in the result file; interrupted, run it again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perception import Detector
from perception.config import DetectorConfig, from_dict, to_dict
from perception.errors import PerceptionError
from perception.evaluate.data_set import evaluate_detector
from perception.evaluate.kitti_protocol import DifficultyName
from perception.io.kitti import KittiDataset
from perception.network import Network
from perception.weights import load_weights
from sparse_core.compression import compress_model, load_compressed, prune_in_one_pass, save_compressed
from sparse_core.nm import NM

PATTERN = NM(2, 4, "channels_last")
#: Layers that stay as they are: the first ones see few inputs, the last ones are small and decide.
INNER = r"^(?!encoder\.)(?!head\.(heat|box)$)(?!refinements\.\d+\.out$)"
DIFFICULTIES: tuple[DifficultyName, ...] = ("easy", "moderate", "hard")


class Row(NamedTuple):
    """One way to store the weights.

    Attributes:
        pruning: ``None``: every weight is kept; ``"magnitude"`` or ``"sparsegpt"``: 2:4.
        coding: of the values of the inner layers; the other tensors are float16 (float32 in the first row).
    """

    pruning: str | None
    coding: str


ROWS = {
    "float32": Row(None, "float32"),
    "float16": Row(None, "float16"),
    "int8": Row(None, "int8"),
    "int4": Row(None, "int4/64"),
    "codebook": Row(None, "codebook64"),
    "2:4 magnitude": Row("magnitude", "float16"),
    "2:4": Row("sparsegpt", "float16"),
    "2:4+int8": Row("sparsegpt", "int8"),
    "2:4+int4": Row("sparsegpt", "int4/64"),
    "2:4+codebook": Row("sparsegpt", "codebook64"),
}


def compressed_file(name: str, options: argparse.Namespace, calibrated: dict[str, Any]) -> Path:
    """Prune, pack and write the weights of a row."""
    row = ROWS[name]
    detector = Detector(load_weights(options.weights))  # Batch norms are folded into the weights here.
    network, masks = detector.network, None
    if row.pruning == "sparsegpt":
        if not calibrated:
            frames = KittiDataset(options.data, "train")
            step = max(1, len(frames) // options.calibration)
            clouds = [frames[place].cloud for place in range(0, len(frames), step)][: options.calibration]
            report = prune_in_one_pass(
                network, lambda: detector.detect_batch(clouds), PATTERN, select=INNER, progress=options.bars
            )
            calibrated.update(state=network.state_dict(), masks=report.masks, report=report)
        network.load_state_dict(calibrated["state"])
        masks = calibrated["masks"]
    wide = row.coding == "float32"
    compressed = compress_model(
        network,
        PATTERN if row.pruning else None,
        row.coding,
        select=INNER,
        masks=masks,
        pad=True,
        other_dtype=torch.float32 if wide else torch.float16,
    )
    file = options.out / f"{name.replace(':', '-').replace(' ', '-')}.safetensors"
    return save_compressed(compressed, file, extra={"detector": to_dict(network.config)})


def restored_detector(file: Path, device: str) -> Detector:
    """A detector of a compressed file alone."""
    found = load_compressed(file)
    network = Network(from_dict(DetectorConfig, found.extra["detector"])).fold()
    found.model.load_into(network)
    return Detector(network, device=device)


def measure_row(name: str, options: argparse.Namespace, calibrated: dict[str, Any]) -> dict[str, Any]:
    """Bytes and average precision of a row."""
    file = compressed_file(name, options, calibrated)
    weights = load_compressed(file).model
    detector = restored_detector(file, options.device)
    frames = KittiDataset(options.data, "val")
    if options.limit:
        frames.frame_ids = frames.frame_ids[: options.limit]
    bar = Progress(
        TextColumn(f"{name:14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not options.bars,
    )
    with bar, tempfile.TemporaryDirectory() as folder:
        task = bar.add_task(name, total=len(frames))
        result = evaluate_detector(detector, frames, folder, on_frame=lambda *_: bar.advance(task))
    return {
        "file": file.name,
        "file_bytes": file.stat().st_size,
        "tensor_bytes": weights.nbytes,
        "frames": len(frames),
        "car_3d": [round(result.ap("Car", "3d", level), 2) for level in DIFFICULTIES],
        "cyclist_3d": [round(result.ap("Cyclist", "3d", level), 2) for level in DIFFICULTIES],
    }


def measure_latency(results: dict[str, Any], options: argparse.Namespace) -> None:
    """Median milliseconds of a frame and of loading, the rows taking turns; needs their files."""
    names = [name for name in options.rows if name in results["rows"]]
    cloud = KittiDataset(options.data, "val")[0].cloud
    detectors = {}
    for name in names:
        begin = time.perf_counter()
        detectors[name] = restored_detector(options.out / results["rows"][name]["file"], options.device)
        results["rows"][name]["load_ms"] = round((time.perf_counter() - begin) * 1e3, 1)
    wait = torch.cuda.synchronize if options.device.startswith("cuda") else lambda: None
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.repeats + 1):
        for name, detector in detectors.items():
            wait()
            begin = time.perf_counter()
            detector(cloud)
            wait()
            samples[name].append((time.perf_counter() - begin) * 1e3)
    for name, taken in samples.items():
        results["rows"][name]["frame_ms"] = round(statistics.median(taken[1:]), 2)
    results["latency_device"] = (
        torch.cuda.get_device_name()
        if options.device.startswith("cuda")
        else f"{torch.get_num_threads()} CPU threads"
    )


def markdown(results: dict[str, Any]) -> str:
    """The table as the model card shows it."""
    timed = any("frame_ms" in row for row in results["rows"].values())
    head = ["weights", "file", "of float16", "Car 3D AP40", *(["ms a frame"] if timed else [])]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    base = results["rows"].get("float16", {}).get("file_bytes")
    for name in ROWS:
        row = results["rows"].get(name)
        if row is None:
            continue
        cells = [name, f"{row['file_bytes'] / 1e6:.2f} MB"]
        cells.append(f"{row['file_bytes'] / base:.0%}" if base else "")
        cells.append(" / ".join(f"{ap:.1f}" for ap in row["car_3d"]))
        if timed:
            cells.append(f"{row['frame_ms']:.1f}" if "frame_ms" in row else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    folder = Path(os.environ.get("SPARSIGHT_DATA", "../shared/data")) / "kitti"
    add = parser.add_argument
    add("--data", type=Path, default=folder, help="KITTI-layout folder ($SPARSIGHT_DATA/kitti)")
    add("--weights", default="pointpillars-kitti", help="shipped name or file")
    add("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="which to measure")
    add("--limit", type=int, help="validation frames (all)")
    add("--calibration", type=int, default=8, help="training frames that SparseGPT sees (8)")
    add("--latency", action="store_true", help="time the rows measured before, and nothing else")
    add("--repeats", type=int, default=20, help="timed frames of each row (20)")
    add("--device", default="cpu", help="cpu or cuda")
    add("--out", type=Path, default=Path("out/compress_detector"))
    add("--json", action="store_true", help="print the results as JSON and nothing else")
    options = parser.parse_args()
    if options.calibration < 1 or options.repeats < 1 or (options.limit is not None and options.limit < 1):
        parser.error("--calibration, --repeats and --limit take 1 or more")
    options.bars = not options.json and sys.stderr.isatty()
    return options


def main() -> None:
    """Run the demo."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "results.json"
    settings = {"weights": options.weights, "limit": options.limit, "calibration": options.calibration}
    results: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if results.get("settings") != settings:
        if options.latency:
            sys.exit(f"compress_detector: {path} holds no rows of these settings: measure them first")
        results = {"settings": settings, "rows": {}}
    calibrated: dict[str, Any] = {}
    try:
        if options.latency:
            measure_latency(results, options)
        for name in [] if options.latency else options.rows:
            if name not in results["rows"]:
                results["rows"][name] = measure_row(name, options, calibrated)
                path.write_text(json.dumps(results, indent=1) + "\n")
    except (OSError, ValueError, PerceptionError) as error:
        sys.exit(f"compress_detector: {error}")
    path.write_text(json.dumps(results, indent=1) + "\n")
    (options.out / "results.md").write_text(markdown(results))
    if options.json:
        print(json.dumps(results))
        return
    if calibrated:
        print(f"{calibrated['report']}\n")
    print(markdown(results))
    print(f"files, results.json and results.md: {options.out}")


if __name__ == "__main__":
    main()
