"""What a refresh of the patterns did."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_core.common.table import Report, Table, cell


@dataclass(frozen=True)
class LayerPruning:
    """One layer after a refresh.

    Attributes:
        wanted: density that the schedule asked for.
        density: share of the blocks that the layer may have which it keeps, over all heads.
        blocks: how many that are.
        changed: share of the blocks that the layer may have which came in or went.
    """

    wanted: float
    density: float
    blocks: int
    changed: float


@dataclass(frozen=True)
class PruningReport(Report):
    """A refresh; ``str()`` gives a table.

    Attributes:
        step: after which it was made.
        layers: in the order of the pruner.
    """

    step: int
    layers: tuple[LayerPruning, ...]

    def tables(self) -> list[Table | str]:
        """A row for each layer."""

        def shares(*values: float) -> list[str]:
            return [cell(value, ".1%") for value in values]

        rows = [
            (place, *shares(layer.wanted, layer.density), layer.blocks, *shares(layer.changed))
            for place, layer in enumerate(self.layers)
        ]
        heads = ("layer", "wanted", "density", "blocks", "changed")
        return [Table(heads, rows, title=f"step {self.step}")]
