"""Report of a refresh of the patterns."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_core.common.table import Report, Table, cell


@dataclass(frozen=True)
class LayerPruning:
    """One layer after a refresh.

    Attributes:
        wanted: density in the schedule.
        density: share of the allowed blocks that the layer keeps, over all heads.
        blocks: number of kept blocks.
        changed: share of the allowed blocks that were added or dropped.
    """

    wanted: float
    density: float
    blocks: int
    changed: float


@dataclass(frozen=True)
class PruningReport(Report):
    """Report of a refresh; ``str()`` gives a table.

    Attributes:
        step: training step of the refresh.
        layers: in the order of the pruner.
    """

    step: int
    layers: tuple[LayerPruning, ...]

    def tables(self) -> list[Table | str]:
        """Return a table with a row per layer."""

        def shares(*values: float) -> list[str]:
            return [cell(value, ".1%") for value in values]

        rows = [
            (place, *shares(layer.wanted, layer.density), layer.blocks, *shares(layer.changed))
            for place, layer in enumerate(self.layers)
        ]
        heads = ("layer", "wanted", "density", "blocks", "changed")
        return [Table(heads, rows, title=f"step {self.step}")]
