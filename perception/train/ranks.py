"""Processes that train one network together, started by ``torchrun``.

Every process ("rank") takes its share of the frames of a step. Sums and counts are exchanged, so that
together they compute what one process computes for the whole batch, up to rounding.
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
    """Position of a rank's rows among those of all ranks.

    Attributes:
        first: number of rows of earlier ranks.
        total: number of rows of all ranks.
    """

    first: int
    total: int


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; by default the only one.

    Attributes:
        rank: its number, from 0.
        count: number of processes.
        device: of this process.
    """

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def writes(self) -> bool:
        """True if this process writes files and reports progress: the first one."""
        return self.rank == 0

    def total(self, value: Tensor) -> Tensor:
        """Sum a tensor over all ranks, without gradient."""
        if self.count == 1:
            return value
        summed = value.detach().clone()
        distributed.all_reduce(summed)
        return summed

    def gathered(self, values: Tensor) -> Tensor:
        """Stack a tensor of each rank, of equal shapes, in rank order."""
        if self.count == 1:
            return values[None]
        parts = [torch.empty_like(values) for _ in range(self.count)]
        distributed.all_gather(parts, values.contiguous())
        return torch.stack(parts)

    def place(self, rows: int) -> RankRows:
        """Return the position of this rank's rows among those of all ranks."""
        if self.count == 1:
            return RankRows(0, rows)
        counts = self.gathered(torch.tensor(rows, device=self.device)).tolist()
        return RankRows(sum(counts[: self.rank]), sum(counts))

    def any(self, flag: bool) -> bool:
        """True if the flag is set on any rank."""
        return bool(self.total(torch.tensor(int(flag), device=self.device)) > 0)

    def wait(self) -> None:
        """Wait for all ranks."""
        if self.count > 1:
            self.total(torch.zeros((), device=self.device, dtype=torch.float32))

    def share(self, state: Sequence[Tensor]) -> None:
        """Copy the tensors of the first rank to all others, in place."""
        for value in state if self.count > 1 else ():
            distributed.broadcast(value, src=0)

    def sum_gradients(self, parameters: Sequence[nn.Parameter], losses: Tensor) -> Tensor:
        """Sum the gradients of all ranks, in place, in one exchange.

        Args:
            parameters: in the same order on every rank; one without a gradient on all ranks gets none.
            losses: (L,) values to sum in the same exchange.

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
        device: ``"cpu"`` (exchange by gloo) or ``"cuda"`` (exchange by NCCL, one GPU per process).

    Raises:
        ValueError: no CUDA device is visible, or the machine has fewer GPUs than processes.
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
                f"{local + 1} processes on a machine with {torch.cuda.device_count()} GPUs; start one per"
                " GPU (torchrun --nproc-per-node)"
            )
        chosen = torch.device("cuda", local)
        torch.cuda.set_device(chosen)
    distributed.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Ranks(distributed.get_rank(), count, chosen)
    finally:
        distributed.destroy_process_group()


def is_first_rank() -> bool:
    """True if this process is the first that ``torchrun`` started, or the only one."""
    return os.environ.get("RANK", "0") == "0"
