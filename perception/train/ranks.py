"""Processes that train one network together, as ``torchrun`` starts them.

Every process ("rank") takes its share of the frames of a step. Sums and counts over all of them are
exchanged, so that together they compute what one process computes of the whole batch, up to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, distributed, nn

from perception.device import usable_device


class RankRows(NamedTuple):
    """Where the rows of a rank lie among those of all.

    Attributes:
        first: rows of the ranks before.
        total: rows of all.
    """

    first: int
    total: int


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; by default the only one.

    Attributes:
        rank: its number from 0.
        count: of processes.
        device: that it computes on.
    """

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def writes(self) -> bool:
        """Whether this process writes files and tells how things go: the first does."""
        return self.rank == 0

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all ranks; no gradient passes."""
        if self.count == 1:
            return value
        summed = value.detach().clone()
        distributed.all_reduce(summed)
        return summed

    def gathered(self, values: Tensor) -> Tensor:
        """A tensor of each rank, of equal shapes, stacked in the order of the ranks."""
        if self.count == 1:
            return values[None]
        parts = [torch.empty_like(values) for _ in range(self.count)]
        distributed.all_gather(parts, values.contiguous())
        return torch.stack(parts)

    def place(self, rows: int) -> RankRows:
        """Where this rank's rows lie among those of all, in the order of the ranks."""
        if self.count == 1:
            return RankRows(0, rows)
        counts = self.gathered(torch.tensor(rows, device=self.device)).tolist()
        return RankRows(sum(counts[: self.rank]), sum(counts))

    def any(self, flag: bool) -> bool:
        """Whether it is true for any rank."""
        return bool(self.total(torch.tensor(int(flag), device=self.device)) > 0)

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.count > 1:
            self.total(torch.zeros((), device=self.device, dtype=torch.float32))

    def share(self, state: Sequence[Tensor]) -> None:
        """Give all ranks the tensors of the first, in place."""
        for value in state if self.count > 1 else ():
            distributed.broadcast(value, src=0)

    def sum_gradients(self, parameters: Sequence[nn.Parameter], losses: Tensor) -> Tensor:
        """Sum the gradients of all ranks, in place, in one exchange.

        Args:
            parameters: in the same order everywhere; one that has a gradient on no rank gets none.
            losses: (L,) values to sum along the way.

        Returns:
            (L,) float32 sums of the losses.
        """
        if self.count == 1:
            return losses.detach()
        used = [value.grad is not None for value in parameters]
        parts = [
            (torch.zeros_like(value) if value.grad is None else value.grad).flatten().float()
            for value in parameters
        ]
        flags = torch.tensor(used, dtype=torch.float32, device=self.device)
        flat: Tensor = self.total(torch.cat([losses.detach().float(), flags, *parts]))
        summed, (flags, rest) = flat[: len(losses)], flat[len(losses) :].tensor_split([len(used)])
        for value, seen, part in zip(
            parameters, flags.tolist(), rest.split([len(part) for part in parts]), strict=True
        ):
            value.grad = part.view_as(value).to(value.dtype) if seen else None
        return summed


#: One process that trains alone on a CPU.
ALONE = Ranks()


@contextmanager
def ranks_of_environment(device: str | torch.device) -> Iterator[Ranks]:
    """Join the processes that ``torchrun`` started; without it, this process alone.

    Args:
        device: ``"cpu"`` (processes exchange by gloo) or ``"cuda"`` (by NCCL, each on the GPU of its number).

    Raises:
        ValueError: a CUDA device where torch sees none, or fewer GPUs than processes on this machine.
    """
    chosen = usable_device(device)
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks(device=chosen)
        return
    if chosen.type == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise ValueError(
                f"{local + 1} processes on a machine with {torch.cuda.device_count()} GPUs: start one a GPU"
                " (torchrun --nproc-per-node)"
            )
        chosen = torch.device("cuda", local)
        torch.cuda.set_device(chosen)
    distributed.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Ranks(distributed.get_rank(), count, chosen)
    finally:
        distributed.destroy_process_group()


def first_of_environment() -> bool:
    """Whether this process is the first of those that ``torchrun`` started, or the only one."""
    return os.environ.get("RANK", "0") == "0"
