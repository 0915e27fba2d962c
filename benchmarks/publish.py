"""Published numbers: fills the blocks of the README and the decision pages from the result files.

    python benchmarks/publish.py            # writes, and draws the pictures from them
    python benchmarks/publish.py --check    # only says what would change; exit code 1 if anything would
    python benchmarks/publish.py --add build/benchmarks/nms-cuda.json   # first publishes this, from elsewhere
    python benchmarks/publish.py --add FILE --measured COMMIT   # of a copy of that commit that had no git

A copy without git cannot say what it is; with ``--measured`` its digest of all sources must be the commit's.

A block lies between `<!-- name:begin -->` and `<!-- name:end -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.attention import sparse_attention as bench_sparse_attention
from benchmarks.layers import nm_linear as bench_nm_linear
from benchmarks.lib.environment import ROOT, full_commit, source_digest_of
from benchmarks.lib.results import RESULTS
from benchmarks.lib.results import publish as publish_result
from benchmarks.publish.blocks import BLOCKS
from benchmarks.sparse import formats as bench_formats
from benchmarks.sparse import solvers as bench_solvers

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
    parser.add_argument(
        "--measured", metavar="COMMIT", help="the commit of --add, where the copy there could not tell"
    )
    options = parser.parse_args(arguments)
    for path in options.add:
        values = json.loads(path.read_text(encoding="utf-8"))
        if options.measured:
            values = of_commit(values, options.measured)
        publish_result(values, RESULTS / path.name)
    changes = changed(ROOT)
    for file in FILES:
        print(f"{file}: {'changed' if file in changes else 'unchanged'}")
    if options.check:
        return 1 if changes else 0
    for file, text in changes.items():
        (ROOT / file).write_text(text, encoding="utf-8")
    return _draw()


def of_commit(values: dict[str, Any], commit: str) -> dict[str, Any]:
    """A result whose tree is told to be that of a commit.

    Raises:
        ValueError: no such commit, or its sources are not those that the result was measured with.
    """
    environment = values["environment"]
    measured, own = environment["code"]["source_sha256"], source_digest_of(commit)
    if measured != own:
        raise ValueError(f"measured with sources of digest {measured}; those of {commit} have {own}")
    code = {"commit": full_commit(commit), "dirty": False, "source_sha256": own}
    return {**values, "environment": {**environment, "code": code}}


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
