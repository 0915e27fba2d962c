"""One module reads what torch does not make public: a new version of torch is checked in one place."""

from __future__ import annotations

import re
from pathlib import Path

INTERNALS = "sparse_core.kernels.torch_internals"
#: What torch names with an underscore and packages here once read.
_PRIVATE = re.compile(r"\btorch\._C\b|\bforward_ad\._current_level\b")


def test_one_module_reads_internals_of_torch(source_files: dict[str, Path]) -> None:
    readers = {name for name, path in source_files.items() if _PRIVATE.search(path.read_text())}
    assert readers == {INTERNALS}
