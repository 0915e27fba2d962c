"""The device that something runs on."""

from __future__ import annotations

import torch


def usable_device(device: str | torch.device) -> torch.device:
    """The device, checked.

    Raises:
        ValueError: it is a CUDA device and torch sees none.
    """
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' was asked for but torch sees no CUDA device; use device='cpu'")
    return chosen
