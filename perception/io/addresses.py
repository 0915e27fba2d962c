"""Scans in object stores and on servers, by address: ``s3://bucket/scans/*.bin`` (extra ``archives``)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from perception.errors import DataError
from perception.io.point_cloud import SUPPORTED_SUFFIXES, TEXT_SUFFIXES, known_suffixes

_WEB = ("http://", "https://")


class RemotePath(NamedTuple):
    """An address with what reaches it.

    Attributes:
        files: fsspec's file system.
        path: in it.
        before: what addresses begin with where paths begin with ``within``; after it they are the same.
        within: see ``before``.
    """

    files: Any
    path: str
    before: str
    within: str

    def address(self, path: str) -> str:
        """Of a path of the file system."""
        return self.before + path.removeprefix(self.within)


def path_or_address(text: str) -> Path | str:
    """An argument as a path of this machine (``file://`` is one too), or as the address that it is."""
    if "://" not in text:
        return Path(text)
    if text.lower().startswith("file://"):
        return Path(url2pathname(urlsplit(text).path))
    return text


def address_path(address: str) -> PurePosixPath:
    """The path in an address, for names and suffixes; that of the web without its query."""
    if not address.lower().startswith(_WEB):
        return PurePosixPath(address.partition("://")[2])
    split = urlsplit(address)
    return PurePosixPath(unquote(split.netloc + split.path))


def open_place(address: str) -> RemotePath:
    """What reaches an address.

    Raises:
        ImportError: fsspec or the package of the protocol is missing; says how to install it.
        DataError: there is no such protocol, or the address is none of it.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"{address}: needs fsspec: pip install 'sparsight[archives]'") from error
    if "::" in address:
        raise DataError(f"{address}: chains of addresses are not read; name one")
    try:
        files, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        missing = getattr(error.__cause__ or error, "name", None)
        advice = str(error) if missing is None else f"pip install {missing}"
        raise ImportError(
            f"{address}: a package for {urlsplit(address).scheme}:// is missing: {advice}"
        ) from error
    except ValueError as error:
        raise DataError(f"{address}: {error}") from error
    return RemotePath(files, path, *_beginnings(address.rstrip("/"), path.rstrip("/")))


def _beginnings(address: str, path: str) -> tuple[str, str]:
    """What is left of an address and its path without the whole names that both end with.

    Some stores leave out what is in front (``s3://``), others turn it round
    (``abfs://CONTAINER@ACCOUNT/scans`` is ``CONTAINER/scans``).
    """
    pairs = zip(reversed(address), reversed(path), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    while same and path[-same] != "/" and address[:-same][-1:] not in ("", "/"):
        same -= 1
    return address[: len(address) - same], path[: len(path) - same]


def find_addresses(address: str) -> list[str]:
    """The scans that an address names: of a file, of a folder, or of a pattern with ``*`` and ``[``, sorted.

    Raises:
        DataError: there are none, or the store cannot be asked.
        ImportError: see :func:`open_place`.
    """
    place = open_place(address)
    pattern = any(letter in place.path for letter in ("*[" if address.lower().startswith(_WEB) else "*?["))
    file = not pattern and address_path(address).suffix.lower() in SUPPORTED_SUFFIXES
    try:
        if file and place.files.exists(place.path):
            return [address]
        if pattern:
            held = place.files.glob(place.path, detail=True).values()
        else:
            held = [] if file else place.files.ls(place.path, detail=True)
    # Each library has errors of its own: of sessions, of credentials, of the service.
    except Exception as error:
        raise DataError(f"{address}: cannot be listed ({type(error).__name__}: {error})") from error
    if file:
        raise DataError(f"{address}: no such file; check the address")
    found = sorted(place.address(one["name"]) for one in held if one["type"] == "file")
    found = [one for one in found if address_path(one).suffix.lower() in SUPPORTED_SUFFIXES]
    # Text beside scans of another kind is about them, as in folders of this machine.
    found = [one for one in found if address_path(one).suffix.lower() not in TEXT_SUFFIXES] or found
    if not found:
        raise DataError(f"{address}: no {known_suffixes()} file there; bags and captures are read from disks")
    return found


@contextmanager
def fetched(address: str) -> Iterator[Path]:
    """A copy of a file on this machine, of the same name, until the block is left.

    Raises:
        DataError: it cannot be fetched; or what is raised in the block, with the address as its file.
        ImportError: see :func:`open_place`.
    """
    place = open_place(address)
    with tempfile.TemporaryDirectory(prefix="perceive-") as folder:
        local = Path(folder) / address_path(address).name
        try:
            place.files.get_file(place.path, str(local))
        # As above.
        except Exception as error:
            raise DataError(f"{address}: cannot be read ({type(error).__name__}: {error})") from error
        try:
            yield local
        except DataError as error:
            raise DataError(str(error).replace(str(local), address)) from error
