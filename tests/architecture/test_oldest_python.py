"""The packages use nothing that Python 3.10 lacks, the oldest that they are for (ROS 2 Humble, JetPack 6)."""

from __future__ import annotations

import re
from pathlib import Path

import tomllib

#: What came with 3.11 and 3.12 and is easily written; typing_extensions has the names of typing.
NEWER = re.compile(
    r"^from typing import .*\b(?:Self|Unpack|TypeVarTuple|Never|assert_never|LiteralString|Required"
    r"|NotRequired|override|reveal_type|dataclass_transform)\b"
    r"|^from datetime import .*\bUTC\b|\bdatetime\.UTC\b|^(?:import|from) tomllib\b|\bStrEnum\b|^\s*except\*"
    r"|\basyncio\.(?:timeout|Runner|TaskGroup)\b|\bhashlib\.file_digest\b|\bsqlite3\.SQLITE_"
    r"|\bcontextlib\.chdir\b|\bExceptionGroup\b|\bitertools\.batched\b|\bGeneric\[\*|\bImplementation\[\*|\bfrom_bytes\([^,()]*\)"
    r"|\(NamedTuple, |, NamedTuple\)"
    r"|^type \w+ =|^\s*(?:def|class) \w+\[",
    re.MULTILINE,
)


def test_nothing_newer_is_used(source_files: dict[str, Path]) -> None:
    found = [
        f"{module}: {match.group().strip()}"
        for module, path in source_files.items()
        for match in NEWER.finditer(path.read_text())
    ]
    assert found == []


def test_what_is_newer_is_recognised() -> None:
    for line in (
        "from typing import Any, Self",
        "from datetime import UTC, datetime",
        "import tomllib",
        "    async with asyncio.timeout(3):",
        "hashlib.file_digest(stream, 'sha256')",
        "class A(Generic[*T]):",
        "class A(NamedTuple, Generic[T]):",
        "code == sqlite3.SQLITE_BUSY",
        "int.from_bytes(raw)",
        "def first[T](rows: list[T]) -> T:",
    ):
        assert NEWER.search(line), line
    for line in (
        "from typing import Any",
        "from typing_extensions import Self",
        "int.from_bytes(raw, 'big')",
        "class A(NamedTuple):",
    ):
        assert NEWER.search(line) is None, line


def test_the_oldest_is_the_one_that_is_promised(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    assert project["project"]["requires-python"].startswith(">=3.10,")
    assert project["tool"]["ruff"]["target-version"] == "py310"
