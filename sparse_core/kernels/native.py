"""C++ for this processor, compiled at first use with the machine's compiler.

It serves the few loops that need instructions which torch does not use. Without a compiler, the
implementation that needs it reports so. Compiled libraries are stored next to the tuners' measurements.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import logging
import os
import platform
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

_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread")
_SECONDS = 120
_LOG = logging.getLogger(__name__)


@cache
def compiler() -> str | None:
    """Return the path of the C++ compiler (``$CXX``, ``c++``, ``g++`` or ``clang++``), or None."""
    named = os.environ.get("CXX")
    names = [named] if named else ["c++", "g++", "clang++"]
    return next((path for path in map(shutil.which, names) if path is not None), None)


@cache
def load(source: Path, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """Compile and load a C++ file.

    Args:
        source: has ``extern "C"`` functions.
        flags: compiler flags, for example instruction sets that the processor has.

    Raises:
        ImplementationError: there is no compiler, or it fails; the message has its output.
    """
    library = _build(source, tuple(flags))
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
        flags: compiler flags.
    """

    def __init__(
        self,
        source: Path,
        functions: Mapping[str, tuple[Any, Sequence[Any]]],
        instead: str,
        flags: Sequence[str] = (),
    ) -> None:
        self._source, self._functions, self._instead, self._flags = source, functions, instead, tuple(flags)
        self._library: ctypes.CDLL | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def library(self) -> ctypes.CDLL | None:
        """Return the library; None until it is compiled. The first call starts the compilation."""
        if self._library is None and self._thread is None:
            with self._lock:
                if self._thread is None:
                    # No daemon: the process waits for it at exit, or the next one would start over.
                    self._thread = threading.Thread(target=self._compile, name=f"compile {self._source.name}")
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
            library = load(self._source, self._flags)
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
    """Compile and load a C++ file with ``PyInit_NAME`` as the Python module NAME.

    Its calls have less overhead than ctypes. The file may include ``Python.h``.
    """
    headers = sysconfig.get_path("include", "posix_prefix")
    library = _build(source, (f"-I{headers}", f"-DINTERPRETER={sysconfig.get_config_var('SOABI')}"))
    described = importlib.util.spec_from_file_location(source.stem, library)
    if described is None or described.loader is None:
        raise ImplementationError(f"{library} is not a Python module: delete the file")
    module = importlib.util.module_from_spec(described)
    try:
        described.loader.exec_module(module)
    except ImportError as error:
        raise ImplementationError(f"{library} cannot be loaded ({error}): delete the file") from error
    return module


def _build(source: Path, flags: tuple[str, ...]) -> Path:
    """Return the shared library of a source; compile it if it is not cached."""
    text = source.read_bytes()
    said = b"\0".join([text, *(flag.encode() for flag in (*_FLAGS, *flags)), platform.machine().encode()])
    name = f"{source.stem}-{hashlib.sha256(said).hexdigest()[:16]}.so"
    library = _folder() / name
    if not library.exists():
        _compile(source, flags, library)
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
        command = [program, *_FLAGS, *flags, str(source), "-o", unfinished]
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
