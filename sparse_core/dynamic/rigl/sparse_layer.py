"""Base of the sparse layers: stored connections, double-buffered topology, products and state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from typing_extensions import Self

from sparse_core.dynamic.ranking import check_batch
from sparse_core.dynamic.rigl.block_product import BlockPlan, block_linear, plan_blocks
from sparse_core.dynamic.rigl.exchange import Exchange
from sparse_core.dynamic.rigl.fan_in import MOST_ROWS, fan_in_product
from sparse_core.dynamic.rigl.grid import Grid, random_cells
from sparse_core.formats import CSR
from sparse_core.formats.indexing import pointers_from_rows
from sparse_core.linalg import spmm

Execution = Literal["sparse", "dense"]
#: Version of the stored state.
FORMAT = 1


class SparseTrainedLayer(nn.Module):
    """Base of :class:`RigLLinear` and :class:`RigLConv2d`: an (out, in) matrix that stores its connections.

    The topology has two buffers: the next one is written while the current one is in use, and
    :meth:`exchange` swaps them at once.

    Attributes:
        grid: positions that connections may take.
        values: parameter, (connections,) or (blocks, rows of a block, columns of a block).
        cells: (connections or blocks,) int64, flat positions in the grid, rising.
        bias: (out,) or ``None``.
        execution: ``"sparse"`` multiplies stored connections only. ``"dense"`` unpacks them at each call,
            often faster for unstructured weights, and computes the dense gradient at every step.
        growth_gradient: (out, in) gradient of the whole matrix, summed over the backward passes since
            :meth:`collect_growth` was switched on; else ``None``.
    """

    values: nn.Parameter
    cells: Tensor
    bias: nn.Parameter | None

    def __init__(
        self, grid: Grid, bias: bool, execution: Execution, seed: int, device: Any, dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        if execution not in get_args(Execution):
            raise ValueError(f"execution must be one of {get_args(Execution)}, got {execution!r}")
        self.grid, self.execution = grid, execution
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("cells", random_cells(grid, generator).to(device))
        # The bound of nn.Linear, for the actual number of inputs of a unit (Evci et al., "Gradient Flow in
        # Sparse Neural Networks", 2022).
        bound = 1 / math.sqrt(max(1.0, grid.density * grid.columns))
        values = torch.empty(grid.values_shape, dtype=torch.float32).uniform_(
            -bound, bound, generator=generator
        )
        self.values = nn.Parameter(values.to(device=device, dtype=dtype or torch.get_default_dtype()))
        if bias:
            start = torch.empty(grid.rows, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
            self.bias = nn.Parameter(start.to(self.values))
        else:
            self.register_parameter("bias", None)
        self.growth_gradient: Tensor | None = None
        self._collects = False
        #: Number of taps by which block columns are ordered, see RigLConv2d.
        self._tap_count = 1
        self._plan: CSR | BlockPlan | None = None
        self._spare: tuple[Tensor, Tensor] | None = None

    @property
    def matrix(self) -> Tensor:
        """Dense (out, in) matrix, unpacked at each access; gradients reach ``values``."""
        return self.grid.scatter(self.values, self.cells)

    @property
    def mask(self) -> Tensor:
        """(out, in) bool, true at connections."""
        return self.grid.scatter(torch.ones_like(self.values.detach()), self.cells) != 0

    @property
    def sparsity(self) -> float:
        """Share of the matrix without connections."""
        return 1 - self.grid.density

    def collect_growth(self, on: bool) -> None:
        """Start or stop computing the gradient of the whole matrix; discards the last one."""
        self._collects, self.growth_gradient = on, None

    def exchange(self, change: Exchange) -> None:
        """Replace the topology: write the spare buffers, then swap them with those in use.

        Raises:
            ValueError: another number of cells.
        """
        if change.cells.shape != self.cells.shape:
            raise ValueError(f"topology has {len(change.cells)} cells, the layer {len(self.cells)}")
        if self._spare is None:
            self._spare = torch.empty_like(self.cells), torch.empty_like(self.values.detach())
        cells, values = self._spare
        with torch.no_grad():
            cells.copy_(change.cells)
            change.carry(self.values.detach(), out=values)
            plan = self._make_plan(cells, values)
            self._spare = self.cells, self.values.detach()
            self._buffers["cells"], self._plan = cells, plan
            self.values.data = values

    def load_matrix(self, matrix: Tensor, cells: Tensor) -> None:
        """Take a topology and the values of a dense (out, in) matrix at its cells."""
        with torch.no_grad():
            self.cells.copy_(cells)
            self.values.copy_(self.grid.gather(matrix.to(self.values.device), self.cells))
        self._plan = None

    def _make_plan(self, cells: Tensor, values: Tensor) -> CSR | BlockPlan:
        grid = self.grid
        if grid.is_blocked:
            like = self._plan if isinstance(self._plan, BlockPlan) else None
            return plan_blocks(cells, grid, self._tap_count, like=like)
        row = torch.div(cells, grid.columns, rounding_mode="floor").to(torch.int32)
        col = (cells % grid.columns).to(torch.int32)
        shape = (grid.rows, grid.columns)
        return CSR(pointers_from_rows(row, grid.rows), col, values, shape, validate=False)

    def _current_plan(self) -> CSR | BlockPlan:
        if self._plan is None:
            self._plan = self._make_plan(self.cells, self.values.detach())
        return self._plan

    def _cast_values(self, dtype: torch.dtype) -> Tensor:
        return self.values if self.values.dtype == dtype else self.values.to(dtype)

    def _multiply(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        """Return (N, out) for (N, in)."""
        plan, values = self._current_plan(), self._cast_values(rows.dtype)
        if isinstance(plan, BlockPlan):
            product = block_linear(rows, values, plan, bias)
        elif self._takes_few_rows(rows):
            return fan_in_product(rows, values, plan.col, self.grid.rows, bias)
        else:
            product = spmm(plan.with_values(values), rows.T).T
            product = product if bias is None else product + bias
        if self._collects and product.requires_grad:
            seen = rows.detach()
            product.register_hook(lambda gradient: self._collect(gradient.T @ seen))
        return product

    def _takes_few_rows(self, rows: Tensor) -> bool:
        """Return True if the gradient-free GPU product for few rows can be used."""
        learns = torch.is_grad_enabled() and (rows.requires_grad or self.values.requires_grad)
        return rows.is_cuda and not learns and self.grid.per_row > 0 and len(rows) <= MOST_ROWS

    def _unpacked(self, dtype: torch.dtype) -> Tensor:
        matrix = self.matrix.to(dtype)
        if self._collects and matrix.requires_grad:
            matrix.register_hook(self._collect)
        return matrix

    def _collect(self, gradient: Tensor) -> None:
        gradient = gradient.detach().to(self.values.dtype)
        known = self.growth_gradient
        self.growth_gradient = gradient if known is None else known + gradient

    def _cast(self, x: Tensor) -> Tensor:
        check_batch(x)
        if torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64:
            return x.to(torch.get_autocast_dtype(x.device.type))
        if x.dtype != self.values.dtype:
            raise TypeError(f"x is {x.dtype} but the weight is {self.values.dtype}: convert one of them")
        return x

    def extra_repr(self) -> str:
        """Return sizes and density for ``print(model)``."""
        grid = self.grid
        unit = f"blocks of {grid.cell_rows}x{grid.cell_columns}" if grid.is_blocked else "connections"
        place = f", {grid.per_row} per row" if grid.per_row else ""
        return (
            f"out={grid.rows}, in={grid.columns}, {grid.count} of {grid.size} {unit}{place},"
            f" bias={self.bias is not None}, execution={self.execution!r}"
        )

    def get_extra_state(self) -> Tensor:
        """Return (7,) int64: format version, then the fields of :class:`Grid`."""
        grid = self.grid
        sizes = (grid.rows, grid.columns, grid.cell_rows, grid.cell_columns, grid.per_row, grid.count)
        return torch.tensor([FORMAT, *sizes])

    def set_extra_state(self, state: Tensor) -> None:
        """Check that a stored state belongs to this grid.

        Raises:
            ValueError: another version, shape, structure or number of connections.
        """
        expected = self.get_extra_state()
        if not torch.equal(state.cpu(), expected):
            raise ValueError(
                f"{type(self).__name__}: the stored topology is (version, out, in, block rows, block columns,"
                f" per row, cells) = {tuple(state.tolist())}, the layer {tuple(expected.tolist())}:"
                " build the layer with the same sparsity and structure"
            )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any, **options: Any
    ) -> None:
        if f"{prefix}_extra_state" in state_dict:
            self.set_extra_state(state_dict[f"{prefix}_extra_state"])
        cells = state_dict.get(f"{prefix}cells")
        if isinstance(cells, Tensor) and cells.shape == self.cells.shape and cells.device.type != "meta":
            self._check_cells(cells, f"{prefix}cells")
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)
        self._plan = self._spare = None

    def _check_cells(self, cells: Tensor, name: str) -> None:
        grid = self.grid
        right = bool((cells.diff() > 0).all()) and int(cells[0]) >= 0 and int(cells[-1]) < grid.size
        if right and grid.per_row:
            right = bool(
                (cells.reshape(-1, grid.per_row) // grid.shape[1] == _row_numbers(cells, grid)).all()
            )
        if not right:
            raise ValueError(f"{name}: the stored topology is damaged: cells must rise within the grid")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._plan = self._spare = self.growth_gradient = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None, "_spare": None}


def _row_numbers(cells: Tensor, grid: Grid) -> Tensor:
    return torch.arange(grid.shape[0], device=cells.device)[:, None]
