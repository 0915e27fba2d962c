"""Prune, quantise and pack one weight."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.nm.masks import check_nm, fits, nm_mask
from sparse_core.nm.packing.bits import pack_bits
from sparse_core.nm.packing.codebook import code_bits, fit_codebook
from sparse_core.nm.packing.coding import FLOATS, Coding, as_coding
from sparse_core.nm.packing.compressed_weight import CompressedWeight
from sparse_core.nm.packing.matrix_view import Layout, MatrixView, pad_columns
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.positions import IndexCoding, pack_positions
from sparse_core.nm.packing.quantisation import quantise_groups
from sparse_core.nm.pattern import TWO_FOUR, NMPattern

#: Pattern of a dense weight: every value is kept, and no position is stored.
DENSE = NMPattern(1, 1)


def compress(
    weight: Tensor,
    pattern: NMPattern | None = TWO_FOUR,
    coding: Coding | str = "int8",
    *,
    mask: Tensor | None = None,
    layout: Layout | None = None,
    index: IndexCoding = "combinatorial",
    pad: bool = False,
    name: str = "weight",
) -> CompressedWeight:
    """Keep n of each m columns of a weight and store the kept values in few bits.

    A weight that is already n:m is packed as it is; otherwise the largest values are kept.

    Args:
        weight: floating point, two or more dimensions.
        pattern: n:m, or ``None`` to keep all values.
        coding: storage of the kept values, see :class:`Coding`, or text such as ``"int4/64"``.
        mask: bool of the weight's shape, exactly n true per group (at most n if ``pad`` adds columns).
        layout: matrix layout of the weight; by default as stored, or ``pattern.conv_layout`` for four
            dimensions.
        index: coding of the positions.
        pad: pad the last group if m does not divide the columns.
        name: name of the weight in errors.

    Raises:
        TypeError: ``weight`` is not floating point.
        ValueError: NaN or infinite values, m does not divide the columns, a mask that does not fit, values
            that the coding cannot hold, or a codebook with more entries than values; names ``name``.
    """
    coding = as_coding(coding)
    if not weight.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {weight.dtype}")
    try:
        view = MatrixView(tuple(weight.shape), layout or _default_layout(weight, pattern))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    matrix = view.to_matrix(weight.detach())
    _check_finite(matrix, name)
    wanted = pattern or DENSE
    _check_width(view, wanted, pad, name)
    chosen = None if mask is None else _mask_matrix(mask, view, wanted, name)
    values, positions = _kept_parts(pad_columns(matrix, wanted.m), wanted, chosen)
    try:
        packed_index = (
            torch.zeros((view.rows, 0), dtype=torch.uint8, device=matrix.device)
            if wanted.n == wanted.m
            else pack_positions(positions, wanted, index)
        )
        stored = _stored_values(values, coding)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return CompressedWeight(view, wanted, coding, index, index=packed_index, **stored)


def _default_layout(weight: Tensor, pattern: NMPattern | None) -> Layout:
    channels_last = pattern is not None and pattern.conv_layout == "channels_last" and weight.ndim == 4
    return "channels_last" if channels_last else "rows"


def _kept_parts(matrix: Tensor, pattern: NMPattern, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return values (rows, kept) and positions (rows, groups, n) of a matrix of whole groups."""
    if pattern.n == pattern.m:
        rows, columns = matrix.shape
        every = torch.arange(pattern.m, dtype=torch.uint8, device=matrix.device)
        if mask is not None:
            matrix = matrix.masked_fill(~mask, 0)
        return matrix, every.expand(rows, columns // pattern.m, pattern.m)
    if mask is None and not fits(matrix, pattern):
        mask = nm_mask(matrix, pattern.n, pattern.m)
    packed = PackedNM.from_dense(matrix, NMPattern(pattern.n, pattern.m), mask)
    return packed.values, packed.index()


def _stored_values(values: Tensor, coding: Coding) -> dict[str, Any]:
    """Return the parts of a :class:`CompressedWeight` for its values (rows, kept)."""
    if coding.kind in FLOATS:
        stored = values.to(FLOATS[coding.kind])
        if not bool(stored.isfinite().all()):
            raise ValueError(
                f"values up to {float(values.abs().max()):.3g} do not fit {coding.kind}:"
                " use float32 or bfloat16"
            )
        return {"values": stored.contiguous()}
    if coding.kind == "codebook":
        book = fit_codebook(values, coding.entries)
        bits = code_bits(max(len(book.centroids) + book.zero, 1))
        return {"values": pack_bits(book.codes, bits), "centroids": book.centroids, "zero": book.zero}
    quantised = quantise_groups(
        values, coding.bits, group_size=coding.group_size, clip=coding.clip, half_scales=coding.half_scales
    )
    unsigned = quantised.values.view(torch.uint8) & (2**coding.bits - 1)
    return {"values": pack_bits(unsigned, coding.bits), "scale": quantised.scale}


def _check_finite(matrix: Tensor, name: str) -> None:
    wrong = ~matrix.isfinite()
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{name} holds NaN or infinite values, {int(wrong.sum())} of {matrix.numel()} (the first at row"
            f" {row}, column {column}): load or train it again"
        )


def _check_width(view: MatrixView, pattern: NMPattern, pad: bool, name: str) -> None:
    if view.columns % pattern.m and not pad:
        raise ValueError(
            f"the input dimension of {name} is {view.columns}, which is not divisible by m={pattern.m}:"
            " pass pad=True to let the last group reach beyond it, or leave this layer out"
        )


def _mask_matrix(mask: Tensor, view: MatrixView, pattern: NMPattern, name: str) -> Tensor:
    """Return the mask as a matrix of whole groups, with exactly n true in each."""
    if mask.dtype != torch.bool or tuple(mask.shape) != view.shape:
        raise ValueError(
            f"the mask of {name} must be bool of shape {view.shape}, got {mask.dtype} {tuple(mask.shape)}"
        )
    matrix = view.to_matrix(mask)
    whole = view.columns // pattern.m * pattern.m
    if pattern.n < pattern.m and whole:
        check_nm(matrix[:, :whole], pattern.n, pattern.m, name=f"the mask of {name}")
    tail = matrix[:, whole:].sum(dim=1)
    if tail.numel() and int(tail.max()) > pattern.n:
        raise ValueError(
            f"the mask of {name} keeps {int(tail.max())} of the last {view.columns - whole} columns, at most"
            f" {pattern.n} fit a group"
        )
    return pad_columns(matrix, pattern.m)
