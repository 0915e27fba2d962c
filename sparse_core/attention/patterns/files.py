"""Block patterns in safetensors files.

The file holds ``row_ptr``, ``columns``, ``partial`` and ``token_masks``, the masks as bits (row-major, the
first in the lowest bit of a byte). Its header has ``format`` ("sparsight-block-pattern"), ``version`` ("1"),
``query_length``, ``key_length`` and ``block_size``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from sparse_core.attention.patterns.blocks import PatternBlocks
from sparse_core.attention.patterns.grid import BlockGrid
from sparse_core.attention.patterns.validation import validate
from sparse_core.common.files import read_tensors, write_tensors

Blocks = TypeVar("Blocks", bound=PatternBlocks)

FORMAT = "sparsight-block-pattern"
VERSION = "1"
SIZES = ("query_length", "key_length", "block_size")
TENSORS = ("row_ptr", "columns", "partial", "token_masks")


def save_pattern(pattern: PatternBlocks, path: str | os.PathLike[str]) -> Path:
    """Write a pattern; an existing file stays until the new one is complete.

    Args:
        path: of the file, usually ``*.safetensors``.

    Returns:
        The path written.
    """
    tensors = {name: getattr(pattern, name).cpu() for name in TENSORS}
    tensors["token_masks"] = _pack(tensors["token_masks"])
    header = {name: str(getattr(pattern, name)) for name in SIZES}
    return write_tensors(path, tensors, kind=FORMAT, version=VERSION, **header)


def load_pattern(
    kind: type[Blocks], path: str | os.PathLike[str], *, device: torch.device | str = "cpu"
) -> Blocks:
    """Read and validate a file of :func:`save_pattern`."""
    file = Path(path)
    header, tensors = read_tensors(file, kind=FORMAT, version=VERSION, writer="BlockPattern.save")
    for name in SIZES:
        if not header.get(name, "").isdecimal():
            raise ValueError(f"{file}: {name} is {header.get(name)!r}, expected a number; write it again")
    missing = [name for name in TENSORS if name not in tensors]
    if missing:
        raise ValueError(f"{file}: {', '.join(missing)} is missing; write it again")
    sizes = {name: int(header[name]) for name in SIZES}
    try:
        tensors["token_masks"] = _unpack(tensors["token_masks"], sizes["block_size"])
        grid = BlockGrid(1, **sizes)
        pattern = kind.on(grid, *(tensors[name] for name in TENSORS))
        validate(pattern)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: damaged, {error}; write it again") from error
    return pattern.to(device)


def _pack(masks: Tensor) -> Tensor:
    """Pack (masks, block_size, block_size) bool into (masks, block_size² / 8) uint8."""
    places = torch.arange(8, dtype=torch.uint8, device="cpu")
    bits = masks.reshape(len(masks), masks.shape[1] * masks.shape[2] // 8, 8).to(torch.uint8)
    return (bits << places).sum(dim=2, dtype=torch.uint8)


def _unpack(packed: Tensor, block_size: int) -> Tensor:
    """Undo :func:`_pack`."""
    if packed.dtype != torch.uint8:
        raise TypeError(f"token_masks must be uint8 in a file, got {packed.dtype}")
    if packed.ndim != 2 or packed.shape[1] * 8 != block_size**2:
        raise ValueError(
            f"token_masks must have shape (masks, {block_size**2 // 8}) in a file, got {tuple(packed.shape)}"
        )
    places = torch.arange(8, dtype=torch.uint8, device="cpu")
    bits = (packed[:, :, None] >> places) & 1
    return bits.bool().reshape(len(packed), block_size, block_size)
