"""Sparse matrices: validated formats, and conversions between them and torch, scipy and dense matrices."""

# Importing describe, convert (through files) and algebra registers their operations.
import sparse_core.formats.algebra
import sparse_core.formats.summary.describe  # noqa: F401
from sparse_core.formats.assemble import Assembled, assemble_csr
from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.bsr import BSR
from sparse_core.formats.choice.choose import Choice, choose_format
from sparse_core.formats.compact import CompactCSR
from sparse_core.formats.coo import COO
from sparse_core.formats.csr import CSR
from sparse_core.formats.description import Description, RowLengths
from sparse_core.formats.ell import ELL
from sparse_core.formats.hyb import HYB
from sparse_core.formats.nm import NM
from sparse_core.formats.sliced_ell import SlicedELL
from sparse_core.formats.storage.files import load_matrix, save_matrix

__all__ = [
    "BSR",
    "COO",
    "CSR",
    "ELL",
    "HYB",
    "NM",
    "Assembled",
    "Choice",
    "CompactCSR",
    "Description",
    "RowLengths",
    "SlicedELL",
    "SparseMatrix",
    "assemble_csr",
    "choose_format",
    "index_dtype_for",
    "load_matrix",
    "save_matrix",
]
