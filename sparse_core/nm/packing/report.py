"""Bytes of compressed weights compared with dense ones and with the theoretical minimum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sparse_core.common.table import Column, Report, Table, left_out
from sparse_core.nm.packing.compressed_weight import CompressedWeight


@dataclass(frozen=True)
class LayerCompression:
    """One compressed weight.

    Attributes:
        name: dotted name of the layer; ``""`` if the model itself is the layer.
        shape: shape of the weight.
        pattern: such as ``"2:4"``, or ``"dense"``.
        coding: such as ``"int8"``.
        dense_bytes: bytes of the original weight in its type.
        value_bytes: stored bytes of the kept values.
        index_bytes: stored bytes of their positions.
        scale_bytes: stored bytes of scales and codebook.
        value_bits, index_bits, scale_bits: the same in theory: kept values times bits per value; groups times
            log2 C(m, n), the minimum for equally likely choices; scales and codebook.
        kept_magnitude: Σ|w| of the kept values over Σ|w| of all, before rounding.
        error: ‖restored - before‖₂ / ‖before‖₂, pruning and rounding together.
        rounding_error: the same relative to the kept values only.
    """

    name: str
    shape: tuple[int, ...]
    pattern: str
    coding: str
    dense_bytes: int
    value_bytes: int
    index_bytes: int
    scale_bytes: int
    value_bits: int
    index_bits: float
    scale_bits: int
    kept_magnitude: float
    error: float
    rounding_error: float
    derived: ClassVar = ("stored_bytes", "theory_bytes", "bits_a_weight")

    @property
    def stored_bytes(self) -> int:
        """Bytes of all parts."""
        return self.value_bytes + self.index_bytes + self.scale_bytes

    @property
    def theory_bytes(self) -> float:
        """Theoretical minimum of the bytes."""
        return (self.value_bits + self.index_bits + self.scale_bits) / 8

    @property
    def bits_a_weight(self) -> float:
        """Stored bits per weight, zeros included."""
        return 8 * self.stored_bytes / math.prod(self.shape)


@dataclass(frozen=True)
class CompressionReport(Report):
    """Result of the compression of a model; ``str(report)`` is a table.

    Attributes:
        layers: compressed weights.
        skipped: reason for each other layer with a matrix.
        other_bytes: stored bytes of all other tensors.
        other_dense_bytes: bytes of all other tensors before.
    """

    layers: list[LayerCompression]
    skipped: dict[str, str]
    other_bytes: int
    other_dense_bytes: int
    derived: ClassVar = ("dense_bytes", "stored_bytes", "theory_bytes")

    @property
    def dense_bytes(self) -> int:
        """Bytes of all tensors before."""
        return self.other_dense_bytes + sum(layer.dense_bytes for layer in self.layers)

    @property
    def stored_bytes(self) -> int:
        """Stored bytes of all tensors; a file adds its header."""
        return self.other_bytes + sum(layer.stored_bytes for layer in self.layers)

    @property
    def theory_bytes(self) -> float:
        """Theoretical minimum of the compressed weights, plus the stored other tensors."""
        return self.other_bytes + sum(layer.theory_bytes for layer in self.layers)

    def tables(self) -> list[Table | str]:
        """Return one row per layer, the other tensors, the total, and the skipped layers."""
        columns: dict[str, Column] = {
            "layer": lambda layer: layer.name or "(model)",
            "shape": "shape",
            "pattern": "pattern",
            "coding": "coding",
            "bytes dense": "dense_bytes",
            "values": "value_bytes",
            "index": "index_bytes",
            "scales": "scale_bytes",
            "stored": "stored_bytes",
            "theory": "theory_bytes:,.0f",
            "bits per weight": "bits_a_weight:.2f",
            "kept |w|": "kept_magnitude:.2%",
            "error": "error:.2%",
        }
        totals = [
            {"layer": name, "bytes dense": dense, "stored": stored, "theory": theory}
            for name, dense, stored, theory in (
                ("other tensors", self.other_dense_bytes, self.other_bytes, self.other_bytes),
                ("total", self.dense_bytes, self.stored_bytes, self.theory_bytes),
            )
        ]
        return [Table.of(self.layers, columns, totals=totals), left_out(self.skipped)]


def describe_weight(name: str, before: Tensor, weight: CompressedWeight) -> LayerCompression:
    """Compare a compressed weight with the original ``before``, in its own shape."""
    exact = weight.view.to_matrix(before.detach()).double()
    restored = weight.rows(dtype=torch.float64)
    kept = _kept_entries(weight)
    total, norm = float(exact.abs().sum()), float(exact.norm())
    inside = torch.where(kept, exact, 0.0)
    sparse_rows = weight.view.rows * weight.groups if weight.sparse else 0
    return LayerCompression(
        name=name,
        shape=weight.view.shape,
        pattern=str(weight.pattern) if weight.sparse else "dense",
        coding=str(weight.coding),
        dense_bytes=before.nbytes,
        value_bytes=weight.values.nbytes,
        index_bytes=weight.index.nbytes,
        scale_bytes=sum(part.nbytes for part in (weight.scale, weight.centroids) if part is not None),
        value_bits=weight.view.rows * weight.kept * weight.value_bits,
        index_bits=sparse_rows * weight.pattern.entropy_bits,
        scale_bits=8 * sum(part.nbytes for part in (weight.scale, weight.centroids) if part is not None),
        kept_magnitude=float(inside.abs().sum()) / total if total else 1.0,
        error=float((restored - exact).norm()) / norm if norm else 0.0,
        rounding_error=float((restored - inside).norm()) / norm if norm else 0.0,
    )


def _kept_entries(weight: CompressedWeight) -> Tensor:
    """Return (rows, columns) bool, true at stored values."""
    rows, groups, m = weight.view.rows, weight.groups, weight.pattern.m
    kept = torch.zeros((rows, groups, m), dtype=torch.bool, device=weight.device)
    kept = kept.scatter(2, weight.positions().long(), True)
    return kept.reshape(rows, groups * m)[:, : weight.view.columns]
