"""The table about compressed weights in the detector's model card, made from three result files.

`demos/compress_detector.py` writes sizes and average precision, `bench_compression.py` the times. The text is
empty where the first of them does not exist.
"""

from __future__ import annotations

from typing import Any

from benchmarks.published_text import load_result, markdown_table
from benchmarks.results import number

_ACCURACY, _CPU, _GPU = "compression-accuracy", "compression-cpu", "compression-cuda"
_BASE = "float16"


def variants() -> str:
    """Each way to store the weights: bytes, average precision, time to load, time of a frame."""
    accuracy = load_result(_ACCURACY)
    if accuracy is None:
        return ""
    cpu, gpu = (load_result(name) or {"rows": {}} for name in (_CPU, _GPU))
    base = accuracy["rows"][_BASE]["file_bytes"]
    rows = []
    for name, found in accuracy["rows"].items():
        plain = _timed_name(name)
        rows.append(
            [
                plain,
                _training(name, found),
                f"{found['file_bytes'] / 1e6:.2f} MB",
                f"{found['file_bytes'] / base:.0%}",
                " / ".join(f"{precision:.1f}" for precision in found["car_3d"]),
                number(_median(gpu, plain, "load"), 0),
                number(_median(cpu, plain, "frame"), 0),
                number(_median(gpu, plain, "frame"), 2),
            ]
        )
    heads = [
        "weights",
        "trained so",
        "file",
        "of float16",
        "Car 3D AP40",
        "load to a GPU, ms",
        "frame CPU, ms",
        "frame GPU, ms",
    ]
    return markdown_table(heads, rows)


def _timed_name(name: str) -> str:
    """The row whose times hold: which weights are kept changes none."""
    return name.removesuffix(" tuned").removesuffix(" trained").removesuffix(" magnitude")


def _training(name: str, found: dict[str, Any]) -> str:
    if name.endswith(" trained"):
        return "masks and values"
    if name.endswith(" tuned"):
        return "masks"
    return {"magnitude": "no, by magnitude", "sparsegpt": "no, SparseGPT"}.get(str(found["pruning"]), "")


def _median(values: dict[str, Any], name: str, what: str) -> float | None:
    found = values["rows"].get(name, {}).get(what)
    return None if found is None else float(found["median_ms"])
