"""Sources of the pattern of an attention module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Union

import torch
from torch import Tensor

from sparse_core.attention.modules.selectors import Selector
from sparse_core.attention.patterns.pattern import BlockPattern

PatternSource = BlockPattern | Selector | Callable[..., BlockPattern]
"""A pattern, a selector, or a function of query length, key length and device that builds a pattern.

A builder of this package works too, for example ``functools.partial(local_window, window=64)``.
"""

Source = Union[BlockPattern, Selector, "PatternCache"]
"""A normalised :data:`PatternSource`, from :func:`pattern_source`."""


class PatternCache:
    """Cache that builds a pattern once per pair of lengths and device.

    Several modules may share one; a copy starts empty.

    Args:
        build: called as ``build(query_length, key_length, device)``. If it has keyword-only arguments of
            these names, it is called as ``build(query_length, key_length=..., device=...)``.
    """

    #: Capacity; the oldest pattern is dropped first.
    LIMIT = 64

    def __init__(self, build: Callable[..., BlockPattern]) -> None:
        self.build = build
        self._by_keyword = _takes_keywords(build)
        self._known: dict[tuple[int, int, torch.device], BlockPattern] = {}

    def __call__(self, query_length: int, key_length: int, device: torch.device) -> BlockPattern:
        """Return the pattern for these lengths on this device.

        Raises:
            TypeError: ``build`` returned something else.
        """
        pattern = self._known.get((query_length, key_length, device))
        if pattern is None:
            pattern = self._build(query_length, key_length, device)
        return pattern

    # torch.compile breaks its graph only when a pattern must be built.
    @torch.compiler.disable
    def _build(self, query_length: int, key_length: int, device: torch.device) -> BlockPattern:
        # Tensors made in inference mode cannot take part in autograd later.
        with torch.inference_mode(False):
            if self._by_keyword:
                pattern = self.build(query_length, key_length=key_length, device=device)
            else:
                pattern = self.build(query_length, key_length, device)
            if not isinstance(pattern, BlockPattern):
                raise TypeError(f"{self!r} must build a BlockPattern, got {type(pattern).__name__}")
            pattern = pattern.to(device)
        self._known[query_length, key_length, device] = pattern
        if len(self._known) > self.LIMIT:
            del self._known[next(iter(self._known))]
        return pattern

    def __repr__(self) -> str:
        return f"PatternCache({getattr(self.build, '__name__', self.build)})"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_known": {}}


def pattern_source(pattern: PatternSource | None) -> Source | None:
    """Return ``pattern``, a function wrapped in a :class:`PatternCache`."""
    if pattern is None or isinstance(pattern, BlockPattern | PatternCache):
        return pattern
    # Exclude tensors and classes, which also pass the checks below.
    if not isinstance(pattern, Tensor | type):
        if isinstance(pattern, Selector):
            return pattern
        if callable(pattern):
            return PatternCache(pattern)
    raise TypeError(
        "pattern must be a BlockPattern, a function of query length, key length and device, a selector such"
        f" as TopKBlocks(0.25), or None for dense attention; got {pattern!r}"
    )


def pattern_for(
    source: Source,
    q: Tensor,
    k: Tensor,
    query_lengths: Tensor | None = None,
    key_lengths: Tensor | None = None,
) -> BlockPattern:
    """Return the pattern of a source for these operands, on their device.

    A pattern on another device is copied once; the copy is cached with its plans.

    Args:
        source: see :func:`pattern_source`.
        q, k, query_lengths, key_lengths: see :meth:`Selector.select`.
    """
    if isinstance(source, BlockPattern):
        found: BlockPattern = source if source.device == q.device else _copy_to(source, q.device)
    elif isinstance(source, PatternCache):
        found = source(q.shape[2], k.shape[2], q.device)
    else:
        found = _select(source, q, k, query_lengths, key_lengths)
    return found


# Selection uses caches, which torch.compile cannot trace: it breaks its graph here.
@torch.compiler.disable
def _select(
    source: Selector, q: Tensor, k: Tensor, query_lengths: Tensor | None, key_lengths: Tensor | None
) -> BlockPattern:
    return source.select(q, k, query_lengths=query_lengths, key_lengths=key_lengths)


@torch.compiler.disable
def _copy_to(pattern: BlockPattern, device: torch.device) -> BlockPattern:
    copy = pattern.plans.get(("copy", device))
    if not isinstance(copy, BlockPattern):
        with torch.inference_mode(False):
            copy = pattern.plans["copy", device] = pattern.to(device)
    return copy


def _takes_keywords(build: Callable[..., BlockPattern]) -> bool:
    try:
        parameters = inspect.signature(build).parameters
    except (TypeError, ValueError):
        return False
    keywords = {name for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}
    return {"key_length", "device"} <= keywords
