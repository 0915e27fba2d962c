"""C++ for this processor: libraries of a platform wheel, or compiled at first use.

It serves the few loops that need instructions which torch does not use. A platform wheel brings the
libraries. Elsewhere the machine's compiler makes them, and they are stored next to the tuners' measurements.
Without either, the implementation that needs one reports so.

A source may have two comments for the compiler: ``// flags: …``, and ``// machine: …`` for the only processor
that it is for.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import logging
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from sparse_core.common.files import cache_folder
from sparse_core.errors import ImplementationError

FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread")
_SECONDS = 120
#: Libraries of a platform wheel, which release/platform_wheel.py puts here.
BUILT = Path(__file__).with_name("built")
_LOG = logging.getLogger(__name__)


@cache
def compiler() -> str | None:
    """Return the path of the C++ compiler (``$CXX``, ``c++``, ``g++`` or ``clang++``), or None."""
    named = os.environ.get("CXX")
    names = [named] if named else ["c++", "g++", "clang++"]
    return next((path for path in map(shutil.which, names) if path is not None), None)


def available(source: Path) -> bool:
    """Return True if a source is built or can be compiled here."""
    return compiler() is not None or _in_wheel(source, BUILT)


@cache
def _in_wheel(source: Path, folder: Path) -> bool:
    """Return True if the wheel's folder has the library; implementations are asked at every call."""
    return (folder / library_name(source.read_bytes())).is_file()


@cache
def load(source: Path) -> ctypes.CDLL:
    """Load the library of a C++ file; compile it if neither the wheel nor the cache has it.

    Args:
        source: has ``extern "C"`` functions.

    Raises:
        ImplementationError: there is no compiler, or it fails; the message has its output.
    """
    library = _build(source)
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise ImplementationError(f"{library} cannot be loaded ({error}): delete the file") from error


class BackgroundLibrary:
    """A library that a background thread compiles while its users run slower code with the same results.

    Args:
        source: C++ file, see :func:`load`.
        functions: result type and argument types by function name.
        instead: what runs without a compiler, for the log.
    """

    def __init__(
        self,
        source: Path,
        functions: Mapping[str, tuple[Any, Sequence[Any]]],
        instead: str,
    ) -> None:
        self.source, self._functions, self._instead = source, functions, instead
        self._library: ctypes.CDLL | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def library(self) -> ctypes.CDLL | None:
        """Return the library; None until it is compiled. The first call starts the compilation."""
        if self._library is None and self._thread is None:
            with self._lock:
                if self._thread is None:
                    # No daemon: the process waits for it at exit, or the next one would start over.
                    self._thread = threading.Thread(target=self._compile, name=f"compile {self.source.name}")
                    self._thread.start()
        return self._library

    def ready(self) -> bool:
        """Wait for the compilation; returns True if it succeeded."""
        self.library()
        if self._thread is not None:
            self._thread.join()
        return self._library is not None

    def _compile(self) -> None:
        try:
            library = load(self.source)
        except ImplementationError as error:
            _LOG.info("%s: %s", self._instead, error)
            return
        for name, (returned, arguments) in self._functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = returned, list(arguments)
        self._library = library


def int64_array(*values: int) -> ctypes.Array[ctypes.c_int64]:
    """Return an array of 64-bit integers, as the C++ functions take them."""
    return (ctypes.c_int64 * len(values))(*values)


@cache
def load_module(source: Path) -> ModuleType:
    """Load a C++ file with ``PyInit_NAME`` as the Python module NAME; calls cost less than those of ctypes.

    Args:
        source: includes ``Python.h`` with the stable interface, so that one library serves every Python.

    Raises:
        ImplementationError: see :func:`load`; or this Python has no lock and no stable interface.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImplementationError(f"{source.name} needs Python with its global lock, not a free-threaded one")
    library = _build(source)
    described = importlib.util.spec_from_file_location(source.stem, library)
    if described is None or described.loader is None:
        raise ImplementationError(f"{library} is not a Python module: delete the file")
    module = importlib.util.module_from_spec(described)
    try:
        described.loader.exec_module(module)
    except ImportError as error:
        raise ImplementationError(f"{library} cannot be loaded ({error}): delete the file") from error
    return module


def flags_of(source: bytes) -> tuple[str, ...]:
    """Return the compiler flags of a source."""
    found = re.search(rb"^// flags: (.+)$", source, flags=re.MULTILINE)
    return (*FLAGS, *(found.group(1).decode().split() if found else ()))


def include_flags(source: bytes) -> tuple[str, ...]:
    """Return the flags with the folders of headers, which do not change the library."""
    return (f"-I{sysconfig.get_path('include', 'posix_prefix')}",) if b"#include <Python.h>" in source else ()


def machine_of(source: bytes) -> str | None:
    """Return the only processor that a source is for, as ``platform.machine`` names it; None: any."""
    found = re.search(rb"^// machine: (\S+)$", source, flags=re.MULTILINE)
    return found.group(1).decode() if found else None


def library_name(source: bytes, machine: str | None = None) -> str:
    """Return the file name of a library, which changes with the source, the flags and the processor."""
    flags = (*flags_of(source), machine or platform.machine())
    digest = hashlib.sha256(b"\0".join([source, *(flag.encode() for flag in flags)]))
    return f"{digest.hexdigest()[:24]}.so"


def existing_library(source: Path, folder: Path | None = None) -> Path | None:
    """Return the library of a source in the wheel or in a folder (default: the cache), or None."""
    name = library_name(source.read_bytes())
    candidates = (BUILT / name, (folder or cache_folder()) / f"{source.stem}-{name}")
    return next((path for path in candidates if path.is_file()), None)


def _build(source: Path) -> Path:
    """Return the library of a source, from the wheel or the cache, or compiled now."""
    folder = _folder()
    found = existing_library(source, folder)
    if found is not None:
        return found
    text = source.read_bytes()
    library = folder / f"{source.stem}-{library_name(text)}"
    _compile(source, (*flags_of(text), *include_flags(text)), library)
    return library


def _folder() -> Path:
    """Return the cache folder, or a temporary one if it is not writable."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="sparsight-"))


def _compile(source: Path, flags: Sequence[str], library: Path) -> None:
    program = compiler()
    if program is None:
        raise ImplementationError(f"{source.name} needs a C++ compiler: install g++, or name one in CXX")
    handle, unfinished = tempfile.mkstemp(suffix=".so", dir=library.parent)
    os.close(handle)
    try:
        command = [program, *flags, str(source), "-o", unfinished]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode:
            lines = "\n".join(done.stderr.splitlines()[:5])
            raise ImplementationError(f"{program} cannot compile {source.name}:\n{lines}")
        # Concurrent processes write identical files.
        os.replace(unfinished, library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImplementationError(f"{program} cannot compile {source.name}: {error}") from error
    finally:
        Path(unfinished).unlink(missing_ok=True)
