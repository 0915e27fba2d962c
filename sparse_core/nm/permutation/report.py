"""What the permutation of a model did, as a table and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from sparse_core.common.table import Column, Report, Table, cell


@dataclass(frozen=True)
class ChannelGroup:
    """Channels that had to be permuted together, or could not be.

    Attributes:
        name: the first layer that reads them; with the columns where it reads others beside them.
        channels: how many.
        consumers: layers whose columns they are, searched together.
        producers: other parameters and buffers with these channels.
        retained_before: magnitude that n:m pruning keeps of all weights read by consumers.
        retained: the same after the permutation.
        reason: why nothing was permuted; None where something was.
    """

    name: str
    channels: int
    consumers: tuple[str, ...]
    producers: tuple[str, ...]
    retained_before: float
    retained: float
    reason: str | None


@dataclass(frozen=True)
class PermutationReport(Report):
    """What :func:`~sparse_core.nm.permutation.model.permute_model` did.

    Attributes:
        groups: each group of tied channels that a selected layer reads.
        permutations: (channels,) int64 by the name of the group: new channel i is the old
            ``permutation[i]``.
        largest_change: largest difference of the outputs for the example, before and after.
        tracer: ``"torch.fx"`` or ``"torch.export"``.
    """

    groups: list[ChannelGroup]
    permutations: dict[str, Tensor] = field(default_factory=dict)
    largest_change: float = 0.0
    tracer: str = "torch.fx"

    def tables(self) -> list[Table | str]:
        """A row for each group."""
        columns: dict[str, Column] = {
            "channels of": "name",
            "count": "channels",
            "kept before": "retained_before:.3f",
            "kept after": "retained:.3f",
            "change": _change,
            "read by / why not": lambda group: group.reason or ", ".join(group.consumers),
        }
        return [Table.of(self.groups, columns)]


def _change(group: ChannelGroup) -> str:
    return cell(group.retained / group.retained_before - 1 if group.retained_before else 0.0, "+.2%")
