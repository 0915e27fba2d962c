"""Real vectors for the benchmarks: sentences of docstrings.

    python -m benchmarks.memory.real_embeddings FOLDER [--count 15000] [--out FILE.npy]

Sentences are those of the docstrings of the installed standard library, in a fixed order and each once, as
vectors of :class:`memory.encode.TextEncoder`. Vectors are stored in ``FOLDER`` part by part, so that an
interrupted run resumes. Choose a folder outside the project.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from memory.encode import TextEncoder

#: Takes about five minutes on two cores.
DEFAULT_COUNT = 15_000
_PART = 512
_LETTERS = (20, 300)

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


def docstring_sentences(count: int, library: Path | None = None) -> list[str]:
    """Sentences of docstrings, of 20 to 300 letters, each once, file by file in the order of their names.

    Args:
        count: most of them.
        library: folder of Python files; by default the standard library without its tests.

    Raises:
        ValueError: ``count`` is below 1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    found: dict[str, None] = {}
    for path in _files(library or Path(sysconfig.get_path("stdlib"))):
        for sentence in _sentences(path):
            found.setdefault(sentence)
            if len(found) == count:
                return list(found)
    return list(found)


def real_embeddings(
    count: int = DEFAULT_COUNT,
    folder: str | os.PathLike[str] = ".",
    progress: bool = True,
    *,
    encode: Encode | None = None,
) -> NDArray[np.float32]:
    """Unit vectors of docstring sentences, from the folder where it has them.

    Args:
        count: sentences; fewer where the library has no more.
        folder: of the parts, ``sentences-FIRST-HASH.npy``; the hash is of the sentences.
        progress: show a bar.
        encode: vectors of sentences; by default those of :class:`memory.encode.TextEncoder`.

    Returns:
        (rows, 384) float32.

    Raises:
        ImportError: something is to be encoded and a package is missing; names the extra.
        ValueError: ``count`` is below 1.
    """
    sentences = docstring_sentences(count)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    parts = []
    with Progress(disable=not progress) as bar:
        task = bar.add_task("sentences", total=len(sentences))
        for first in range(0, len(sentences), _PART):
            part = sentences[first : first + _PART]
            path = place / f"sentences-{first:06d}-{_digest(part)}.npy"
            vectors = _read(path, len(part))
            if vectors is None:
                encode = encode or TextEncoder().encode
                vectors = _encoded(encode, part)
                _write(path, vectors)
            parts.append(vectors)
            bar.advance(task, len(part))
    return np.concatenate(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=DEFAULT_COUNT)
    parser.add_argument("--out", type=Path, help="also one .npy file of all, in half precision")
    options = parser.parse_args(arguments)
    vectors = real_embeddings(options.count, options.folder)
    if options.out is not None:
        np.save(options.out, vectors.astype(np.float16))
    sys.stdout.write(f"{len(vectors)} vectors of {vectors.shape[1]} numbers\n")
    return 0


def _files(library: Path) -> Iterator[Path]:
    """Python files in the order of their names, without tests and what was installed later."""
    left_out = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
    for path in sorted(library.rglob("*.py"), key=lambda path: path.relative_to(library).as_posix()):
        if left_out.isdisjoint(path.relative_to(library).parts):
            yield path


def _sentences(path: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return  # Templates and the like are no Python.
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for piece in re.split(r"(?<=[.!?])\s+|\n\s*\n", ast.get_docstring(node) or ""):
                sentence = " ".join(piece.split())
                if _LETTERS[0] <= len(sentence) <= _LETTERS[1]:
                    yield sentence


def _encoded(encode: Encode, sentences: Sequence[str]) -> NDArray[np.float32]:
    """By rising length, because a batch takes as long as its longest; given back in the old order."""
    order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
    vectors = encode([sentences[row] for row in order])
    found = np.empty_like(vectors)
    found[order] = vectors
    return found


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read(path: Path, rows: int) -> NDArray[np.float32] | None:
    """Vectors of a part, ``None`` where there is no whole file."""
    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return vectors.astype(np.float32) if vectors.ndim == 2 and len(vectors) == rows else None


def _write(path: Path, vectors: NDArray[np.float32]) -> None:
    """Replaced only when complete: an interrupted run leaves whole parts."""
    temporary = path.with_suffix(".partial")
    with temporary.open("wb") as stream:
        np.save(stream, vectors)
    temporary.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
