"""Choice of tiles by the size of a convolution: measured and stored on disk, or a guess."""

from __future__ import annotations

import torch

from sparse_core.conv.convolution.choice import TUNER, ConvolutionChoice, case_of
from sparse_core.conv.convolution.measure import measure
from sparse_core.conv.convolution.plan import ConvolutionConfig, Shape, default_config, fits


def chosen_config(shape: Shape, device: torch.device) -> ConvolutionConfig:
    """Return the tiles measured for this size on this GPU, or the default.

    Measures only if the settings allow it, and never during CUDA graph capture.
    """
    if device.type != "cuda":
        return default_config(shape)

    return TUNER.choose(
        case_of(shape, device),
        usable=lambda choice: fits(choice.config, shape),
        fallback=lambda: ConvolutionChoice(default_config(shape), 0.0),
        measure=lambda: measure(shape, device),
    ).config
