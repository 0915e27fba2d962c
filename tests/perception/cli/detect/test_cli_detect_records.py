"""Records of a folder have one writer."""

from __future__ import annotations

from pathlib import Path

import pytest

from perception.cli.records import FolderRecords
from perception.errors import DataError

RECORD = {"frame": "a", "source": "a.bin"}


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    for overwrite in (False, True):
        first = FolderRecords(tmp_path, overwrite=overwrite, resume=not overwrite)
        second = FolderRecords(tmp_path, overwrite=True, resume=False)
        with first.open():
            first.write(RECORD)
            with pytest.raises(DataError, match="another command is writing"), second.open():
                pass
        assert len(FolderRecords(tmp_path, overwrite=False, resume=True)) == 1
        with second.open():
            pass


@pytest.mark.parametrize("resume", [False, True])
def test_records_written_while_a_command_starts_are_kept(tmp_path: Path, resume: bool) -> None:
    late = FolderRecords(tmp_path, overwrite=False, resume=resume)
    with FolderRecords(tmp_path, overwrite=False, resume=False).open() as first:
        first.write(RECORD)
    with pytest.raises(DataError, match="wrote to it in the meantime"), late.open():
        pass
    assert len(FolderRecords(tmp_path, overwrite=False, resume=True)) == 1
