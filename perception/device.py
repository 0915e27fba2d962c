"""Check the device to run on."""

from __future__ import annotations

import torch


def usable_device(device: str | torch.device) -> torch.device:
    """Return the device.

    Raises:
        ValueError: a CUDA device where torch sees none.
    """
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("torch sees no CUDA device. Pass device='cpu', or install torch with CUDA.")
    return chosen
