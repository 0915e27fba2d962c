"""Matrix Market text, checked before scipy parses it.

scipy's reader does not check its input. It allocates the claimed sizes and reads the leading number of
``4.0D+02``, ``1,5`` and ``1.5.3``. It doubles entries that a symmetric matrix lists in both triangles, and
crashes the process on some invalid bytes.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from sparse_core.formats.storage.claims import check_claim

_FORMATS = ("coordinate", "array")
#: Numbers of a value, by field.
_FIELDS = {"real": 1, "double": 1, "integer": 1, "unsigned-integer": 1, "complex": 2, "pattern": 0}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
_REAL = rb"[-+]?(?:(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eEdD][-+]?\d++)?+|(?i:nan|inf(?:inity)?+))"
_INTEGER = rb"[-+]?\d++"
_SPACE = rb"[ \t]++"
#: Longest line, and bytes read at a time.
_LINE_BYTES, _PIECE_BYTES = 1 << 16, 1 << 22


def _portable_pattern(pattern: bytes) -> bytes:
    """Return a pattern for this Python: without possessive quantifiers before 3.11.5.

    They are missing before 3.11 and have errors before 3.11.5. The parts match in one way only, so the result
    is the same.
    """
    return pattern if sys.version_info >= (3, 11, 5) else re.sub(rb"([+*?])\+", rb"\1", pattern)


@dataclass(frozen=True)
class _Header:
    kind: str
    field: str
    symmetry: str
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        sizes = " ".join(map(str, self.sizes))
        return f"%%MatrixMarket matrix {self.kind} {self.field} {self.symmetry}\n{sizes}\n"

    @property
    def lines(self) -> int:
        """Number of lines of entries."""
        if self.kind == "coordinate":
            return self.sizes[2]
        rows, columns = self.sizes
        if self.symmetry == "general":
            return rows * columns
        return rows * (rows - 1 if self.symmetry == "skew-symmetric" else rows + 1) // 2

    @property
    def line_pattern(self) -> re.Pattern[bytes]:
        """Pattern of any number of lines of entries."""
        value = _INTEGER if self.field.endswith("integer") else _REAL
        parts = [rb"\d++"] * 2 if self.kind == "coordinate" else []
        parts += [value] * _FIELDS[self.field]
        # Some pattern files, such as SuiteSparse's Ragusa16, contain values, which are ignored.
        more = rb"(?:" + _SPACE + value + rb")?+" if self.field == "pattern" else b""
        return re.compile(
            _portable_pattern(rb"(?:[ \t]*+" + _SPACE.join(parts) + more + rb"[ \t]*+\r?+(?:\n|\Z))*+")
        )


def read_market(file: Path, check_rows: Callable[[int, int], None]) -> Any:
    """Read ``.mtx`` or ``.mtx.gz``.

    Args:
        check_rows: called with rows and the bytes of the text before anything is allocated; may raise.

    Returns:
        Result of ``scipy.io.mmread``: a ``coo_array`` or, for a dense file, a numpy array.
    """
    import scipy.io

    with _open(file) as stream:
        header, above = _read_header(stream)
        # An entry takes two indices and a value; packed text grows a thousand times at most.
        check_claim(f"{header.lines} entries", 24 * header.lines, file.stat().st_size, growth=1000)
        text_bytes = _check_text(stream, header, above)
    check_rows(header.sizes[0], text_bytes)
    # scipy expands the triangle of a dense file. It would double entries listed in both triangles.
    plain = replace(header, symmetry="general") if header.kind == "coordinate" else header
    with _open(file) as stream:
        _read_header(stream)
        try:
            found = scipy.io.mmread(_CheckedStream(plain, stream), spmatrix=False)
        except (ValueError, OverflowError) as error:
            raise _at_line_of_file(error, above) from error
    return found if plain.symmetry == header.symmetry else _expand_symmetry(found, header.symmetry)


def _at_line_of_file(error: Exception, above: int) -> ValueError:
    """Return scipy's error with the line number of the file; scipy saw two header lines."""
    message = re.match(r"Line (\d+): (.*)", str(error))
    if message is None:
        return ValueError(str(error))
    return ValueError(f"line {int(message[1]) - 2 + above}: {message[2]}")


def _expand_symmetry(half: Any, symmetry: str) -> Any:
    """Expand a matrix that lists one entry of each symmetric pair."""
    import scipy.sparse

    row, col, data = half.row, half.col, half.data
    off_diagonal = row != col
    wrong = {"skew-symmetric": data != 0, "hermitian": data.imag != 0}.get(
        symmetry, np.zeros_like(off_diagonal)
    )
    wrong = wrong & ~off_diagonal
    if wrong.any():
        at = int(row[wrong][0]) + 1
        raise ValueError(f"entry ({at}, {at}) must be its own mirror image in a {symmetry} matrix")
    upper, lower = row < col, row > col
    size = half.shape[1]
    repeated = np.intersect1d(
        col[upper].astype(np.int64) * size + row[upper], row[lower].astype(np.int64) * size + col[lower]
    )
    if len(repeated):
        first, second = divmod(int(repeated[0]), size)
        raise ValueError(
            f"both ({first + 1}, {second + 1}) and ({second + 1}, {first + 1}) are listed;"
            f" a {symmetry} matrix lists one of them (declare it general, or remove one)"
        )
    image = data[off_diagonal]
    image = -image if symmetry == "skew-symmetric" else image.conj() if symmetry == "hermitian" else image
    parts = ((data, image), (row, col[off_diagonal]), (col, row[off_diagonal]))
    data, row, col = (np.concatenate(both) for both in parts)
    return scipy.sparse.coo_array((data, (row, col)), shape=half.shape)


