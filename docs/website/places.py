"""Folders of the repository and of the built site."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "website"
SITE = ROOT / "build" / "site"
