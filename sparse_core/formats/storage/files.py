"""Sparse matrices in files: Matrix Market (``.mtx``, ``.mtx.gz``) and scipy's ``.npz``."""

from __future__ import annotations

import gzip
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from sparse_core.common.files import replacing
from sparse_core.formats.base import SparseMatrix
from sparse_core.formats.convert import from_scipy
from sparse_core.formats.csr import CSR
from sparse_core.formats.storage.claims import check_archive, check_claim
from sparse_core.formats.storage.market import read_market

_SUFFIXES = (".mtx", ".mtx.gz", ".npz")
_ADVICE = (
    "not a readable Matrix Market file ({}); its first line must look like '%%MatrixMarket matrix coordinate"
    " real general' (download or export it again)",
    "not a readable sparse matrix ({}); write it with scipy.sparse.save_npz or save_matrix",
)


def load_matrix(
    path: str | os.PathLike[str],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> SparseMatrix:
    """Read a matrix.

    Every byte of text is checked, and no code in a file is run.

    Args:
        path: a Matrix Market file (https://math.nist.gov/MatrixMarket/formats.html) or an ``.npz`` of
            ``scipy.sparse.save_npz``. Symmetric Matrix Market files are expanded and patterns get ones;
            Fortran exponents (``4.0D+02``) and a capitalised banner are accepted.
        dtype: type of the values, rounded to it; by default that of the file, float64 for integers and
            patterns.
        device: of the matrix.

    Returns:
        BSR for a file that stores blocks, else CSR, duplicates summed.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another suffix; an integer that float64 cannot represent, unless ``dtype`` is given; a
            damaged file; not a two-dimensional sparse matrix; an entry of a symmetric matrix in both
            triangles; or row pointers that would take more than 64 MiB plus a hundred times the file's
            unpacked size.
    """
    file = Path(path)
    suffix = _suffix(file)
    if not file.is_file():
        kind = "a folder, not a file" if file.is_dir() else "no such file"
        raise FileNotFoundError(f"{file}: {kind}")
    try:
        stored = _read_npz(file) if suffix == ".npz" else _read_market(file)
        rounded = _rounded_integer(stored) if dtype is None else None
        matrix = from_scipy(_as_floating(stored))
        # Products need compressed rows.
        loaded = matrix if matrix.values.ndim == 3 else matrix.to(CSR)
    except MemoryError:
        raise  # The claimed sizes were checked: the matrix is really that large.
    except Exception as error:
        # numpy, zipfile, gzip and the decompressors raise many types for damaged bytes.
        raise ValueError(f"{file}: {_ADVICE[suffix == '.npz'].format(_first_line(error))}") from error
    if rounded is not None:
        raise ValueError(
            f"{file}: float64 would round the integer {rounded}; pass dtype=torch.float64 to accept that"
        )
    return (loaded if dtype is None else loaded.to(dtype)).to(device)


def save_matrix(matrix: SparseMatrix, path: str | os.PathLike[str]) -> Path:
    """Write a matrix; an existing file stays until the new one is complete.

    Values and explicit zeros round-trip. float16 and bfloat16 are written as float32, and a Matrix Market
    file does not distinguish float32 from float64.

    Args:
        matrix: any format. ``.npz`` keeps COO, CSR and BSR (blocks that divide the shape) and stores others
            as CSR.
        path: ends in ``.mtx``, ``.mtx.gz`` or ``.npz``.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: another suffix.
    """
    import scipy.io
    import scipy.sparse

    file = Path(path)
    suffix = _suffix(file)
    stored = matrix.detach().to_scipy()
    with replacing(file) as temporary, temporary.open("wb") as stream:
        if suffix == ".npz":
            scipy.sparse.save_npz(stream, stored)
            return file
        # Without a name and a time stamp, equal matrices give equal files.
        is_packed = suffix == ".mtx.gz"
        packing = gzip.GzipFile("", "wb", fileobj=stream, mtime=0) if is_packed else nullcontext(stream)
        with packing as text:
            # Declare the symmetry, or the writer looks for one and may drop explicit zeros.
            scipy.io.mmwrite(text, stored.tocoo(), symmetry="general")
    return file


def _suffix(file: Path) -> str:
    for suffix in _SUFFIXES:
        if file.name.lower().endswith(suffix):
            return suffix
    raise ValueError(f"{file}: expected a name that ends in {', '.join(_SUFFIXES)}")


def _read_market(file: Path) -> Any:
    import scipy.sparse

    found = read_market(file, _check_rows)
    return found if scipy.sparse.issparse(found) else scipy.sparse.coo_array(found)


def _read_npz(file: Path) -> Any:
    import scipy.sparse

    # Open the file here, because numpy does not close a file that is not an archive.
    with file.open("rb") as stream:
        stored_bytes = check_archive(stream)
        stream.seek(0)
        found = scipy.sparse.load_npz(stream)
    if found.ndim != 2:
        raise ValueError(f"expected a matrix, got an array of shape {found.shape}")
    _check_rows(found.shape[0], stored_bytes)
    return found


def _check_rows(rows: int, stored_bytes: int) -> None:
    # Empty rows also need memory in CSR.
    check_claim(f"pointers to {rows} rows", 8 * (rows + 1), stored_bytes, growth=100)


def _as_floating(matrix: Any) -> Any:
    """Convert integers, patterns and booleans to float64, and long doubles to doubles."""
    if matrix.dtype.kind not in "fc":
        return matrix.astype("float64")
    if matrix.dtype.itemsize > (16 if matrix.dtype.kind == "c" else 8):
        return matrix.astype("complex128" if matrix.dtype.kind == "c" else "float64")
    return matrix


def _rounded_integer(matrix: Any) -> int | None:
    """Return the first integer that float64 would round, or None."""
    values = matrix.data.reshape(-1)
    if values.dtype.kind not in "iu":
        return None
    # Only integers of more than 53 bits can be rounded; Python compares exactly.
    large = values[(values > 2**53) | (values < -(2**53))].tolist()
    return next((one for one in large if int(float(one)) != one), None)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