def _open(file: Path) -> IO[bytes]:
    if file.name.lower().endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(file, "rb"))
    return file.open("rb")


def _read_header(stream: IO[bytes]) -> tuple[_Header, int]:
    # The header and the number of its lines.
    words = stream.readline(_LINE_BYTES).decode("latin-1").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError("no banner '%%MatrixMarket matrix FORMAT FIELD SYMMETRY' in the first line")
    kind, field, symmetry = words[2:]
    for name, word, known in (
        ("format", kind, _FORMATS),
        ("field", field, tuple(_FIELDS)),
        ("symmetry", symmetry, _SYMMETRIES),
    ):
        if word not in known:
            raise ValueError(f"{name} {word!r} must be one of {', '.join(known)}")
    if (kind == "array" and field == "pattern") or (symmetry == "hermitian" and field != "complex"):
        raise ValueError(
            f"the banner combines {kind}, {field} and {symmetry}, which the format does not allow"
        )
    number = 1
    while True:
        line, number = stream.readline(_LINE_BYTES), number + 1
        if not line:
            raise ValueError("no line with the sizes")
        if line.strip() and not line.startswith(b"%"):
            break
        while len(line) == _LINE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(_LINE_BYTES)  # The rest of a long comment.
    wanted = 3 if kind == "coordinate" else 2
    parts = line.split()
    if len(parts) != wanted or not all(re.fullmatch(rb"\d{1,18}", part) for part in parts):
        names = "rows, columns and entries" if wanted == 3 else "rows and columns"
        raise ValueError(f"line {number}: expected {names}, got {_quote(line)}")
    sizes = tuple(int(part) for part in parts)
    if symmetry != "general" and sizes[0] != sizes[1]:
        raise ValueError(f"line {number}: a {symmetry} matrix is square, got {sizes[0]} x {sizes[1]}")
    return _Header(kind, field, symmetry, sizes), number


def _check_text(stream: IO[bytes], header: _Header, above: int) -> int:
    # Return the bytes of the text; raise unless it matches the header.
    pattern = header.line_pattern
    number, entries, length, rest, at_end = above, 0, 0, b"", False
    while not at_end:
        piece = stream.read(_PIECE_BYTES)
        at_end = not piece
        length += len(piece)
        lines, newline, rest = (rest + piece).rpartition(b"\n")
        text, rest = (rest, b"") if at_end else (lines + newline, rest)
        if len(rest) > _LINE_BYTES:
            raise ValueError(f"line {number + text.count(newline) + 1} is longer than {_LINE_BYTES} bytes")
        entry_text = _entry_lines(text, pattern, number)
        number += text.count(b"\n")
        entries += entry_text.count(b"\n") + (entry_text[-1:] not in (b"", b"\n"))
        if entries > header.lines or number - above > 2 * header.lines + 1000:
            raise ValueError(f"the file has more lines than the {header.lines} that the header announces")
    if entries != header.lines:
        raise ValueError(f"the file has {entries} lines of entries, the header announces {header.lines}")
    return length


def _entry_lines(text: bytes, pattern: re.Pattern[bytes], above: int) -> bytes:
    # Return the text without blank lines.
    if pattern.fullmatch(text):
        return text
    kept = re.sub(rb"(?m)^[ \t\r]*(?:\n|\Z)", b"", text)
    if pattern.fullmatch(kept):
        return kept
    lines = enumerate(text.split(b"\n"), above + 1)
    wrong = next((n, line) for n, line in lines if line.strip() and not pattern.fullmatch(line))
    raise ValueError(f"line {wrong[0]}: {_quote(wrong[1])} is not a valid entry for this header")


def _as_scipy_reads(text: bytes) -> bytes:
    # Fortran writes exponents with D, and scipy rejects a plus sign in front of a number. The end of a piece
    # does not matter: dropping a plus sign after an E changes nothing.
    if b"d" in text or b"D" in text:
        text = text.translate(bytes.maketrans(b"dD", b"ee"))
    return re.sub(rb"(?<![eE])\+", b"", text) if b"+" in text else text


def _quote(line: bytes) -> str:
    text = line.strip()[:60].decode("latin-1")
    return repr(text)


class _CheckedStream(io.RawIOBase):
    """Stream that scipy reads: a normalised header, then the checked text."""

    def __init__(self, header: _Header, text: IO[bytes]) -> None:
        self._piece, self._text = io.BytesIO(str(header).encode()), text

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` available bytes; none at the end."""
        while not (found := self._piece.read(size)):
            piece = self._text.read(_PIECE_BYTES)
            if not piece:
                break
            self._piece = io.BytesIO(_as_scipy_reads(piece))
        return found
