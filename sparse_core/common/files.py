"""Atomic replacement of files, errors of writes, and safetensors files of this library's formats."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor  # Not imported at run time, because it takes seconds.


#: Messages about a failed write, by the system's reason.
_WRITE_FAILURES = {
    errno.ENOSPC: "Disk full while writing {place}. Free space, then {rerun}.",
    errno.EDQUOT: "Disk quota used up while writing {place}. Free space or raise the quota, then {rerun}.",
    errno.EFBIG: (
        "{place} would be larger than the file system or 'ulimit -f' allows."
        " Raise the limit or use another disk, then {rerun}."
    ),
    errno.EROFS: "{place} is on a read-only file system. Write to another folder.",
}
#: Other error codes of a write to an open file.
_OTHER_FAILURES = {errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE}
_PROBE = bytes(1 << 20)


def cache_folder() -> Path:
    """Return ``sparsight`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named) / "sparsight"
    try:
        return Path.home() / ".cache" / "sparsight"
    except RuntimeError:  # The user has no home, as in some containers.
        return Path(tempfile.gettempdir()) / "sparsight"


def sync(path: Path) -> None:
    """Make the content of a file durable, or the entries of a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_special(file: Path) -> bool:
    """True for devices, pipes and sockets: files cannot replace them, and reading may never end.

    Links are followed; a missing file is not special.
    """
    try:
        mode = file.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def replacing(file: Path, *, private: bool = False, durable: bool = True) -> Iterator[Path]:
    """Write a temporary file and rename it, so that a failure keeps the old file.

    Links are followed. A device or pipe, such as ``/dev/stdout``, is written directly.

    Args:
        private: make the file readable only by its user.
        durable: sync before the rename, so that the file survives a power failure. Use False for thousands of
            files, such as pictures of frames.

    Yields:
        The path to write to. It replaces the target at the end of the ``with`` block, and is removed if the
        block raises.

    Raises:
        OSError: the write failed; ``filename`` is the target.
    """
    if is_special(file):
        with naming(file):
            yield file
        return
    target = Path(os.path.realpath(file))
    _check_place(file, target)
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=_prefix(target))
        os.close(descriptor)
    except OSError as error:
        error.filename = str(file)
        raise
    temporary = Path(name)
    try:
        with naming(file, temporary):
            yield temporary
            if not private:
                # mkstemp makes private files; give this one the usual permissions.
                temporary.chmod(0o666 & ~_mask())
            # Sync before the rename; otherwise a power failure could leave an empty file.
            if durable:
                sync(temporary)
            temporary.replace(target)
            if durable:
                sync(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Fill a temporary folder and rename it, so that a failure keeps the old folder.

    Args:
        folder: the target, replaced if it exists.

    Yields:
        The folder to write to. It replaces the target at the end of the ``with`` block, and is removed if the
        block raises.

    Raises:
        OSError: a write failed; ``filename`` is the target, or the file's place in it.
    """
    _check_place(folder, folder, is_folder=True)
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=_prefix(folder)))
    except OSError as error:
        error.filename = str(folder)
        raise
    try:
        with naming(folder, temporary):
            yield temporary
            temporary.chmod(0o777 & ~_mask())
            if folder.exists():
                old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{_prefix(folder)}old."))
                folder.replace(old / folder.name)
                temporary.replace(folder)
                shutil.rmtree(old)
            else:
                temporary.replace(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def save_torch(file: Path, state: Any) -> None:
    """Replace a file by the output of ``torch.save``, via memory, because torch hides why a write fails.

    Raises:
        OSError: the write failed; ``filename`` is the target.
    """
    import torch

    content = io.BytesIO()
    torch.save(state, content)
    write_file(file, content.getbuffer())


def write_file(file: Path, content: bytes | memoryview | str, *, durable: bool = True) -> None:
    """Replace a file by new bytes, or by text in UTF-8; see :func:`replacing`.

    Raises:
        OSError: the write failed; ``filename`` is the target.
    """
    with replacing(file, durable=durable) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


class GrowingFile:
    """Unbuffered file to which whole pieces, such as lines, are appended.

    Args:
        file: to write; its folder must exist.
        keep: bytes of an existing file to keep; the rest is cut off.

    Raises:
        OSError: the file cannot be written; ``filename`` is the file.
    """

    def __init__(self, file: Path, *, keep: int = 0) -> None:
        self._file, self._size = file, keep
        with naming(file):
            # Unbuffered, so that closing does not write a failed piece again.
            self._stream = file.open("r+b" if keep else "wb", buffering=0)
            if keep:
                self._stream.truncate(keep)
                self._stream.seek(keep)

    def write(self, piece: bytes | str) -> int:
        """Append a whole piece, or nothing of it; return its bytes.

        Raises:
            OSError: no space; the file ends with the previous piece.
        """
        content = piece.encode() if isinstance(piece, str) else bytes(piece)
        left = memoryview(content)
        try:
            with naming(self._file):
                while left:
                    left = left[self._stream.write(left) :]
        except BaseException:
            with contextlib.suppress(OSError):  # A pipe cannot be truncated.
                self._stream.truncate(self._size)
                self._stream.seek(self._size)
            raise
        self._size += len(content)
        return len(content)

    def tell(self) -> int:
        """Return the size in bytes."""
        return self._size

    def flush(self) -> None:
        """Do nothing, because writes are unbuffered."""

    @property
    def closed(self) -> bool:
        """True once the file is closed."""
        return self._stream.closed

    def close(self) -> None:
        """Close the file."""
        with naming(self._file):
            self._stream.close()


@contextmanager
def naming(file: Path, temporary: Path | None = None) -> Iterator[None]:
    """Add the file to write errors, which the system leaves out once a file is open.

    Args:
        file: the target, as the user knows it.
        temporary: path written in its place; errors that name it, or a file in it, name the target instead.
            Errors of libraries with their own messages are converted too.

    Raises:
        OSError: of the ``with`` block, with ``filename``.
    """
    try:
        yield
    except OSError as error:
        if type(error) is OSError and error.errno is None:  # numpy sets no errno.
            code = _failed_write(error, temporary)
            reason = str(error) if code is None else os.strerror(code)
            raise OSError(code or errno.EIO, reason, str(file)) from error
        _name(error, file, temporary)
        raise
    except Exception as error:
        # safetensors and torch raise other types.
        if type(error).__name__ != "SafetensorError" and type(error) is not RuntimeError:
            raise
        code = _failed_write(error, temporary)
        if code is None:
            raise
        raise OSError(code, os.strerror(code), str(file)) from error


def write_failure(error: BaseException) -> OSError | None:
    """Return the failed write that caused an error (disk full, read-only or size limit), or None."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in _WRITE_FAILURES:
            return found
        found = found.__cause__
    return None


def describe_file_error(error: OSError, *, resume: bool = False) -> str:
    """Return a message with the failed file and a fix.

    Args:
        resume: True if the command supports ``--resume``.
    """
    named = error.filename2 if error.filename2 is not None else error.filename
    reason = _WRITE_FAILURES.get(error.errno or 0)
    if reason is not None:
        place = "the output" if named is None else os.fsdecode(named)
        return reason.format(place=place, rerun="rerun with --resume" if resume else "rerun")
    if named is None:
        return str(error)
    place = os.fsdecode(named)
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{place}: there is a file where a folder is needed; use another folder"
    if isinstance(error, IsADirectoryError):
        return f"{place}: there is a folder where a file is needed; use another file"
    if isinstance(error, PermissionError):
        return f"{place}: no permission; use another path, or change its permissions"
    if isinstance(error, FileNotFoundError):
        return f"{place}: no such file or folder; check the path"
    return f"{place}: {error.strerror or error}"


def _check_place(file: Path, target: Path, *, is_folder: bool = False) -> None:
    """Raise if the target's folder is missing, or if the target is a folder."""
    if not target.parent.exists():
        reason = f"the folder {target.parent} does not exist (create it first)"
        missing = FileNotFoundError(f"{file}: {reason}")
        missing.strerror = reason
        raise missing
    if not target.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target.parent))
    if target.is_dir() and not is_folder:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))


def _prefix(target: Path) -> str:
    """Return the prefix of temporary names, short enough for names of 255 bytes."""
    return f".{target.name[:50]}."


def _mask() -> int:
    """Return the process's umask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _name(error: OSError, file: Path, temporary: Path | None) -> None:
    # A copy or rename names two files; filename2 is the written one.
    named = error.filename2 if error.filename2 is not None else error.filename
    if named is None:
        if error.errno in _WRITE_FAILURES or error.errno in _OTHER_FAILURES:
            error.filename = str(file)
        return
    written = Path(os.fsdecode(named))
    if temporary is not None and written.is_relative_to(temporary):
        error.filename = str(file / written.relative_to(temporary))
        error.filename2 = None


def _failed_write(error: Exception, temporary: Path | None) -> int | None:
    """Return the errno behind a library's error, or None."""
    code = re.search(r"os error (\d+)", str(error))
    if code is not None:
        return int(code[1])
    if temporary is None or not temporary.is_file():
        return None
    # The library reports no reason, so repeat the write here.
    try:
        with temporary.open("ab", buffering=0) as stream:
            # If the first write is short, the second one fails.
            stream.write(_PROBE)
            stream.write(_PROBE)
            os.fsync(stream.fileno())
    except OSError as reason:
        return reason.errno
    return None


class TensorFile(NamedTuple):
    """Content of a safetensors file.

    Attributes:
        header: the metadata.
        tensors: by name, on the CPU.
    """

    header: dict[str, str]
    tensors: dict[str, Tensor]

    def object(self, field: str) -> dict[str, Any]:
        """Return a header field that is a JSON object.

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
    """Write a file for :func:`read_tensors`; an existing file stays until the new one is complete.

    Args:
        tensors: by name; copied if not on the CPU, not contiguous or part of a larger buffer.
        kind: ``format`` of the header.

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
    """Copy to the CPU with its own memory; safetensors rejects views of a shared buffer."""
    plain = tensor.detach().cpu().contiguous()
    return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()


def read_tensors(
    file: Path, *, kind: str, version: str, writer: str, older: Mapping[str, str] | None = None
) -> TensorFile:
    """Read a safetensors file after checking the kind and version in its header.

    Args:
        kind: required ``format`` of the header.
        version: required ``version``.
        writer: function that writes such files, for the error.
        older: other accepted kinds, with their versions.

    Raises:
        FileNotFoundError: no such file.
        ValueError: damaged, not of this kind, or of another version; names the file and the field.
    """
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        found = "a folder, not a file" if file.is_dir() else "no such file"
        raise FileNotFoundError(f"{file}: {found}")
    try:
        with safe_open(str(file), framework="pt") as stored:
            header = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{file}: damaged, or not a safetensors file ({error}); write it again") from error
    accepted = {kind: version, **(older or {})}
    if header.get("format") not in accepted:
        raise ValueError(
            f"{file}: format is {header.get('format')!r}, not {kind!r}: {writer} did not write it"
        )
    version = accepted[header["format"]]
    if header.get("version") != version:
        raise ValueError(
            f"{file}: version is {header.get('version')!r}, this release reads {version!r}:"
            " save it again with this release, or load it with the one that wrote it"
        )
    return TensorFile(header, tensors)
