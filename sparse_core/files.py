"""Files that are replaced only when complete, and safetensors files of this library's own kinds."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError, safe_open

if TYPE_CHECKING:
    from torch import Tensor  # Takes seconds to load, which who replaces other files does without.


def cache_folder() -> Path:
    """``sparsight`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named) / "sparsight"
    try:
        return Path.home() / ".cache" / "sparsight"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / "sparsight"


def sync(path: Path) -> None:
    """Make the content of a file durable, or the entries of a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(file: Path, *, private: bool = False) -> Iterator[Path]:
    """Write beside the target, sync and rename, so that a failure, also of the power, leaves what was there.

    Args:
        file: the target.
        private: keep the file to its user.

    Yields:
        The path to write to. It takes the target's place at the end of the ``with`` block, and is removed
        when the block raises.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{file}: the folder {file.parent} does not exist (create it first)")
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    os.close(descriptor)
    try:
        yield Path(name)
        if not private:
            # mkstemp makes files for one user only; give this one the rights of any other new file.
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
        # Before it gets its name: else the power may fail between the two, and leave it empty.
        sync(Path(name))
        os.replace(name, file)
        sync(file.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class TensorFile(NamedTuple):
    """What a safetensors file holds.

    Attributes:
        header: the metadata.
        tensors: by name, on the CPU.
    """

    header: dict[str, str]
    tensors: dict[str, Tensor]

    def object(self, field: str) -> dict[str, Any]:
        """A field of the header that is a JSON object.

        Raises:
            ValueError: missing, not JSON or not an object; names the field.
        """
        try:
            found = json.loads(self.header.get(field, ""))
        except json.JSONDecodeError as error:
            raise ValueError(f"{field} is missing or not JSON ({error})") from error
        if not isinstance(found, dict):
            raise ValueError(f"{field} must be a JSON object, got {type(found).__name__}")
        return found


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], *, kind: str, version: str, **header: str
) -> Path:
    """Write what :func:`read_tensors` reads; an existing file is replaced only once the new one is complete.

    Args:
        path: of the file.
        tensors: by name; copied where they are not on the CPU, not contiguous or part of a larger memory.
        kind: ``format`` of the header.
        version: of the format.
        header: its other fields.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    from safetensors.torch import save_file

    file = Path(path)
    plain = {name: _plain(tensor) for name, tensor in tensors.items()}
    with replacing(file) as temporary:
        save_file(plain, temporary, metadata={"format": kind, "version": version, **header})
    return file


def _plain(tensor: Tensor) -> Tensor:
    """On the CPU with memory of its own: views into a larger buffer would be refused as shared."""
    plain = tensor.detach().cpu().contiguous()
    return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()


def read_tensors(file: Path, *, kind: str, version: str, writer: str) -> TensorFile:
    """Read a safetensors file whose header names its kind and version.

    Args:
        file: to read.
        kind: what ``format`` must be in the header.
        version: what ``version`` must be.
        writer: the function that writes such files, for the error.

    Raises:
        FileNotFoundError: no such file.
        ValueError: damaged, not of this kind, or of another version; names the file and the field.
    """
    if not file.is_file():
        found = "a folder, not a file" if file.is_dir() else "no such file"
        raise FileNotFoundError(f"{file}: {found}")
    try:
        with safe_open(str(file), framework="pt") as stored:
            header = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{file}: damaged or no safetensors file ({error}); write it again") from error
    if header.get("format") != kind:
        raise ValueError(
            f"{file}: format is {header.get('format')!r}, not {kind!r}: {writer} did not write it"
        )
    if header.get("version") != version:
        raise ValueError(
            f"{file}: version is {header.get('version')!r}, this release reads {version!r}:"
            " save it again with this release, or load it with the one that wrote it"
        )
    return TensorFile(header, tensors)
