"""Choice of a format: by measured thresholds, and by the textbook tree for comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sparse_core.common.libraries import module_available
from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.bsr import BSR
from sparse_core.formats.choice.profile import BLOCK_SIZES, SLICE_HEIGHT, Profile, profile_of
from sparse_core.formats.choice.thresholds import BLOCK_SLACK, DENSE_TO_MODIFY, SKEWED, THRESHOLDS, Thresholds
from sparse_core.formats.coo import COO
from sparse_core.formats.csr import CSR
from sparse_core.formats.ell import ELL
from sparse_core.formats.sliced_ell import SlicedELL

Operation = Literal["spmv", "spmm", "modify"]
FormatClass = type[SparseMatrix] | type[Tensor]


@dataclass(frozen=True)
class Choice:
    """A format and the reason for it.

    Attributes:
        format: class of the format; ``torch.Tensor`` for dense.
        reason: one sentence with the numbers that decided.
        options: of the conversion, such as ``block_size``.
    """

    format: FormatClass
    reason: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the format: ``"CSR"``, ``"dense"`` …"""
        return "dense" if self.format is Tensor else self.format.__name__

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.name}{f' ({options})' if options else ''}: {self.reason}"

    def convert(self, matrix: SparseMatrix | Tensor) -> Any:
        """Convert ``matrix`` to this format; return it unchanged if it already has it.

        Args:
            matrix: any format, or a dense tensor.

        Returns:
            ``SparseMatrix`` or, for dense, (M, N) tensor; both multiply with ``@``.
        """
        if not issubclass(self.format, SparseMatrix):
            return matrix.to_dense() if isinstance(matrix, SparseMatrix) else matrix
        if not isinstance(matrix, SparseMatrix):
            return self.format.from_dense(matrix, **self.options)
        if self.holds(matrix):
            return matrix
        return matrix.to(self.format, **self.options)

    def holds(self, matrix: SparseMatrix | Tensor) -> bool:
        """True if ``matrix`` already has this format with these options."""
        if not isinstance(matrix, SparseMatrix) or type(matrix) is not self.format:
            return isinstance(matrix, Tensor) and self.format is Tensor
        return all(getattr(matrix, name) == value for name, value in self.options.items())


def choose_format(
    matrix: SparseMatrix | Tensor, *, operation: Operation = "spmv", reuse: int = 100
) -> Choice:
    """Return the format in which ``matrix`` is multiplied fastest, by thresholds measured on its device type.

    The rules, in order: COO for a matrix that changes; BSR if blocks are full enough; dense if too few
    positions are zero; SlicedELL on a GPU if rows of a slice have similar lengths; else CSR. Values are never
    read, only the structure.

    Args:
        matrix: any format, or a dense (M, N) tensor, whose zeros count as absent.
        operation: ``"spmv"`` is a product with a vector, ``"spmm"`` with tens of columns, ``"modify"`` is
            frequent insertion of entries.
        reuse: number of products after one conversion; with too few the matrix keeps its format.

    Returns:
        The choice with its reason; ``choice.convert(matrix)`` applies it. Equal structure, device, type and
        arguments give an equal choice.

    Raises:
        TypeError: ``matrix`` is neither a sparse matrix nor a dense tensor.
        ValueError: another operation, a negative ``reuse``, or a tensor that is not two-dimensional.
    """
    _check(matrix, operation)
    if reuse < 0:
        raise ValueError(f"reuse must be 0 or more products, got {reuse}")
    profile = _profile(matrix)
    if operation == "modify":
        return _to_modify(profile)
    limits = THRESHOLDS["cuda" if matrix.device.type == "cuda" else "cpu", operation]
    best = _fastest(profile, limits, item=matrix.dtype.itemsize, kernels=_has_kernels(matrix))
    needed = _products_needed(best, limits)
    # A product with COO converts to CSR anyway.
    if best.holds(matrix) or reuse >= needed or (isinstance(matrix, COO) and best.format is CSR):
        return best
    stays = CSR if isinstance(matrix, COO) else Tensor if isinstance(matrix, Tensor) else type(matrix)
    return Choice(
        stays,
        f"{best.name} would be faster ({best.reason}), but {reuse} products do not pay for the"
        f" conversion, which takes about {needed}",
    )


def classic_choice(matrix: SparseMatrix | Tensor, operation: Operation = "spmv") -> Choice:
    """Return the choice of the textbook decision tree, which knows neither device nor blocks.

    Dense below 50 % sparsity; ELL if the longest row has at most twice the mean entries; COO for a matrix
    that is modified often; else CSR.

    Args:
        matrix: any format, or a dense (M, N) tensor.
        operation: as for :func:`choose_format`.
    """
    _check(matrix, operation)
    profile = _profile(matrix)
    if profile.sparsity < 0.5:
        return Choice(Tensor, f"{_percent(profile.sparsity)} of the positions are zero, below 50 %")
    lengths = f"the longest row has {profile.longest} entries and the mean is {profile.mean:.1f}"
    if profile.longest <= 2 * profile.mean:
        return Choice(ELL, f"{lengths}: within a factor of two")
    if operation == "modify":
        return Choice(COO, f"{lengths}, and the matrix is modified often")
    return Choice(CSR, f"{lengths}: beyond a factor of two")


