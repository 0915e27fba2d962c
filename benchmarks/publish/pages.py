"""The pages that have blocks of published numbers, and what they hold.

A block lies between `<!-- name:begin -->` and `<!-- name:end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.publish.blocks import BLOCKS

#: Blocks of each file, by the name in their markers.
FILES: dict[str, tuple[str, ...]] = {
    "README.md": ("summary-accuracy", "summary-speed", "summary-memory"),
    "benchmarks/README.md": ("results",),
    "docs/benchmarks/accuracy.md": ("weights-measured",),
    "docs/benchmarks/archives.md": ("archives-cpu", "archives-cuda"),
    "docs/benchmarks/attention.md": (
        "attention-speedups",
        "attention-fa4",
        "attention-bars",
        "attention-times",
        "attention-patterns",
        "attention-selection",
        "attention-changing",
        "attention-encoder",
        "attention-gathered",
    ),
    "docs/benchmarks/budget.md": (
        "levels-cpu",
        "levels-cuda",
        "levels-budgets-cpu",
        "levels-budgets-cuda",
    ),
    "docs/benchmarks/calls.md": ("calls-cpu", "precisions-cpu", "calls-cuda", "calls-products"),
    "docs/benchmarks/certainty.md": ("locate", "coverage", "coverage-drives"),
    "docs/benchmarks/detector.md": ("detector-cpu", "frame-cuda", "limits-cpu", "limits-cuda", "conv-cuda"),
    "docs/benchmarks/dynamic.md": (
        "dynamic-speed-bars",
        "dynamic-steps",
        "dynamic-forward",
        "dynamic-updates",
        "dynamic-memory",
        "dynamic-cpu",
    ),
    "docs/benchmarks/live.md": ("delivery",),
    "docs/benchmarks/memory.md": (
        "memory-bars",
        "memory-searches",
        "memory-filtered",
        "memory-inserts",
        "memory-moving",
        "memory-retention",
        "sentences",
        "sentences-times",
    ),
    "docs/benchmarks/memory-drives.md": (
        "drive",
        "drive-kinds",
        "drive-became",
        "memory-drives",
        "memory-drives-cost",
        "two-observers",
        "two-observers-disturbed",
        "remembered-cars",
        "remembered-cars-each",
    ),
    "docs/benchmarks/memory-server.md": (
        "fleet-added",
        "fleet-questions",
        "readers",
        "large",
        "large-questions",
        "large-readers",
        "large-upgrades",
    ),
    "docs/benchmarks/merging.md": ("merging-speed", "merging-vectors", "merging-files"),
    "docs/benchmarks/questions.md": ("questions",),
    "docs/benchmarks/sparse.md": (
        "spmv",
        "spmv-kernels",
        "spmv-bandwidth",
        "block_spmm",
        "block_spmm-detail",
        "assembly",
        "conversions",
        "formats",
        "formats-classic",
        "formats-ours",
        "thresholds",
        "solvers-aim",
        "solvers",
        "cpu",
        "graphs",
        "graphs-cuda",
        "aims",
    ),
    "docs/benchmarks/tracking.md": ("tracking", "tracking-own", "tracking-nuscenes"),
    "docs/benchmarks/two-four.md": (
        "nm-layers-detail",
        "nm-odd",
        "nm-eager",
        "nm-bars",
        "nm-packing",
        "nm-layers-cpu",
    ),
    "docs/two-four.md": ("generation",),
    "perception/weights/pointpillars-kitti.md": ("weights", "folds", "compression"),
    "perception/weights/pointpillars-anywhere.md": ("anywhere",),
}


def changed(root: Path) -> dict[str, str]:
    """New texts of the files under a folder that differ from the files in `benchmarks/results`.

    Args:
        root: the repository, or a folder with copies of the files in `FILES`.
    """
    changes = {}
    for file, names in FILES.items():
        before = (root / file).read_text(encoding="utf-8")
        try:
            after = fill(before, {name: BLOCKS[name] for name in names})
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        if after != before:
            changes[file] = after
    return changes


def fill(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """A text with new contents between its markers, from the result files that each block names.

    Args:
        text: Markdown with a pair of markers for every block.
        blocks: makers of the contents by name.

    Raises:
        ValueError: if a pair of markers is missing.
    """
    for name, make in blocks.items():
        pattern = re.compile(
            rf"(<!-- {re.escape(name)}:begin -->\n).*?(<!-- {re.escape(name)}:end -->)", re.DOTALL
        )
        found = pattern.search(text)
        if found is None:
            raise ValueError(f"no markers for {name}")
        content = make()
        text = text[: found.end(1)] + (content + "\n" if content else "") + text[found.start(2) :]
    return text
