"""Compress the shipped detector; list size and average precision of every way to store its weights.

    python demos/compress_detector.py                    # every way, on the validation split, one table
    python demos/compress_detector.py --limit 2 --rows float16 2:4+int8

`perceive train pointpillars-kitti --from pointpillars-kitti --masks 2:4 ...` recovers the accuracy lost by
pruning:

    python demos/compress_detector.py --tuned RUN/weights.safetensors

2:4 rows are pruned by SparseGPT on training frames in one pass, unless named magnitude or tuned. The result
file keeps finished rows, so an interrupted run resumes. `benchmarks/detector/compression.py` measures times.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perception import Detector
from perception.checkpoints.compression import (
    INNER,
    PATTERN,
    compress_network,
    kept_masks,
    run_every_layer,
    save_compressed_weights,
)
from perception.checkpoints.weights import load_weights
from perception.data import open_data_set
from perception.errors import PerceptionError
from perception.evaluate.data_set import evaluate_detector
from perception.evaluate.kitti import KittiResult
from perception.evaluate.kitti.protocol import DifficultyName
from sparse_core.common.commands import failure, reported_file_errors
from sparse_core.common.files import write_file
from sparse_core.compression import load_compressed, prune_in_one_pass

DIFFICULTIES: tuple[DifficultyName, ...] = ("easy", "moderate", "hard")


class Row(NamedTuple):
    """One way to store the weights.

    Attributes:
        pruning: None: no pruning; ``"magnitude"`` or ``"sparsegpt"``: 2:4; ``"tuned"``: the mask of the
            fine-tuned weights.
        coding: of the inner layers' values; other tensors are float16 (float32 in the first row).
        source: file of a tuned row; None: ``--weights``. A compressed file is used unmodified.
    """

    pruning: str | None
    coding: str
    source: Path | None = None


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
#: Rows of fine-tuned weights; rows of compressed files are named "… trained".
TUNED = {f"{name} tuned": row.coding for name, row in ROWS.items() if row.pruning == "sparsegpt"}


def tuned_rows(files: list[Path]) -> dict[str, Row]:
    """Return the additional rows of fine-tuned weights.

    Raises:
        ValueError: a file does not contain weights.
    """
    found: dict[str, Row] = {}
    for file in files:
        try:
            compressed = load_compressed(file).model
        except ValueError as error:
            if "did not write it" not in str(error):
                raise
            found |= {name: Row("tuned", coding, file) for name, coding in TUNED.items()}
            continue
        weight = next(iter(compressed.weights.values()))
        short = {
            row.coding: name for name, row in ROWS.items() if (row.pruning == "sparsegpt") == weight.sparse
        }
        coding = f"{weight.coding}"
        found[f"{short.get(coding, coding)} trained"] = Row("tuned", coding, file)
    return found


def compressed_file(name: str, row: Row, options: argparse.Namespace, calibrated: dict[str, Any]) -> Path:
    """Prune, pack and write the weights of a row."""
    file: Path = options.out / f"{name.replace(':', '-').replace(' ', '-')}.safetensors"
    if name.endswith(" trained"):
        assert row.source is not None
        write_file(file, row.source.read_bytes())
        return file
    network, masks = load_weights(row.source or options.weights).fold(), None
    if row.pruning == "tuned":
        masks = kept_masks(network)
        if masks is None:
            raise ValueError(f"{row.source}: the weights are not 2:4; train them with --masks 2:4")
    elif row.pruning == "sparsegpt":
        if not calibrated:
            frames = open_data_set(options.data, "train")
            step = max(1, len(frames) // options.calibration)
            places = range(0, len(frames), step)[: options.calibration]
            clouds = [torch.tensor(frames[place].points) for place in places]
            report = prune_in_one_pass(
                network,
                lambda: run_every_layer(network, clouds),
                PATTERN,
                select=INNER,
                progress=options.bars,
            )
            calibrated.update(state=network.state_dict(), masks=report.masks, report=report)
        network.load_state_dict(calibrated["state"])
        masks = calibrated["masks"]
    compressed = compress_network(
        network,
        row.coding,
        pattern=PATTERN if row.pruning else None,
        masks=masks,
        dtype=torch.float32 if row.coding == "float32" else torch.float16,
    )
    return save_compressed_weights(compressed, network.config, file)


def measure_row(
    name: str, row: Row, options: argparse.Namespace, calibrated: dict[str, Any]
) -> dict[str, Any]:
    """Measure the size and average precision of a row."""
    file = compressed_file(name, row, options, calibrated)
    weights = load_compressed(file).model
    detector = Detector.from_pretrained(file, options.device)
    frames = open_data_set(options.data, "val")
    if options.limit:
        frames.frame_ids = frames.frame_ids[: options.limit]
    bar = Progress(
        TextColumn(f"{name:20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not options.bars,
    )
    with bar, tempfile.TemporaryDirectory() as folder:
        task = bar.add_task(name, total=len(frames))
        result = evaluate_detector(detector, frames, folder, on_frame=lambda *_: bar.advance(task))
        assert isinstance(result, KittiResult), "frames with a camera"
    return {
        "pruning": row.pruning,
        "coding": row.coding,
        "source_crc32": checksum(row),
        "file": file.name,
        "file_bytes": file.stat().st_size,
        "tensor_bytes": weights.nbytes,
        "frames": len(frames),
        "car_3d": [round(result.ap("Car", "3d", level), 2) for level in DIFFICULTIES],
        "cyclist_3d": [round(result.ap("Cyclist", "3d", level), 2) for level in DIFFICULTIES],
    }


def checksum(row: Row) -> int | None:
    """Return the checksum of a tuned row's source file."""
    return None if row.source is None else zlib.crc32(row.source.read_bytes())


