"""Memory of merging models on disk, against the bytes of the models.

    python -m benchmarks.merging.merging_files --folder /fast/disk

Eight models and their base are written to the folder tensor by tensor, merged by TIES in a separate process
with ``merge_files``, and removed. Memory is the growth of the process: private memory (sampled every two
milliseconds), and the peak including mapped file pages, which the system may drop at any time. The time
includes reading and writing the disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from benchmarks.lib.environment import ROOT
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.process_memory import anonymous_bytes, peak_bytes, reset_peak, resident_bytes
from benchmarks.lib.results import result, save, show
from benchmarks.merging.plain import model_sizes
from benchmarks.publish.screen import tables
from sparse_core.merging import merge_files, parse_recipe
from sparse_core.merging.files.tensor_files import TensorFileWriter

_NOTES = [
    "own: the most memory that belonged to the process alone; with mapped files: the peak that the"
    " system counts, in which pages of the models stand that it may drop at any time.",
    "both beyond what the process had before it merged; the largest tensor is a fifth of a model.",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "merging_files", quick="a small model: the numbers mean little")
    parser.add_argument("--sizes", type=float, nargs="+", help="parameters of a model (1e7 1e8 2e8; 1e6)")
    parser.add_argument("--models", type=int, default=8, help="models to merge, the base not counted (8)")
    parser.add_argument("--folder", type=Path, help="where the models are written (a temporary folder)")
    parser.add_argument("--merge-of", type=Path, help=argparse.SUPPRESS)
    options = parse(parser, arguments)
    device = torch.device("cpu")
    configure(device, options.threads)
    if options.merge_of is not None:
        print(json.dumps(_merge(options.merge_of, options.models)))
        return 0
    if options.device != "cpu":
        parser.error("--device cuda: models on disk are merged on the CPU")
    options.sizes = [int(size) for size in options.sizes or ([1e6] if options.quick else [1e7, 1e8, 2e8])]
    settings = asked(options, "folder", "merge_of")
    cases = [measure(options, size) for size in options.sizes]
    values = result("merging_files", device, settings, cases=cases, notes=_NOTES)
    save(values, options)
    show(values, tables(values, "merging-files"), _NOTES, as_json=options.json)
    return 0


def measure(options: argparse.Namespace, size: int) -> dict[str, Any]:
    """Write the models of one size, merge them in a process, remove them."""
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder, sizes = Path(name), model_sizes(size)
        nbytes = 4 * sum(sizes.values())
        free = shutil.disk_usage(folder).free
        if free < (options.models + 2.5) * nbytes:
            raise SystemExit(
                f"merging_files: {size:,} parameters need {(options.models + 2) * nbytes / 1e9:.1f} GB"
                f" and the disk has {free / 1e9:.1f}: choose another --folder or smaller --sizes"
            )
        generator = torch.Generator().manual_seed(options.seed)
        for number_of in track(
            range(options.models + 1),
            f"writing models of {size:,}",
            console=Console(stderr=True),
            disable=options.json,
        ):
            with TensorFileWriter(folder / f"{number_of}.safetensors", list(sizes)) as writer:
                for tensor, count in sizes.items():
                    writer.add(tensor, torch.randn(count, generator=generator))
                writer.close({"format": "pt"})
        command = [
            sys.executable,
            "-m",
            "benchmarks.merging.merging_files",
            "--merge-of",
            str(folder),
            "--models",
            str(options.models),
        ]
        done = subprocess.run(
            [*command, "--threads", str(options.threads)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"merging_files: the merge failed: {done.stderr.strip()[-500:]}")
        found = json.loads(done.stdout)
    read = (options.models + 1) * nbytes
    return {
        "parameters": sum(sizes.values()),
        "models": options.models,
        "model_bytes": nbytes,
        "all_models_bytes": read,
        "largest_tensor_bytes": 4 * max(sizes.values()),
        **found,
        "own_of_models": round(found["own_bytes"] / read, 5),
        "peak_of_models": round(found["peak_bytes"] / read, 5),
    }


def _merge(folder: Path, models: int) -> dict[str, Any]:
    """Merge the models in a folder and return memory and time."""
    values = {
        "merge_method": "ties",
        "base_model": str(folder / "0.safetensors"),
        "models": [{"model": str(folder / f"{index + 1}.safetensors")} for index in range(models)],
        "parameters": {"weight": 1.0, "density": 0.2},
    }
    recipe = parse_recipe(values)
    reset_peak()
    before, own = resident_bytes() or 0, anonymous_bytes() or 0
    most, done = own, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, anonymous_bytes() or 0)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    merge_files(recipe, folder / "merged.safetensors")
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    return {
        "own_bytes": most - own,
        "peak_bytes": peak_bytes() - before,
        "seconds": round(seconds, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
