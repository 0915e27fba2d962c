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
    """A file or folder of a remote file system.

    Attributes:
        files: fsspec file system.
        path: path within ``files``.
        before: prefix of addresses that replaces the prefix ``within`` of paths.
        within: prefix of paths that ``before`` replaces in addresses.
    """

    files: Any
    path: str
    before: str
    within: str

    def address(self, path: str) -> str:
        """Return the address of a path of the file system."""
        return self.before + path.removeprefix(self.within)


def path_or_address(text: str) -> Path | str:
    """Return a local path, also for ``file://``, or the address as it is."""
    if "://" not in text:
        return Path(text)
    if text.lower().startswith("file://"):
        return Path(url2pathname(urlsplit(text).path))
    return text


def address_path(address: str) -> PurePosixPath:
    """Return the path in an address, for names and suffixes; URLs lose their query."""
    if not address.lower().startswith(_WEB):
        return PurePosixPath(address.partition("://")[2])
    split = urlsplit(address)
    return PurePosixPath(unquote(split.netloc + split.path))


def open_place(address: str) -> RemotePath:
    """Find the file system of an address.

    Raises:
        ImportError: fsspec or the package of the protocol is missing; the message has the pip command.
        DataError: the protocol is unknown, or the address is invalid.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"{address} needs fsspec: pip install 'sparsight[archives]'") from error
    if "::" in address:
        raise DataError(f"{address}: chained addresses are not supported. Give one without '::'.")
    try:
        files, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        missing = getattr(error.__cause__ or error, "name", None)
        advice = str(error) if missing is None else f"pip install {missing}"
        raise ImportError(
            f"{address}: {urlsplit(address).scheme}:// needs another package: {advice}"
        ) from error
    except ValueError as error:
        raise DataError(f"{address}: not a usable address ({error}). Check protocol and path.") from error
    return RemotePath(files, path, *_differing_prefixes(address.rstrip("/"), path.rstrip("/")))


def _differing_prefixes(address: str, path: str) -> tuple[str, str]:
    """Return an address and its path without the path components that both end with.

    Some stores drop the protocol (``s3://``). Others reorder it: ``abfs://CONTAINER@ACCOUNT/scans`` has the
    path ``CONTAINER/scans``.
    """
    pairs = zip(reversed(address), reversed(path), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    while same and path[-same] != "/" and address[:-same][-1:] not in ("", "/"):
        same -= 1
    return address[: len(address) - same], path[: len(path) - same]


def find_addresses(address: str) -> list[str]:
    """Find the scans of an address: a file, a folder, or a pattern with ``*`` and ``[``, sorted.

    Raises:
        DataError: there are no scans, or the store does not answer.
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
    # Each library has its own errors for sessions, credentials and services.
    except Exception as error:
        raise DataError(
            f"{address}: listing failed ({type(error).__name__}: {error}). Check the address and your"
            " credentials."
        ) from error
    if file:
        raise DataError(f"{address}: no such file. Check the address.")
    found = sorted(place.address(one["name"]) for one in held if one["type"] == "file")
    found = [one for one in found if address_path(one).suffix.lower() in SUPPORTED_SUFFIXES]
    # Text files next to other scans describe them, as in local folders.
    found = [one for one in found if address_path(one).suffix.lower() not in TEXT_SUFFIXES] or found
    if not found:
        raise DataError(
            f"{address}: no {known_suffixes()} file there. Check the address; copy bags and captures to this"
            " machine first."
        )
    return found


@contextmanager
def download(address: str) -> Iterator[Path]:
    """Yield a temporary local copy of a file, with the same name.

    Raises:
        DataError: the download failed, or the block raised it; the message names the address.
        ImportError: see :func:`open_place`.
    """
    place = open_place(address)
    with tempfile.TemporaryDirectory(prefix="perceive-") as folder:
        local = Path(folder) / address_path(address).name
        try:
            place.files.get_file(place.path, str(local))
        except Exception as error:
            raise DataError(
                f"{address}: download failed ({type(error).__name__}: {error}). Check the address and your"
                " credentials."
            ) from error
        try:
            yield local
        except DataError as error:
            raise DataError(str(error).replace(str(local), address)) from error
