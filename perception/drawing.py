"""What draws boxes, for the types, which it imports (docs/decisions/0004-layout.md).

The root of the package says here what it is, and imports neither.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class Drawing:
    """Functions that methods of :mod:`perception.types` call.

    Attributes:
        draw_bev: of :mod:`perception.visualise`.
    """

    draw_bev: Callable[..., Path]


drawing = Drawing()
