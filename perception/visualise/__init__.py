"""Pictures of a frame: a bird's-eye PNG and a self-contained 3D page.

Both read the package's own types, ignore points and boxes that are not finite, and are
deterministic: the same input gives the same file, byte for byte (PNG: on the same matplotlib).
"""

from __future__ import annotations

from perception.visualise.birds_eye import draw_bev
from perception.visualise.web import write_html

__all__ = ["draw_bev", "write_html"]
