"""Bytes of a converted model, packed and as it would be dense."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from sparse_core.common.table import Report, Table, share_saved
from sparse_core.nm.layers.conversion import require_packed_layers
from sparse_core.nm.layers.files import read_packed, split_tied
from sparse_core.nm.packing.state_files import LayerRecord, record_of

# Tensors of a layer that stand for its dense weight; the others, bias and extra state, stay as they are.
_WEIGHT = ("values", "metadata", "weight_scale", "activation_scale", "row_ptr", "col")


@dataclass(frozen=True)
class LayerSize:
    """One packed layer.

    Attributes:
        name: dotted name; ``""`` where the model itself is the layer.
        shape: out, in.
        pattern: such as ``"2:4"``.
        dense_bytes: of the dense weight, in the type that the values have (had, for int8).
        packed_bytes: of values, indices and scales.
    """

    name: str
    shape: tuple[int, int]
    pattern: str
    dense_bytes: int
    packed_bytes: int


@dataclass(frozen=True)
class PackedSizeReport(Report):
    """The result of :func:`packed_size_report`; ``str(report)`` is a table.

    Attributes:
        layers: packed layers.
        other_bytes: of all other tensors, which are stored as they are.
    """

    layers: list[LayerSize]
    other_bytes: int
    derived: ClassVar = ("dense_bytes", "packed_bytes")

    @property
    def dense_bytes(self) -> int:
        """Bytes of the whole state dict with dense weights."""
        return self.other_bytes + sum(layer.dense_bytes for layer in self.layers)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the whole state dict as it is."""
        return self.other_bytes + sum(layer.packed_bytes for layer in self.layers)

    def tables(self) -> list[Table | str]:
        """A row for each layer, then the other tensors and the total."""
        sizes: list[tuple[object, object, object, int, int]] = [
            (layer.name or "(model)", layer.shape, layer.pattern, layer.dense_bytes, layer.packed_bytes)
            for layer in self.layers
        ]
        sizes.append(("other tensors", "", "", self.other_bytes, self.other_bytes))
        sizes.append(("total", "", "", self.dense_bytes, self.packed_bytes))
        heads = ("layer", "shape", "pattern", "bytes dense", "packed", "saved")
        return [Table(heads, [(*row, share_saved(row[3], row[4])) for row in sizes])]


def packed_size_report(source: nn.Module | str | os.PathLike[str]) -> PackedSizeReport:
    """Compare bytes of a converted model, or of a file of one, with those of the dense model.

    Args:
        source: a model with packed layers, or a file of :func:`sparse_core.nm.layers.files.save_packed`.

    Raises:
        FileNotFoundError, ValueError: as for :func:`sparse_core.nm.layers.files.read_packed`; ``ValueError`` also
            for a model without packed layers.
    """
    if isinstance(source, nn.Module):
        records = {name: record_of(layer) for name, layer in require_packed_layers(source).items()}
        stored, _ = split_tied(source.state_dict())
        return _report(records, stored)
    contents = read_packed(source)
    stored = {name: tensor for name, tensor in contents.tensors.items() if name not in contents.tied}
    return _report(contents.layers, stored)


def _report(records: Mapping[str, LayerRecord], stored: Mapping[str, Tensor]) -> PackedSizeReport:
    layers = []
    weights = set()
    for name, record in records.items():
        names = {f"{name}.{part}" if name else part for part in _WEIGHT} & stored.keys()
        weights |= names
        packed = sum(stored[part].nbytes for part in names)
        layers.append(LayerSize(name, record.shape, record.pattern, record.dense_nbytes, packed))
    other = sum(tensor.nbytes for name, tensor in stored.items() if name not in weights)
    return PackedSizeReport(layers, other)
