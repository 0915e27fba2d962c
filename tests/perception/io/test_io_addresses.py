"""Addresses of scans: what is a path, what a pattern finds, how addresses follow from a store's paths."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import pytest

from perception.errors import DataError
from perception.io.addresses import address_path, download, find_addresses, path_or_address

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (extra 'archives')")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402


class _Turned(MemoryFileSystem):
    """``turned://CONTAINER@ACCOUNT/rest`` is ``/CONTAINER/rest`` in it, as in Azure's."""

    protocol = "turned"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        first, _, rest = path.partition("://")[2].partition("/")
        if not first:
            return str(super()._strip_protocol(path))
        return f"/{first.partition('@')[0]}/{rest}".rstrip("/")


@pytest.fixture
def store() -> str:
    fsspec.register_implementation("turned", _Turned, clobber=True)
    files = fsspec.filesystem("turned")
    for name in ("b.bin", "a.bin", "deep/c.bin", "notes.txt"):
        files.pipe_file(f"/net/{name}", b"1234")
    return "turned://net@account.net"


def test_what_has_a_scheme_is_an_address() -> None:
    assert path_or_address("scans/a.bin") == Path("scans/a.bin")
    assert path_or_address("file:///scans/a%20b.bin") == Path("/scans/a b.bin")
    assert path_or_address("s3://bucket/a.bin") == "s3://bucket/a.bin"


def test_names_come_from_the_path() -> None:
    assert address_path("https://host/scans/a%20b.pcd.bin?key=1#x") == PurePosixPath("host/scans/a b.pcd.bin")
    assert address_path("s3://bucket/run #1/a?.bin") == PurePosixPath("bucket/run #1/a?.bin")


def test_addresses_keep_what_paths_leave_out(store: str, tmp_path: Path) -> None:
    """A worker opens what the process that was started has found: all of the address is needed."""
    both = [f"{store}/a.bin", f"{store}/b.bin"]
    for address in (store, f"{store}/", f"{store}/*.bin", f"{store}/[ab].bin"):
        assert find_addresses(address) == both
    assert find_addresses(f"{store}/**/*.bin") == [*both, f"{store}/deep/c.bin"]
    assert find_addresses(f"{store}/*.txt") == [f"{store}/notes.txt"]
    with download(both[1]) as path:
        assert (path.name, path.read_bytes()) == ("b.bin", b"1234")
    assert not path.exists()


def test_what_cannot_be_had_names_the_address(store: str) -> None:
    with pytest.raises(DataError, match=rf"{store}/none\.bin: no such file"):
        find_addresses(f"{store}/none.bin")
    with pytest.raises(DataError, match=rf"{store}/\*\.pcd: no \.bin, .* file there"):
        find_addresses(f"{store}/*.pcd")
    with pytest.raises(DataError, match=rf"{store}/none\.bin: download failed \(FileNotFoundError"):
        download(f"{store}/none.bin").__enter__()


def test_an_error_in_the_block_names_the_address(store: str) -> None:
    with (
        pytest.raises(DataError, match=rf"^{store}/a\.bin: not whole$"),
        download(f"{store}/a.bin") as path,
    ):
        raise DataError(f"{path}: not whole")
