"""Index files: mapped, checked, replaced only when complete."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from memory.index import files
from memory.index.evaluation import clustered
from memory.index.files import load_arrays, save_arrays
from memory.index.flat import FlatIndex
from memory.index.lsh import LSHIndex
from memory.index.rows import GrowingRows

ARRAYS = {
    "bytes": np.arange(5, dtype=np.uint8),
    "halves": np.arange(6, dtype=np.float16).reshape(2, 3),
    "words": np.arange(4, dtype=np.uint64),
    "none": np.empty((0, 7), np.int32),
}


def test_roundtrip_and_safetensors_reads_it(tmp_path: Path) -> None:
    path = save_arrays(tmp_path / "a.index", "kind", {"dim": 3}, ARRAYS)
    file = load_arrays(path, "kind")
    assert file.number("dim") == 3
    others = load_file(path)
    for name, array in ARRAYS.items():
        assert file.arrays[name].dtype == array.dtype
        assert (file.arrays[name] == array).all()
        assert file.arrays[name].shape == array.shape == others[name].shape
        assert (others[name] == array).all()


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = save_arrays(tmp_path / "a.index", "kind", {}, ARRAYS)
    before = path.read_bytes()
    with pytest.raises(KeyError):
        save_arrays(path, "kind", {}, {"complex": np.zeros(3, np.complex64)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="Create it"):
        save_arrays(tmp_path / "no" / "a.index", "kind", {}, ARRAYS)


def test_replacing_a_mapped_file_leaves_its_readers_alone(tmp_path: Path) -> None:
    data = clustered(50, 5, dim=8, centres=4)
    index = FlatIndex(8)
    index.add(data.vectors, np.arange(50))
    path = index.save(tmp_path / "flat.index")
    reader = FlatIndex.load(path)
    before = reader.search(data.queries, 3)
    other = FlatIndex(8)
    other.add(data.vectors[::-1], np.arange(50))
    other.save(path)
    after = reader.search(data.queries, 3)
    assert (before.ids == after.ids).all()
    assert (FlatIndex.load(path).search(data.queries, 3).ids == 49 - before.ids).all()


def test_damaged_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = clustered(60, 5, dim=8, centres=4)
    index = LSHIndex(8, expected=60)
    index.add(data.vectors, np.arange(60))
    path = index.save(tmp_path / "lsh.index")
    whole = path.read_bytes()
    for cut in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="Delete it"):
            LSHIndex.load(path)
    path.write_bytes(b"\xff" * 200)
    with pytest.raises(ValueError, match="damaged"):
        LSHIndex.load(path)
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="kind is 'lsh-hadamard', not 'flat'"):
        FlatIndex.load(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        LSHIndex.load(tmp_path / "other.index")
    # Files that were written wrongly, rather than damaged: their checksums are right.
    monkeypatch.setattr(files, "crc32", lambda data, start=0: 0)
    whole = index.save(path).read_bytes()
    for old, new, message in (
        (b'"version": "3"', b'"version": "7"', "version is '7'"),
        (b'"dim": "8"', b'"dim": "9"', "vectors is float16"),
        (b'"dim": "8"', b'"dim": "x"', "dim is 'x'"),
        (b'"alive": {', b'"aliwe": {', "alive is missing"),
    ):
        assert whole.count(old) == 1
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(ValueError, match=message):
            LSHIndex.load(path)


@pytest.mark.parametrize("fixed", [0, 7])
def test_growing_rows(fixed: int) -> None:
    all_rows = np.arange(600).reshape(300, 2)
    start = all_rows[:fixed]
    start.flags.writeable = False
    rows: GrowingRows[np.int64] = GrowingRows(2, np.int64, start if fixed else None)
    count = fixed
    for size in (0, 1, 90, 3, 199):
        rows.append(all_rows[count : count + size])
        count += size
        assert len(rows) == count
        for low, high in ((0, count), (fixed // 2, count), (count // 2, count), (0, fixed // 2)):
            assert (rows.between(low, high) == all_rows[low:high]).all()
        some = np.arange(0, count, 3)
        assert (rows.take(some) == all_rows[some]).all()