def markdown(results: dict[str, Any]) -> str:
    """Return the results as a Markdown table."""
    lines = ["| weights | file | of float16 | Car 3D AP40 |", "|---|---|---|---|"]
    base = results["rows"].get("float16", {}).get("file_bytes")
    for name in sorted(results["rows"], key=[*ROWS, *TUNED, *results["rows"]].index):
        row = results["rows"][name]
        cells = [name, f"{row['file_bytes'] / 1e6:.2f} MB"]
        cells.append(f"{row['file_bytes'] / base:.0%}" if base else "")
        cells.append(" / ".join(f"{ap:.1f}" for ap in row["car_3d"]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    folder = Path(os.environ.get("SPARSIGHT_DATA", "../shared/data")) / "kitti"
    add = parser.add_argument
    add("--data", type=Path, default=folder, help="KITTI-layout folder ($SPARSIGHT_DATA/kitti)")
    add("--weights", default="pointpillars-kitti", help="shipped name or file")
    add("--rows", nargs="+", choices=[*ROWS, *TUNED], help="rows to measure (all)")
    add(
        "--tuned",
        nargs="+",
        type=Path,
        default=[],
        help="weights of `perceive train --masks 2:4` (more rows)",
    )
    add("--limit", type=int, help="number of validation frames (all)")
    add("--calibration", type=int, default=8, help="number of training frames for SparseGPT (8)")
    add("--device", default="cpu", help="cpu or cuda")
    add("--out", type=Path, default=Path("out/compress_detector"))
    add("--json", action="store_true", help="print the results as JSON and nothing else")
    options = parser.parse_args()
    if options.calibration < 1 or (options.limit is not None and options.limit < 1):
        parser.error("--calibration and --limit take 1 or more")
    options.bars = not options.json and sys.stderr.isatty()
    return options


def main() -> None:
    """Run the demo."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "results.json"
    settings = {"weights": options.weights, "limit": options.limit, "calibration": options.calibration}
    calibrated: dict[str, Any] = {}
    try:
        results: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        if results.get("settings") != settings:
            results = {"settings": settings, "rows": {}}
        rows = ROWS | tuned_rows(options.tuned)
        wanted = options.rows or list(rows)
        missing = [name for name in wanted if name not in rows]
        if missing:
            raise ValueError(f"{', '.join(missing)}: pass the fine-tuned weights with --tuned FILE")
        for name in wanted:
            known = results["rows"].get(name)
            if known is None or known["source_crc32"] != checksum(rows[name]):
                results["rows"][name] = measure_row(name, rows[name], options, calibrated)
                write_file(path, json.dumps(results, indent=1) + "\n")
    except (OSError, ValueError, PerceptionError) as error:
        sys.exit(f"compress_detector: {failure(error)}")
    write_file(path, json.dumps(results, indent=1) + "\n")
    write_file(options.out / "results.md", markdown(results))
    if options.json:
        print(json.dumps(results))
        return
    if calibrated:
        print(f"{calibrated['report']}\n")
    print(markdown(results))
    print(f"files, results.json and results.md: {options.out}")


if __name__ == "__main__":
    with reported_file_errors("compress_detector"):
        main()
