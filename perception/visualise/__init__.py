"""Pictures of a frame: a bird's-eye PNG, a self-contained 3D page, and a window on a desktop.

All read the package's own types, ignore points and boxes that are not finite, and are
deterministic: the same input gives the same file, byte for byte (PNG: on the same matplotlib).
"""

from __future__ import annotations

from perception.visualise.birds_eye import draw_bev
from perception.visualise.web import write_html
from perception.visualise.window import show_window

__all__ = ["draw_bev", "show_window", "write_html"]
