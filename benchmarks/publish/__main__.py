"""Fill the blocks of README and pages from the result files.

Without options it writes the pages and draws the pictures::

    python -m benchmarks.publish

With ``--check`` it lists the pages that would change, and returns 1 if there are any::

    python -m benchmarks.publish --check

With ``--add`` it first publishes a result of another machine::

    python -m benchmarks.publish --add build/benchmarks/nms-cuda.json

A copy without git does not know its commit. Name it with ``--measured``; the digest of all sources must then
match that commit::

    python -m benchmarks.publish --add FILE --measured COMMIT
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.attention import sparse_attention
from benchmarks.detector import detector
from benchmarks.layers import nm_linear
from benchmarks.lib.environment import ROOT, full_commit, source_digest_of
from benchmarks.lib.results import RESULTS
from benchmarks.lib.results import publish as publish_result
from benchmarks.publish.pages import FILES, changed
from benchmarks.sparse import formats, solvers

_PICTURES = {
    "formats-cuda": formats.main,
    "solvers-cuda": solvers.main,
    "nm_linear-cuda": nm_linear.main,
    "sparse_attention-cuda": sparse_attention.main,
    "detector-cpu": detector.main,
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
    """Return a result whose tree is declared to be that of a commit.

    Raises:
        ValueError: no such commit, or its sources are not those that the result was measured with.
    """
    environment = values["environment"]
    measured, own = environment["code"]["source_sha256"], source_digest_of(commit)
    if measured != own:
        raise ValueError(f"measured with sources of digest {measured}; those of {commit} have {own}")
    code = {"commit": full_commit(commit), "dirty": False, "source_sha256": own}
    return {**values, "environment": {**environment, "code": code}}


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
