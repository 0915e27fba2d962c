"""Pictures of detections, for :mod:`perception.types`.

The root of the package sets :attr:`Drawing.draw_bev`, because :mod:`perception.visualise` imports the types
(docs/decisions/0004-layout.md).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Picture:
    """A PNG picture, which notebooks show inline.

    Attributes:
        png: content of the file.
    """

    png: bytes = field(repr=False)

    def _repr_png_(self) -> bytes:
        return self.png


class Drawing:
    """Functions that methods of :mod:`perception.types` call.

    Attributes:
        draw_bev: :func:`perception.visualise.draw_bev`.
    """

    draw_bev: Callable[..., Path]

    def picture(self, *drawn: Any, **options: Any) -> Picture:
        """Draw in memory what ``draw_bev`` writes to a file."""
        with tempfile.TemporaryDirectory() as folder:
            return Picture(self.draw_bev(Path(folder, "picture.png"), *drawn, **options).read_bytes())


drawing = Drawing()
