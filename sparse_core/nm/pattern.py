"""Sparsity patterns: n of m neighbouring weights, or whole blocks."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

ConvLayout = Literal["unfold", "channels_last"]


@dataclass(frozen=True)
class NMPattern:
    """At most ``n`` nonzeros in each group of ``m`` neighbouring weights along the input dimension.

    This is only the pattern; ``sparse_core.formats.NM`` is a matrix stored this way.

    Args:
        n: weights to keep per group.
        m: weights per group, at most 256.
        conv_layout: order of the input dimension of a convolution's weight (O, I, kh, kw). ``"unfold"`` is
            the im2col order of ``torch.nn.functional.unfold``, (I, kh, kw). ``"channels_last"`` is (kh, kw,
            I), the im2col order of channels-last tensors, in which a group lies within a tap.

    Raises:
        TypeError: n or m is not an integer; :meth:`parse` reads ``"2:4"``.
        ValueError: not 1 <= n <= m <= 256, or an unknown layout.
    """

    n: int = 2
    m: int = 4
    conv_layout: ConvLayout = "unfold"

    def __post_init__(self) -> None:
        for name, number in (("n", self.n), ("m", self.m)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise TypeError(
                    f"{name} must be a whole number, got {number!r}: write NMPattern(2, 4) or"
                    " NMPattern.parse('2:4')"
                )
        if not 1 <= self.n <= self.m <= 256:
            raise ValueError(f"n:m must satisfy 1 <= n <= m <= 256, got {self.n}:{self.m}")
        if self.conv_layout not in get_args(ConvLayout):
            raise ValueError(
                f"conv_layout must be one of {', '.join(get_args(ConvLayout))}, got {self.conv_layout!r}"
            )

    @classmethod
    def parse(cls, text: str) -> NMPattern:
        """Parse ``"2:4"``.

        Raises:
            ValueError: not of the form n:m.
        """
        match = re.fullmatch(r"\s*(\d+)\s*:\s*(\d+)\s*", text)
        if match is None:
            raise ValueError(f"a pattern is written n:m, for example 2:4; got {text!r}")
        return cls(int(match[1]), int(match[2]))

    @property
    def density(self) -> float:
        """Share of the weights that are kept."""
        return self.n / self.m

    @property
    def sparsity(self) -> float:
        """Share of the weights that are zero."""
        return 1 - self.density

    @property
    def index_bits(self) -> int:
        """Whole bits per group for the positions: ⌈log2 C(m, n)⌉."""
        return (math.comb(self.m, self.n) - 1).bit_length()

    @property
    def entropy_bits(self) -> float:
        """Lower bound of the bits per group if all choices are equally likely: log2 C(m, n)."""
        return math.log2(math.comb(self.m, self.n))

    def __str__(self) -> str:
        return f"{self.n}:{self.m}"


TWO_FOUR = NMPattern(2, 4)
"""The pattern that sparse tensor cores run."""


@dataclass(frozen=True)
class Block:
    """Square blocks of weights that are kept or dropped as a whole.

    Args:
        size: rows and columns of a block.
        sparsity: share of the blocks to drop, 0 to below 1.

    Raises:
        ValueError: ``size`` is not 8, 16, 32 or 64, or ``sparsity`` is out of range.
    """

    size: int = 32
    sparsity: float = 0.75

    def __post_init__(self) -> None:
        if self.size not in (8, 16, 32, 64):
            raise ValueError(f"the block size must be 8, 16, 32 or 64, got {self.size}")
        if not 0 <= self.sparsity < 1:
            raise ValueError(f"sparsity must be at least 0 and below 1, got {self.sparsity}")

    @property
    def density(self) -> float:
        """Share of the blocks that are kept."""
        return 1 - self.sparsity

    def __str__(self) -> str:
        return f"{self.size}x{self.size} blocks, {self.sparsity:.0%} dropped"


Pattern = NMPattern | Block


def weight_matrix(weight: Tensor, conv_layout: ConvLayout = "unfold", *, name: str = "weight") -> Tensor:
    """Return the weight of a Linear or Conv2d as the matrix (out, columns) that multiplies an im2col input.

    It is a view if the layout allows it. ``name`` names the tensor in errors.
    """
    if weight.ndim == 2:
        return weight
    if weight.ndim != 4:
        raise ValueError(
            f"{name} must be a Linear weight (out, in) or a Conv2d weight (out, in, height, width),"
            f" got shape {tuple(weight.shape)}"
        )
    ordered = weight if conv_layout == "unfold" else weight.permute(0, 2, 3, 1)
    return ordered.reshape(ordered.shape[0], -1)


def weight_from_matrix(matrix: Tensor, shape: tuple[int, ...], conv_layout: ConvLayout = "unfold") -> Tensor:
    """Undo :func:`weight_matrix`: return ``matrix`` (out, columns) in the weight's ``shape``."""
    if len(shape) == 2 or conv_layout == "unfold":
        return matrix.reshape(shape)
    out, channels, height, width = shape
    return matrix.reshape(out, height, width, channels).permute(0, 3, 1, 2)


def check_groups(columns: int, m: int, *, name: str = "weight") -> None:
    """Raise ``ValueError`` unless m divides the input dimension."""
    if columns % m:
        raise ValueError(
            f"the input dimension of {name} is {columns}, which is not divisible by m={m}:"
            f" pad it to {-(-columns // m) * m} or leave this layer out"
        )


def check_nm_pattern(pattern: object) -> None:
    """Raise ``TypeError`` unless the argument is a :class:`NMPattern`."""
    if not isinstance(pattern, NMPattern):
        raise TypeError(f"pattern must be an NMPattern, such as NMPattern(2, 4), got {pattern!r}")
