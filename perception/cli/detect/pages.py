"""The player page of a run, next to its records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perception.errors import DataError
from perception.io.addresses import address_path
from perception.types import Detections
from sparse_core.common.console import LOG, progress_bar

if TYPE_CHECKING:
    from perception.cli.records import WrittenRecords
    from perception.cli.scans.reading import ScanReader
    from perception.cli.scans.scan import Scan
    from perception.visualise import Player

#: Name in the output folder.
PAGE = "player.html"


def open_player(folder: Path, paths: Sequence[Path], addresses: Sequence[str] = ()) -> Player:
    """Create the page of a folder, titled by the first paths; enter it to write."""
    from perception.visualise import Player

    names = [path.resolve().name for path in paths] + [address_path(one).name for one in addresses]
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Player(folder / PAGE, title=title)


def detections_of(record: dict[str, Any], path: Path) -> Detections:
    """Return the detections of a record; raise ``DataError`` if it is damaged."""
    try:
        return Detections.from_dict(record)
    except ValueError as error:
        raise DataError(
            f"{path}: record of frame {record['frame']!r} is damaged ({error}). Rerun with --overwrite."
        ) from error


def play_records(player: Player, scans: Iterable[Scan], records: WrittenRecords, read: ScanReader) -> None:
    """Write the player page from records, equal to that of a run in one process.

    Args:
        player: open page without frames.
        scans: scans in the order of one process.
        records: their records; scans without one are skipped.
        read: reads the scans that the page shows.
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
                boxes, seen = detections_of(records.read(scan.name, scan.source), records.path), read(scan)
            except DataError as error:
                player.pass_over()
                LOG.error("not in %s: %s", PAGE, error)
            else:
                player.add(seen.cloud, boxes, name=scan.name, ground_truth=seen.truth)
