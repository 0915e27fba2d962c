"""Files take their place only when complete; the kinds of files are tested where they are written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparse_core.common.files import replacing


def test_the_target_is_replaced_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with replacing(target) as temporary:
        assert temporary.parent == tmp_path
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")

    def fail() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(("private", "rights"), [(False, 0o640), (True, 0o600)])
def test_rights(tmp_path: Path, private: bool, rights: int) -> None:
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "file", private=private) as temporary:
            temporary.write_text("")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == rights


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match="missing does not exist"),
        replacing(tmp_path / "missing" / "file"),
    ):
        pass
