"""The page that plays what a command saw, beside its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perception.visualise import Player

#: In the folder that is written.
PAGE = "player.html"


def open_player(folder: Path, paths: Sequence[Path]) -> Player:
    """A page in the folder, to be entered; the first scans are its title.

    Raises:
        OSError: the folder cannot be made, or a folder lies where the page should.
    """
    from perception.visualise import Player

    names = [path.resolve().name for path in paths]
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Player(folder / PAGE, title=title)
