"""Pictures of frames: a bird's-eye PNG, a self-contained 3D page with a timeline, and a desktop window.

All of them ignore points and boxes that are not finite. They are deterministic: the same input gives the same
file, byte for byte (PNG: with the same matplotlib).
"""

from __future__ import annotations

from perception.visualise.birds_eye import draw_bev
from perception.visualise.web import Player, write_html
from perception.visualise.window import show_window

__all__ = ["Player", "draw_bev", "show_window", "write_html"]
