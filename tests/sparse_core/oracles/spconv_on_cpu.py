"""spconv without what it prepares for a GPU, which takes five seconds at its import."""

from __future__ import annotations

import warnings

import torch


def leave_out_gpu_kernels() -> None:
    """Empty the lists of CUDA kernels that spconv is about to read; without a CUDA device none can run."""
    if torch.cuda.is_available():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from spconv import core
        except ImportError:
            return
    core.ALL_IMPGEMM_PARAMS.clear()
    core.ALL_NATIVE_PARAMS.clear()
