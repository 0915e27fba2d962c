"""Published numbers: fills the blocks of the README and the decision pages from the result files.

    python benchmarks/publish.py            # writes, and draws the pictures from them
    python benchmarks/publish.py --check    # only says what would change; exit code 1 if anything would
    python benchmarks/publish.py --add build/benchmarks/nms-cuda.json   # first publishes this, from elsewhere

A block lies between `<!-- name:begin -->` and `<!-- name:end -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    bench_formats,
    bench_nm_linear,
    bench_solvers,
    bench_sparse_attention,
    published_attention,
    published_compression,
    published_drive,
    published_dynamic,
    published_dynamic_speed,
    published_levels,
    published_memory,
    published_merging,
    published_nm,
    published_tables,
    published_text,
)
from benchmarks.environment import ROOT
from benchmarks.results import RESULTS
from benchmarks.results import publish as publish_result

Blocks = Mapping[str, Callable[[], str]]

#: Blocks of each file, by the name in their markers.
FILES: dict[str, Blocks] = {
    "README.md": {
        "spmv": published_tables.spmv,
        "block_spmm": published_tables.block_spmm,
        "assembly": published_tables.assembly,
        "solvers": published_tables.solvers,
        "formats": published_tables.formats,
        "cpu": published_tables.cpu,
        "nm-layers": published_nm.layers,
        "nm-accuracy": published_nm.accuracy,
        "attention-speed": published_attention.speedups_in_short,
        "memory-bars": published_memory.bars,
        "memory-retention": published_memory.retention,
        "drive": published_drive.stores,
        "drive-kinds": published_drive.kinds,
        "drive-became": published_drive.became,
    },
    "benchmarks/README.md": {
        "results": published_text.results,
    },
    "docs/two-four.md": {
        "nm-layers": published_nm.layers_detail,
        "nm-odd": published_nm.odd,
        "nm-eager": published_nm.eager,
        "nm-packing": published_nm.packing,
        "nm-accuracy": published_nm.accuracy,
    },
    "docs/decisions/0007-two-four-layers.md": {
        "nm-bars": published_nm.bars,
    },
    "docs/dynamic-sparsity.md": {
        "dynamic-accuracy": published_dynamic.accuracy,
        "dynamic-cost": published_dynamic.cost,
        "dynamic-detector": published_dynamic.detector,
        "dynamic-speed-bars": published_dynamic_speed.bars,
        "dynamic-steps": published_dynamic_speed.steps,
        "dynamic-forward": published_dynamic_speed.forward,
        "dynamic-updates": published_dynamic_speed.updates,
        "dynamic-memory": published_dynamic_speed.memory,
        "dynamic-cpu": published_dynamic_speed.cpu,
    },
    "docs/budget.md": {
        "levels-cpu": published_levels.candidates_cpu,
        "levels-cuda": published_levels.candidates_cuda,
        "levels-budgets-cpu": published_levels.budgets_cpu,
        "levels-budgets-cuda": published_levels.budgets_cuda,
    },
    "docs/attention.md": {
        "attention-speed": published_attention.speedups,
    },
    "docs/decisions/0008-sparse-attention.md": {
        "attention-bars": published_attention.bars,
        "attention-speedups": published_attention.speedups,
        "attention-times": published_attention.times,
        "attention-patterns": published_attention.patterns,
        "attention-selection": published_attention.selection,
        "attention-encoder": published_attention.encoder,
        "attention-gathered": published_attention.gathered,
    },
    "perception/weights/pointpillars-kitti.md": {
        "compression": published_compression.variants,
    },
    "docs/memory.md": {
        "memory-bars": published_memory.bars,
        "memory-searches": published_memory.searches,
        "memory-filtered": published_memory.filtered,
        "memory-inserts": published_memory.inserts,
        "memory-moving": published_memory.moving,
        "memory-retention": published_memory.retention,
        "memory-places": published_memory.places,
    },
    "docs/merging.md": {
        "merging-speed": published_merging.speed,
        "merging-vectors": published_merging.task_vectors,
        "merging-files": published_merging.files,
        "merging-quality": published_merging.quality,
    },
    "docs/decisions/0005-sparse-formats.md": {
        "aims": published_tables.aims,
        "spmv-kernels": published_tables.kernels,
        "spmv-bandwidth": published_tables.bandwidth,
        "conversions": published_tables.conversions,
        "formats-classic": published_tables.classic,
        "formats-ours": published_tables.ours_wrong,
        "thresholds": published_tables.thresholds,
        "block_spmm-detail": published_tables.block_detail,
    },
    "docs/decisions/0006-sparse-solvers.md": {
        "solvers-aim": published_tables.solver_aim,
        "solvers": published_tables.solvers,
    },
}
_PICTURES = {
    "formats-cuda": bench_formats.main,
    "solvers-cuda": bench_solvers.main,
    "nm_linear-cuda": bench_nm_linear.main,
    "sparse_attention-cuda": bench_sparse_attention.main,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if a file would change"
    )
    parser.add_argument(
        "--add", nargs="+", default=[], type=Path, metavar="FILE", help="publish results of other machines"
    )
    options = parser.parse_args(arguments)
    for path in options.add:
        publish_result(json.loads(path.read_text(encoding="utf-8")), RESULTS / path.name)
    changes = changed(ROOT)
    for file in FILES:
        print(f"{file}: {'changed' if file in changes else 'unchanged'}")
    if options.check:
        return 1 if changes else 0
    for file, text in changes.items():
        (ROOT / file).write_text(text, encoding="utf-8")
    return _draw()


def changed(root: Path) -> dict[str, str]:
    """New texts of the files under a folder that differ from the files in `benchmarks/results`.

    Args:
        root: the repository, or a folder with copies of the files in `FILES`.
    """
    changes = {}
    for file, blocks in FILES.items():
        before = (root / file).read_text(encoding="utf-8")
        try:
            after = fill(before, blocks)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        if after != before:
            changes[file] = after
    return changes


def fill(text: str, blocks: Blocks) -> str:
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


def _draw() -> int:
    """Draw the pictures again from their result files; the first exit code that is not zero."""
    for name, draw in _PICTURES.items():
        source, picture = RESULTS / f"{name}.json", RESULTS / f"{name}.png"
        if not source.is_file():
            continue
        if code := draw(["--draw-from", str(source), "--png", str(picture)]):
            return code
        print(f"{picture.relative_to(ROOT).as_posix()}: drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
