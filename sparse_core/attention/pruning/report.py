"""What a refresh of the patterns did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


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
class PruningReport:
    """A refresh; ``str()`` gives a table.

    Attributes:
        step: after which it was made.
        layers: in the order of the pruner.
    """

    step: int
    layers: tuple[LayerPruning, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"step {self.step}",
            f"{'layer':>5}  {'wanted':>7}  {'density':>7}  {'blocks':>9}  {'changed':>7}",
        ]
        for number, layer in enumerate(self.layers):
            lines.append(
                f"{number:>5}  {layer.wanted:>7.1%}  {layer.density:>7.1%}  {layer.blocks:>9,}"
                f"  {layer.changed:>7.1%}"
            )
        return "\n".join(lines)
