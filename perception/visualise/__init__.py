"""Pictures of frames: a bird's-eye PNG, a self-contained 3D page with a timeline, and a window on a desktop.

All read the package's own types, ignore points and boxes that are not finite, and are
deterministic: the same input gives the same file, byte for byte (PNG: on the same matplotlib).
"""

from __future__ import annotations

from perception.visualise.birds_eye import draw_bev
from perception.visualise.web import Player, write_html
from perception.visualise.window import show_window

__all__ = ["Player", "draw_bev", "show_window", "write_html"]