def _check(matrix: SparseMatrix | Tensor, operation: str) -> None:
    if operation not in get_args(Operation):
        raise ValueError(f"operation must be one of {', '.join(get_args(Operation))}; got {operation!r}")
    if isinstance(matrix, SparseMatrix):
        return
    if not isinstance(matrix, Tensor) or matrix.layout != torch.strided:
        found = f"a tensor of layout {matrix.layout}" if isinstance(matrix, Tensor) else type(matrix).__name__
        raise TypeError(
            f"matrix must be a sparse matrix of sparse_core.formats or a dense tensor, got {found}:"
            " convert it with CSR.from_torch or CSR.from_scipy"
        )
    if matrix.ndim != 2:
        raise ValueError(f"a dense matrix must have two dimensions, got shape {tuple(matrix.shape)}")


def _profile(matrix: SparseMatrix | Tensor) -> Profile:
    if isinstance(matrix, Tensor):
        return profile_of(CSR.from_dense(matrix.detach()))
    if isinstance(matrix, CSR):
        return profile_of(matrix)
    return matrix.cached("formats profile", lambda: profile_of(matrix.detach().to(CSR)))


def _has_kernels(matrix: SparseMatrix | Tensor) -> bool:
    """True if products have kernels for each format; otherwise a library multiplies CSR."""
    return matrix.device.type == "cuda" and not matrix.dtype.is_complex and module_available("triton")


def _to_modify(profile: Profile) -> Choice:
    share = f"{_percent(profile.sparsity)} of the positions are zero"
    if profile.sparsity < DENSE_TO_MODIFY:
        return Choice(Tensor, f"{share}: coordinates would take more memory than a dense matrix")
    return Choice(COO, f"{share}, and new entries are appended to coordinates without moving others")


def _fastest(profile: Profile, limits: Thresholds, *, item: int, kernels: bool) -> Choice:
    """Return the fastest format for values of ``item`` bytes, ignoring the conversion."""
    if profile.nnz == 0:
        return Choice(CSR, "the matrix stores no entries")
    index = index_dtype_for(*profile.shape, profile.nnz).itemsize
    fits = profile.shape[0] * profile.shape[1] * item <= limits.dense_bytes
    size, share, stored = _best_block(profile, item, index)
    if kernels and share <= limits.block_share and not (fits and stored >= limits.dense_blocks):
        fill = f"blocks of {size}x{size} are {_percent(profile.block_fill[size])} full"
        reason = f"{fill}, so BSR takes {share:.2f} of the bytes of CSR"
        return Choice(BSR, reason, {"block_size": (size, size)})
    zero = f"{_percent(profile.sparsity)} of the positions are zero"
    if fits and profile.sparsity < limits.dense_below:
        return Choice(Tensor, f"{zero}, below {_percent(limits.dense_below)} where CSR starts to pay")
    lengths = f"rows have {profile.shortest} to {profile.longest} entries, {profile.mean:.1f} on average"
    slots = f"slices of {SLICE_HEIGHT} rows take {profile.padding:.2f} slots per entry"
    many = profile.shape[0] >= limits.sliced_rows and profile.mean <= limits.sliced_mean
    if kernels and many and profile.padding <= limits.sliced_padding:
        return Choice(SlicedELL, f"{lengths}: {slots}", {"slice_height": SLICE_HEIGHT})
    if profile.longest > SKEWED * profile.mean:
        return Choice(CSR, f"{lengths}: only CSR balances such uneven rows")
    if kernels and limits.sliced_padding and many:
        return Choice(CSR, f"{lengths}: {slots}, more than {limits.sliced_padding:.2f}")
    return Choice(CSR, f"{zero} and {lengths}")


def _best_block(profile: Profile, item: int, index: int) -> tuple[int, float, float]:
    """Return block size, BSR's bytes per byte of CSR, and the share of the matrix that its blocks cover."""
    fill = profile.block_fill
    if not all(fill.values()):  # The sampled rows have no entry.
        return 1, float("inf"), 1.0
    bytes_an_entry = {size: (item + index / size**2) / fill[size] for size in BLOCK_SIZES}
    tightest = min(bytes_an_entry.values())
    size = max(size for size, needed in bytes_an_entry.items() if needed <= BLOCK_SLACK * tightest)
    stored = (1 - profile.sparsity) / fill[size]
    return size, bytes_an_entry[size] / (item + index), min(1.0, stored)


def _products_needed(choice: Choice, limits: Thresholds) -> int:
    reuse: dict[FormatClass, int] = {
        BSR: limits.block_reuse,
        SlicedELL: limits.sliced_reuse,
        CSR: limits.csr_reuse,
        Tensor: limits.dense_reuse,
    }
    return reuse[choice.format]


def _percent(share: float) -> str:
    """Format a share with enough digits to distinguish it from 0 and 1."""
    percent = 100 * share
    digits = 4 if percent > 99.9 else 1
    return f"{percent:.{digits}f}".rstrip("0").rstrip(".") + " %"
