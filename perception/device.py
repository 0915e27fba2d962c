"""Check the device to run on."""

from __future__ import annotations

import torch


def usable_device(device: str | torch.device) -> torch.device:
    """Return the device.

    Raises:
        ValueError: unknown to torch, or a CUDA device where torch sees none.
    """
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"no device {device!r}. Use 'cpu', 'cuda' or 'cuda:N'.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("torch sees no CUDA device. Pass device='cpu', or install torch with CUDA.")
    return chosen
