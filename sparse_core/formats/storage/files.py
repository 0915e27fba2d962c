"""Sparse matrices in files: Matrix Market (``.mtx``, ``.mtx.gz``) and scipy's ``.npz``."""

from __future__ import annotations

import gzip
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from sparse_core.files import replacing
from sparse_core.formats.base import SparseMatrix
from sparse_core.formats.convert import from_scipy
from sparse_core.formats.csr import CSR
from sparse_core.formats.storage.claims import check_archive, check_claim
from sparse_core.formats.storage.market import read_market

_SUFFIXES = (".mtx", ".mtx.gz", ".npz")
_ADVICE = (
    "not a readable Matrix Market file ({}); it should begin with '%%MatrixMarket matrix coordinate real"
    " general' or the like (download or export it again)",
    "not a readable sparse matrix ({}); write it with scipy.sparse.save_npz or save_matrix",
)


def load_matrix(
    path: str | os.PathLike[str],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> SparseMatrix:
    """Read a matrix.

    Args:
        path: a Matrix Market file, https://math.nist.gov/MatrixMarket/formats.html (coordinate or array, any
            symmetry; symmetric ones are expanded, the ones of a pattern are 1.0), or an ``.npz`` that
            ``scipy.sparse.save_npz`` wrote. Fortran's exponents (``4.0D+02``) and capitals in the banner
            are understood.
        dtype: type of the values, to which they are rounded; by default that of the file, float64 for
            integers and patterns.
        device: where to put it.

    Returns:
        BSR for a file that stores blocks, else CSR, duplicates summed.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another suffix; an integer that float64 does not hold, unless ``dtype`` is given; or a
            file that is damaged, is not a two-dimensional sparse matrix, lists an entry of a symmetric matrix
            in both triangles, or claims more than it can hold: rows whose pointers would take more than
            64 MiB and a hundred times its (unpacked) bytes. Every byte of text is checked; nothing of a file
            is run.
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
        # COO from a file is only a list of entries: compressed rows are what one computes with.
        loaded = matrix if matrix.values.ndim == 3 else matrix.to(CSR)
    except MemoryError:
        raise  # What the file claims was held against its bytes: the matrix is really that large.
    except Exception as error:
        # numpy, zipfile, gzip and the decompressors raise what comes to them at damaged bytes.
        raise ValueError(f"{file}: {_ADVICE[suffix == '.npz'].format(_first_line(error))}") from error
    if rounded is not None:
        raise ValueError(
            f"{file}: float64 would round the integer {rounded}; pass dtype=torch.float64 to accept that"
        )
    return (loaded if dtype is None else loaded.to(dtype)).to(device)


def save_matrix(matrix: SparseMatrix, path: str | os.PathLike[str]) -> Path:
    """Write a matrix; an existing file is replaced only once the new one is complete.

    Values come back as they were, explicit zeros included; float16 and bfloat16 are written as float32, and a
    Matrix Market file, which is text, does not tell float32 from float64.

    Args:
        matrix: any format. ``.npz`` keeps COO, CSR and BSR (blocks that divide the shape) as they are and
            stores others as CSR.
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
        # Without a name and a time stamp equal matrices give equal files.
        is_packed = suffix == ".mtx.gz"
        packing = gzip.GzipFile("", "wb", fileobj=stream, mtime=0) if is_packed else nullcontext(stream)
        with packing as text:
            # Without a declared symmetry the writer would look for one and might drop explicit zeros.
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

    # Opened here, because numpy leaves a file open that turns out to be no archive.
    with file.open("rb") as stream:
        stored_bytes = check_archive(stream)
        stream.seek(0)
        found = scipy.sparse.load_npz(stream)
    if found.ndim != 2:
        raise ValueError(f"expected a matrix, got an array of shape {found.shape}")
    _check_rows(found.shape[0], stored_bytes)
    return found


def _check_rows(rows: int, stored_bytes: int) -> None:
    # Each row takes room in CSR, whether it holds anything or not.
    check_claim(f"pointers to {rows} rows", 8 * (rows + 1), stored_bytes, growth=100)


def _as_floating(matrix: Any) -> Any:
    """Integers, patterns and booleans as float64; long doubles as doubles."""
    if matrix.dtype.kind not in "fc":
        return matrix.astype("float64")
    if matrix.dtype.itemsize > (16 if matrix.dtype.kind == "c" else 8):
        return matrix.astype("complex128" if matrix.dtype.kind == "c" else "float64")
    return matrix


def _rounded_integer(matrix: Any) -> int | None:
    """The first integer of a matrix that is none of float64's; None if there is none."""
    values = matrix.data.reshape(-1)
    if values.dtype.kind not in "iu":
        return None
    # Python compares exactly; only integers of more than 53 bits are looked at one by one.
    large = values[(values > 2**53) | (values < -(2**53))].tolist()
    return next((one for one in large if int(float(one)) != one), None)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
