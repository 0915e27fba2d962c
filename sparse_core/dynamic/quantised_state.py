"""Optimiser state in one byte per number: geometrically spaced levels, one scale per block of 256.

Rounding to nearest would freeze moving averages, whose changes are smaller than half a level. So numbers are
rounded with a dither that is right on average and differs from step to step. It is computed from position and
step, so runs repeat bit for bit. Non-negative numbers (mean squares, by whose root steps are divided) never
round to zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

BLOCK = 256
#: Smallest level as a power of ten of the largest.
_DECADES = {True: 5.0, False: 10.0}
# Multiples of these irrational numbers (relatives of the golden ratio) spread evenly over [0, 1).
_PLACE, _TURN = 0.7548776662466927, 0.5698402909980532


@lru_cache
def _levels(signed: bool, device: torch.device) -> Tensor:
    """Return rising float32 levels, (256,) in [-1, 1] or (255,) in [0, 1], zero among them."""
    count = 127 if signed else 255
    positive = torch.logspace(-_DECADES[signed], 0, count, dtype=torch.float64)
    positive[-1] = 1.0
    zero = torch.zeros(1, dtype=torch.float64)
    parts = (-positive.flip(0), zero, positive) if signed else (zero, positive)
    return torch.cat(parts).float().to(device)


@dataclass(frozen=True)
class QuantisedState:
    """One quantised tensor of optimiser state.

    Attributes:
        codes: (n,) uint8, level numbers.
        scale: (ceil(n / 256),) float32, largest absolute value of each block.
        shape: shape of the tensor.
        signed: True if numbers may be negative.
        turn: step of the dither.
    """

    codes: Tensor
    scale: Tensor
    shape: torch.Size
    signed: bool
    turn: int

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return self.codes.nbytes + self.scale.nbytes

    @classmethod
    def of(cls, tensor: Tensor, *, signed: bool, turn: int) -> QuantisedState:
        """Quantise a real tensor of any shape, non-negative unless ``signed``.

        Signed numbers below the smallest level may become zero. ``turn`` is the step of the dither.
        """
        flat = tensor.detach().reshape(-1).float()
        count = len(flat)
        padded = torch.nn.functional.pad(flat, (0, -count % BLOCK)).reshape(-1, BLOCK)
        scale = padded.abs().amax(dim=1) if len(padded) else padded.new_zeros(0)
        share = padded / torch.where(scale > 0, scale, 1.0)[:, None]
        levels = _levels(signed, tensor.device)
        upper = torch.searchsorted(levels, share.contiguous()).clamp_(1, len(levels) - 1)
        below, above = levels[upper - 1], levels[upper]
        place = torch.arange(share.numel(), device=tensor.device, dtype=torch.float64).reshape(share.shape)
        dither = (place * _PLACE + turn * _TURN).frac().float()
        codes = upper - 1 + ((share - below) > dither * (above - below)).long()
        if not signed:
            codes = torch.maximum(codes, (share > 0).long())
        return cls(codes.reshape(-1)[:count].to(torch.uint8), scale, tensor.shape, signed, turn)

    def read(self) -> Tensor:
        """Return the float32 tensor."""
        shares = _levels(self.signed, self.codes.device)[self.codes.int()]
        scale = self.scale.repeat_interleave(BLOCK, output_size=len(self.scale) * BLOCK)[: len(shares)]
        return (shares * scale).reshape(self.shape)

    def map(self, change: Callable[[Tensor], Tensor]) -> QuantisedState:
        """Return the state of the changed tensor."""
        return self.of(change(self.read()), signed=self.signed, turn=self.turn)

    def pack(self) -> dict[str, Any]:
        """Return the entries for a state dict."""
        return {
            "codes": self.codes,
            "scale": self.scale,
            "shape": list(self.shape),
            "signed": self.signed,
            "turn": self.turn,
        }

    @classmethod
    def unpack(cls, packed: dict[str, Any], device: torch.device) -> QuantisedState:
        """Restore a state from :meth:`pack`."""
        if missing := {"codes", "scale", "shape", "signed", "turn"} - set(packed):
            raise ValueError(f"8-bit state lacks {sorted(missing)}")
        shape = torch.Size(packed["shape"])
        codes, scale = packed["codes"].to(device).clone(), packed["scale"].to(device).clone()
        if len(codes) != shape.numel() or len(scale) != -(-len(codes) // BLOCK):
            raise ValueError(
                f"8-bit state of shape {tuple(shape)} has {len(codes)} codes, {len(scale)} scales"
            )
        return cls(codes, scale, shape, bool(packed["signed"]), int(packed["turn"]))
