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
    "README.md": ("summary-accuracy", "summary-speed", "memory-bars"),
    "docs/measured.md": (
        "weights-measured",
        "detector-cpu",
        "frame-cuda",
        "conv-cuda",
        "spmv",
        "block_spmm",
        "assembly",
        "solvers",
        "formats",
        "cpu",
        "nm-layers",
        "nm-accuracy",
        "attention-speedups-short",
        "memory-bars",
        "memory-retention",
        "drive",
        "drive-kinds",
        "drive-became",
    ),
    "benchmarks/README.md": ("results",),
    "docs/two-four.md": (
        "nm-layers-detail",
        "nm-layers-cpu",
        "nm-odd",
        "nm-eager",
        "nm-packing",
        "nm-accuracy",
    ),
    "docs/decisions/0007-two-four-layers.md": ("nm-bars",),
    "docs/dynamic-sparsity.md": (
        "dynamic-accuracy",
        "dynamic-cost",
        "dynamic-detector",
        "dynamic-speed-bars",
        "dynamic-steps",
        "dynamic-forward",
        "dynamic-updates",
        "dynamic-memory",
        "dynamic-cpu",
    ),
    "docs/budget.md": ("levels-cpu", "levels-cuda", "levels-budgets-cpu", "levels-budgets-cuda"),
    "docs/attention.md": ("attention-speedups",),
    "docs/tracking.md": ("tracking", "tracking-own", "tracking-nuscenes"),
    "docs/calls.md": ("calls-cpu", "calls-cuda", "calls-products"),
    "docs/archives.md": ("archives-cpu", "archives-cuda"),
    "docs/fleet.md": ("fleet-added", "fleet-questions"),
    "docs/decisions/0029-attention-in-the-backbone.md": ("backbone-attention", "backbone-attention-times"),
    "docs/decisions/0059-where-features-spread.md": ("architectures", "architectures-cost"),
    "docs/decisions/0008-sparse-attention.md": (
        "attention-bars",
        "attention-speedups",
        "attention-times",
        "attention-patterns",
        "attention-selection",
        "attention-encoder",
        "attention-gathered",
    ),
    "perception/weights/pointpillars-kitti.md": ("weights", "folds", "compression"),
    "perception/weights/pointpillars-anywhere.md": ("anywhere",),
    "docs/memory.md": (
        "memory-bars",
        "memory-searches",
        "memory-filtered",
        "memory-inserts",
        "memory-moving",
        "memory-retention",
        "memory-places",
        "memory-drives",
        "memory-drives-cost",
        "sentences",
        "sentences-times",
    ),
    "docs/merging.md": ("merging-speed", "merging-vectors", "merging-files", "merging-quality"),
    "docs/decisions/0005-sparse-formats.md": (
        "aims",
        "spmv-kernels",
        "spmv-bandwidth",
        "conversions",
        "formats-classic",
        "formats-ours",
        "thresholds",
        "block_spmm-detail",
    ),
    "docs/decisions/0006-sparse-solvers.md": ("solvers-aim", "solvers"),
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
