"""The page that plays what a command saw, beside its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perception.cli.console import REMARKS, progress_bar
from perception.errors import DataError
from perception.io.addresses import address_path
from perception.types import Detections

if TYPE_CHECKING:
    from perception.cli.detect.frames import ScanReader
    from perception.cli.records import WrittenRecords
    from perception.cli.scans.scan import Scan
    from perception.visualise import Player

#: In the folder that is written.
PAGE = "player.html"


def open_player(folder: Path, paths: Sequence[Path], addresses: Sequence[str] = ()) -> Player:
    """A page in the folder, to be entered; the first scans are its title.

    Raises:
        OSError: the folder cannot be made, or a folder lies where the page should.
    """
    from perception.visualise import Player

    names = [path.resolve().name for path in paths] + [address_path(one).name for one in addresses]
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Player(folder / PAGE, title=title)


def held_boxes(record: dict[str, Any], path: Path) -> Detections:
    """What a record of a file says was found.

    Raises:
        DataError: it is damaged.
    """
    try:
        return Detections.from_dict(record)
    except ValueError as error:
        raise DataError(f"{path}: frame {record['frame']!r}: {error}; take --overwrite") from error


def play_records(player: Player, scans: Iterable[Scan], records: WrittenRecords, read: ScanReader) -> None:
    """Make the page of what was written: the one that detecting would have made, frame by frame.

    Files of scans are read once more, but only those that the page shows.

    Args:
        player: open, without frames.
        scans: in the order in which one process detects.
        records: of them; scans without one are passed over.
        read: reads a scan.
    """
    from perception.visualise.web import frames_between

    every, number = frames_between(len(records)), 0
    with progress_bar() as bar:
        task = bar.add_task("player.html", total=len(records))
        for scan in scans:
            if not records.holds(scan.name, scan.source):
                continue
            shown, number = number % every == 0, number + 1
            bar.advance(task)
            if not shown:
                player.pass_over()
                continue
            try:
                boxes, seen = held_boxes(records.read(scan.name, scan.source), records.path), read(scan)
            except DataError as error:
                player.pass_over()
                REMARKS.print(
                    f"not in {PAGE}: {error}", style="red", highlight=False, markup=False, soft_wrap=True
                )
            else:
                player.add(seen.cloud, boxes, name=scan.name, ground_truth=seen.truth)
