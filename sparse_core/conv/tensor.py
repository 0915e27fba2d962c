"""Batch of sparse maps: features at active coordinates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from sparse_core.conv.coordinates import CoordinateTable, build_table
from sparse_core.conv.neighbours import strided_table, submanifold_table, transposed_table
from sparse_core.conv.table import NeighbourTable
from sparse_core.kernels.op import Impl

_Made = TypeVar("_Made")
#: Functions of torch that work on each row of features, or on all rows as a batch norm does.
ROW_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    F.batch_norm,
    F.dropout,
    F.elu,
    F.gelu,
    F.hardswish,
    F.layer_norm,
    F.leaky_relu,
    F.linear,
    F.mish,
    F.relu,
    F.relu6,
    F.selu,
    F.silu,
    F.softplus,
    torch.relu,
    torch.sigmoid,
    torch.tanh,
)


class _SumRegistry:
    """Registry of the addition of tensors, whose module imports this one."""

    add: Callable[[SparseTensor, SparseTensor], SparseTensor]


sums = _SumRegistry()


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """Features at the active cells of a batch of grids; frames may have different numbers of active cells.

    Norms, activations and linear layers of torch accept it
    (``nn.Sequential(SubmanifoldConv2d(4, 8), nn.BatchNorm1d(8), nn.ReLU())``). They work on the features, and
    empty cells stay empty.

    Attributes:
        features: (M, C) floating point.
        coordinates: (M, 1 + D) int32 ``(batch, *spatial)``, distinct.
        spatial_shape: D sizes of the grid in cells.
        batch_size: number of frames, including empty ones.
        cache: tables of this set of coordinates, shared by every tensor on it.

    Raises:
        ValueError: features and coordinates of other shapes, or a cell outside the grid or the batch.
            Tensors made from others, and :meth:`from_table`, skip the check of the cells.
    """

    features: Tensor
    coordinates: Tensor
    spatial_shape: tuple[int, ...]
    batch_size: int
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or len(self.features) != len(self.coordinates):
            raise ValueError(
                f"features must be (M, C) with one row per coordinate; got {tuple(self.features.shape)}"
                f" for {len(self.coordinates)} coordinates"
            )
        columns = len(self.spatial_shape) + 1
        if self.coordinates.ndim != 2 or self.coordinates.shape[1] != columns:
            raise ValueError(
                f"coordinates must be (M, {columns}) for a {columns - 1}-D grid,"
                f" got {tuple(self.coordinates.shape)}"
            )
        if not self.cache.keys() & {"table", "checked"}:
            _check_cells(self.coordinates, (self.batch_size, *self.spatial_shape))
            self.cache["checked"] = True

    @classmethod
    def from_table(cls, features: Tensor, table: CoordinateTable, batch_size: int) -> SparseTensor:
        """Make a tensor with features (M, C) in the row order of ``table``.

        Raises:
            ValueError: a cell of a frame beyond the batch.
        """
        last = table.coordinates[-1:, 0].tolist()
        if last and last[0] >= batch_size:
            raise ValueError(
                f"batch_size is {batch_size}, but the table has cells of frame {last[0]}. Pass"
                f" {last[0] + 1} or more"
            )
        return cls(features, table.coordinates, table.spatial_shape, batch_size, {"table": table})

    def __len__(self) -> int:
        return len(self.features)

    def with_features(self, features: Tensor) -> SparseTensor:
        """Return other features at the same coordinates, with the cached maps."""
        return replace(self, features=features)

    def at_cells(self, features: Tensor, table: CoordinateTable) -> SparseTensor:
        """Return features (M', C) at the cells of a table that was made from this tensor's."""
        if table is self.cache.get("table"):
            return self.with_features(features)
        return SparseTensor(
            features, table.coordinates, table.spatial_shape, self.batch_size, {"table": table}
        )

    @property
    def device(self) -> torch.device:
        """Device of the features."""
        return self.features.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the features."""
        return self.features.dtype

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """Convert the features like ``torch.Tensor.to``, and move the coordinates to their device."""
        features = self.features.to(*args, **kwargs)
        if features.device == self.coordinates.device:
            return self.with_features(features)
        coordinates = self.coordinates.to(features.device)
        return SparseTensor(features, coordinates, self.spatial_shape, self.batch_size, {"checked": True})

    def half(self) -> SparseTensor:
        """Convert the features to float16."""
        return self.to(torch.float16)

    def float(self) -> SparseTensor:
        """Convert the features to float32."""
        return self.to(torch.float32)

    def double(self) -> SparseTensor:
        """Convert the features to float64."""
        return self.to(torch.float64)

    def dim(self) -> int:
        """Return 2, the dimensions of the features, for layers of torch."""
        return 2

    def __add__(self, other: SparseTensor) -> SparseTensor:
        """Add where both are active; otherwise keep the active one. Grids and channels must match."""
        if not isinstance(other, SparseTensor):
            return NotImplemented
        return sums.add(self, other)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> SparseTensor:
        """Apply :data:`ROW_FUNCTIONS` to the features."""
        kwargs = dict(kwargs or {})
        tensor = args[0] if args else kwargs.get("input")
        rest = [*args[1:], *(value for name, value in kwargs.items() if name != "input")]
        if (
            function not in ROW_FUNCTIONS
            or not isinstance(tensor, cls)
            or any(isinstance(x, cls) for x in rest)
        ):
            name = getattr(function, "__name__", str(function))
            if name in ("cat", "concat", "concatenate"):
                raise TypeError(f"{name} does not support a SparseTensor: use sparse_core.conv.cat(tensors)")
            raise TypeError(
                f"{name} does not support a SparseTensor here: apply it to the features, as in"
                " tensor.with_features(function(tensor.features))"
            )
        if args:
            return tensor.with_features(function(tensor.features, *args[1:], **kwargs))
        return tensor.with_features(function(**{**kwargs, "input": tensor.features}))

    def table(self) -> CoordinateTable:
        """Return the table whose rows are this tensor's rows.

        Raises:
            ValueError: the coordinates are not in key order.
        """
        if "table" not in self.cache:
            table = build_table(self.coordinates, self.spatial_shape)
            if len(table) != len(self) or not torch.equal(table.coordinates, self.coordinates.int()):
                raise ValueError("coordinates must be distinct and in key order: use sorted_rows()")
            self.cache["table"] = table
        table = self.cache["table"]
        assert isinstance(table, CoordinateTable)
        return table

    def sorted_rows(self) -> SparseTensor:
        """Return the same cells in key order."""
        table = build_table(self.coordinates, self.spatial_shape)
        if len(table) != len(self):
            raise ValueError("coordinates must be distinct")
        order = torch.argsort(table.rows)
        return SparseTensor.from_table(self.features[order], table, self.batch_size)

    def submanifold_table(
        self, kernel_size: Sequence[int], dilation: Sequence[int] | None = None
    ) -> NeighbourTable:
        """Return cached neighbours of a submanifold convolution over these coordinates."""
        dilations = _ones_or(dilation, kernel_size)
        return self._cached(
            ("submanifold", tuple(kernel_size), dilations),
            lambda: submanifold_table(self.table(), kernel_size, dilations),
        )

    def strided_table(
        self,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        *,
        dilation: Sequence[int] | None = None,
        dilating: bool = True,
        impl: Impl = "auto",
    ) -> tuple[NeighbourTable, CoordinateTable]:
        """Return cached neighbours of a strided convolution and the table of its outputs."""
        dilations = _ones_or(dilation, kernel_size)
        return self._cached(
            ("strided", tuple(kernel_size), tuple(stride), tuple(padding), dilations, dilating),
            lambda: strided_table(
                self.table(), kernel_size, stride, padding, dilation=dilations, dilating=dilating, impl=impl
            ),
        )

    def transposed_table(
        self,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        output_padding: Sequence[int],
        dilation: Sequence[int] | None = None,
    ) -> tuple[NeighbourTable, CoordinateTable]:
        """Return cached neighbours of a transposed convolution and the table of its output cells."""
        dilations = _ones_or(dilation, kernel_size)
        sizes = tuple(kernel_size), tuple(stride), tuple(padding), tuple(output_padding)
        return self._cached(
            ("transposed", *sizes, dilations),
            lambda: transposed_table(
                self.table(), kernel_size, stride, padding, dilation=dilations, output_padding=output_padding
            ),
        )

    def _cached(self, key: tuple[Any, ...], make: Callable[[], _Made]) -> _Made:
        if key not in self.cache:
            self.cache[key] = make()
        found: _Made = self.cache[key]
        return found

    def to_dense(self, *, channels_last: bool = False) -> Tensor:
        """Return (B, C, *spatial) with zeros at inactive cells.

        Args:
            channels_last: use the channels-last memory format (4-D tensors only).
        """
        canvas = self.features.new_zeros((self.batch_size, *self.spatial_shape, self.features.shape[1]))
        canvas = canvas.index_put(tuple(self.coordinates.long().unbind(1)), self.features)
        dense = canvas.movedim(-1, 1)
        return dense if channels_last else dense.contiguous()


def _ones_or(dilation: Sequence[int] | None, kernel_size: Sequence[int]) -> tuple[int, ...]:
    return (1,) * len(kernel_size) if dilation is None else tuple(dilation)


def _check_cells(coordinates: Tensor, sizes: tuple[int, ...]) -> None:
    """Raise ``ValueError`` for the first cell outside the batch or the grid."""
    if len(coordinates) == 0:
        return
    low, high = torch.aminmax(coordinates, dim=0)
    bounds = zip(low.tolist(), high.tolist(), sizes, strict=True)
    for column, (least, most, size) in enumerate(bounds):
        if least >= 0 and most < size:
            continue
        wrong = (coordinates[:, column] < 0) | (coordinates[:, column] >= size)
        row = int(wrong.nonzero()[0, 0])
        cell = tuple(coordinates[row].tolist())
        what = f"a batch of {size} frames" if column == 0 else f"a grid of {sizes[1:]} cells"
        raise ValueError(f"coordinates[{row}] = {cell} (batch, *cell) lies outside {what}")
