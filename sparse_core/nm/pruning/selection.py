"""Which layers of a model a pattern applies to, and why the others are left out."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from sparse_core.common.surgery import Rule, Select, Selection, check_names, choose_layers, weight_parameter
from sparse_core.nm.pattern import Block, NMPattern, Pattern
from sparse_core.nm.pruning.selection import outputs_first

PRUNABLE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d)


def selected_layers(
    model: nn.Module,
    pattern: Pattern | Mapping[str, Pattern | None],
    select: Select = None,
    types: tuple[type[nn.Module], ...] = PRUNABLE,
    *,
    rule: Rule | None = None,
    replacing: bool = False,
    nothing: str = "",
) -> Selection:
    """The layers of ``model`` whose weight can take ``pattern``.

    Args:
        model: any module; it is not changed.
        pattern: n:m or blocks for all layers, or one for each name; a name that is missing or has ``None``
            stays dense.
        select: which layers, see :data:`sparse_core.common.surgery.Select`.
        types: classes to look for; subclasses count.
        rule, replacing: see :func:`sparse_core.common.surgery.choose_layers`.
        nothing: what the error begins with when there is none.

    Raises:
        TypeError: ``pattern`` is something else.
        ValueError: nothing is left, an unknown name in ``pattern``, or not a regular expression.
    """
    check_names(model, pattern, "pattern")

    def obstacle(name: str, module: nn.Module) -> str | None:
        wanted = pattern.get(name) if isinstance(pattern, Mapping) else pattern
        if wanted is None:
            return "the pattern leaves it dense"
        if not isinstance(wanted, NMPattern | Block):
            raise TypeError(f"pattern must be NMPattern, Block or a dictionary of them, got {wanted!r}")
        columns = outputs_first(module, weight_parameter(module))[0].numel()
        if isinstance(wanted, NMPattern) and columns % wanted.m:
            return f"its input dimension {columns} is not divisible by m={wanted.m}"
        return None if rule is None else rule(name, module)

    given = "the patterns given" if isinstance(pattern, Mapping) else str(pattern)
    return choose_layers(
        model, types, select, rule=obstacle, replacing=replacing, nothing=f"{nothing}no layer matches {given}"
    )
