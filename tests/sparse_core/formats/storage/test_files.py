from __future__ import annotations

import gzip
import stat
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import KINDS, mutations
from sparse_matrices import Entries, entries

from sparse_core.formats import BSR, COO, CSR, SparseMatrix, load_matrix, save_matrix
from sparse_core.formats.generators import block_sparse, poisson_2d, random_uniform

SUFFIXES = [".mtx", ".mtx.gz", ".npz"]
FIXTURE = [HealthCheck.function_scoped_fixture]


def same(left: SparseMatrix, right: SparseMatrix) -> bool:
    """Same stored entries and values, NaN equal to NaN."""
    a, b = left.to(CSR), right.to(CSR)
    return (
        a.shape == b.shape
        and torch.equal(a.row_ptr, b.row_ptr)
        and torch.equal(a.col, b.col)
        and np.array_equal(a.values.numpy(), b.values.numpy(), equal_nan=True)
    )


@settings(max_examples=25, suppress_health_check=FIXTURE)
@given(case=entries(dtypes=[torch.float64, torch.complex128]), suffix=st.sampled_from(SUFFIXES))
def test_matrices_come_back_as_they_were(case: Entries, suffix: str, tmp_path: Path) -> None:
    matrix = case.coo().to(CSR)
    path = tmp_path / f"matrix{suffix}"
    assert save_matrix(matrix, path) == path
    loaded = load_matrix(path)
    loaded.validate()
    # scipy reads every Matrix Market file without entries as real.
    assert loaded.dtype == matrix.dtype or (matrix.nnz == 0 and suffix != ".npz")
    assert same(loaded, matrix.to(loaded.dtype) if matrix.nnz == 0 else matrix)
    # Nothing half-written stays behind.
    assert {file.name for file in tmp_path.iterdir()} <= {f"matrix{known}" for known in SUFFIXES}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_scipy_reads_what_is_written(suffix: str, tmp_path: Path) -> None:
    matrix = random_uniform(20, 30, 4, dtype=torch.float64)
    path = save_matrix(matrix, tmp_path / f"m{suffix}")
    read: Any = scipy.sparse.load_npz(path) if suffix == ".npz" else scipy.io.mmread(path, spmatrix=False)
    assert np.array_equal(read.toarray(), matrix.to_dense().numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_values_survive_in_every_dtype(suffix: str, dtype: torch.dtype, tmp_path: Path) -> None:
    matrix = random_uniform(9, 9, 3, dtype=dtype)
    path = save_matrix(matrix, tmp_path / f"m{suffix}")
    loaded = load_matrix(path, dtype=dtype)
    assert loaded.dtype == dtype
    assert torch.equal(loaded.to_dense(), matrix.to_dense())
    assert load_matrix(path).dtype == (torch.float32 if suffix == ".npz" else torch.float64)


def test_npz_keeps_blocks_and_other_formats_become_csr(tmp_path: Path) -> None:
    blocks = block_sparse(8, 12, 4, 0.5)
    loaded = load_matrix(save_matrix(blocks, tmp_path / "blocks.npz"))
    assert isinstance(loaded, BSR)
    assert torch.equal(loaded.values, blocks.values)
    coo = COO(torch.tensor([1, 0, 1]), torch.tensor([0, 1, 0]), torch.ones(3), (2, 2))
    loaded = load_matrix(save_matrix(coo, tmp_path / "coo.npz"))
    assert isinstance(loaded, CSR)
    assert loaded.to_dense().tolist() == [[0.0, 1.0], [2.0, 0.0]]
    ragged = block_sparse(7, 5, 4, 1.0)
    assert torch.equal(load_matrix(save_matrix(ragged, tmp_path / "r.npz")).to_dense(), ragged.to_dense())
    column = scipy.sparse.csc_array(blocks.to_scipy())
    scipy.sparse.save_npz(tmp_path / "csc.npz", column)
    assert same(load_matrix(tmp_path / "csc.npz"), CSR.from_scipy(column))


MARKET = {
    "pattern symmetric": ("coordinate pattern symmetric\n3 3 2\n2 1\n3 3", [[0, 1, 0], [1, 0, 0], [0, 0, 1]]),
    "pattern with values": ("coordinate pattern general\n2 2 3\n1 1 5\n1 2\n2 1 -0.5e3", [[1, 1], [1, 0]]),
    "upper triangle": ("coordinate real symmetric\n2 2 2\n1 2 5\n2 2 1", [[0, 5], [5, 1]]),
    "skew": ("coordinate real skew-symmetric\n2 2 1\n2 1 3.5", [[0, -3.5], [3.5, 0]]),
    "integer": ("coordinate integer general\n% comment\n2 3 2\n1 3 -4\n2 1 7", [[0, 0, -4], [7, 0, 0]]),
    "hermitian": ("coordinate complex hermitian\n2 2 2\n1 1 1 0\n2 1 2 3", [[1, 2 - 3j], [2 + 3j, 0]]),
    "array": ("array real general\n2 2\n1\n0\n2.5\n-1", [[1, 2.5], [0, -1]]),
    "empty": ("coordinate real general\n0 4 0", np.zeros((0, 4))),
    "duplicates": ("coordinate real general\n1 1 2\n1 1 2\n1 1 3", [[5]]),
}


#: Files that scipy refuses or misreads, and their meaning.
UNUSUAL = {
    "fortran": (
        "coordinate real general\n2 2 3\n1 1 4.0D+02\n1 2 -1.5d-1\n2 2 +3",
        [[400, -0.15], [0, 3]],
    ),
    "fortran array": ("array complex general\n1 2\n1D1 -2d0\n+.5 5.", [[10 - 2j, 0.5 + 5j]]),
    "capitals": ("COORDINATE REAL SYMMETRIC\n2 2 1\n2 1 7", [[0, 7], [7, 0]]),
    "blank lines": ("coordinate real general\n\n2 2 2\n\n1 1 1\n \t\r\n2 2 2 \t\r\n\n", [[1, 0], [0, 2]]),
    "long comment": ("coordinate real general\n%" + "2 2 1\r" * 20_000 + "\n1 1 1\n1 1 2\n", [[2]]),
    "nan and infinity": ("array real general\n1 3\nNaN\n-inf\n+Infinity", [[np.nan, -np.inf, np.inf]]),
    "wide exponents": ("array real general\n1 2\n1e-999\n1E+999", [[0, np.inf]]),
    "skew array": ("array real skew-symmetric\n2 2\n3", [[0, -3], [3, 0]]),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_market_files(kind: str, packed: bool, tmp_path: Path) -> None:
    header, expected = UNUSUAL[kind]
    banner = b"%%MATRIXMARKET MATRIX " if kind == "capitals" else b"%%MatrixMarket matrix "
    text = banner + header.encode()
    path = tmp_path / ("m.mtx.gz" if packed else "m.mtx")
    path.write_bytes(gzip.compress(text) if packed else text)
    assert np.array_equal(load_matrix(path).to_dense().numpy(), np.asarray(expected), equal_nan=True)


def test_large_files_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random_uniform(70, 50, 5, dtype=torch.float64)
    path = save_matrix(matrix, tmp_path / "m.mtx")
    for size in (1, 7, 100, 10_000):
        monkeypatch.setattr("sparse_core.formats.storage.market._PIECE_BYTES", size)
        assert same(load_matrix(path), matrix)


COORDINATES = "%%MatrixMarket matrix coordinate real general\n"
DENSE = "%%MatrixMarket matrix array real general\n"
LIES = {
    "entries": (COORDINATES + "2 2 1000000000000\n1 1 1\n", "1000000000000 entries would take"),
    "more entries": (COORDINATES + "2 2 1000\n1 1 1\n", "1 lines of entries, the header announces 1000"),
    "fewer entries": (COORDINATES + "2 2 1\n1 1 1\n2 2 1\n", "more lines than the 1"),
    "rows": (
        COORDINATES + "1500000000 2 1\n1 1 1\n",
        "pointers to 1500000000 rows would take 12000000008",
    ),
    "dense rows": (DENSE + "1000000 1000000\n1\n", "entries would take"),
    "not square": (COORDINATES.replace("general", "symmetric") + "2 3 1\n2 1 1\n", "is square, got 2 x 3"),
    "nul in an array": (
        DENSE + "2 1\n1\n\0\n",
        r"line 4: '.+' is not a valid entry",
    ),
    "nul": (COORDINATES + "2 2 1\n1 1 1\0\n", "line 3: "),
    "two points": (COORDINATES + "2 2 1\n1 1 1.5.3\n", r"line 3: '1 1 1\.5\.3' is not a valid entry"),
    "comma": (COORDINATES + "2 2 1\n1 1 1,5\n", "line 3: '1 1 1,5' is not a valid entry"),
    "exponent without letter": (COORDINATES + "2 2 1\n1 1 1.5-100\n", "line 3: "),
    "half an exponent": (COORDINATES + "2 2 1\n1 1 1e\n", "line 3: "),
    "fraction for an index": (COORDINATES + "2 2 1\n1 1.5 2\n", "line 3: "),
    "words": (COORDINATES + "2 2 2\n1 1 1\n2 2 2x\n", "line 4: '2 2 2x' is not a valid entry"),
    "one word too many": (COORDINATES + "2 2 1\n1 1 1 1\n", "line 3: "),
    "huge index": (COORDINATES + "2 2 1\n1 99999999999999999999 1\n", "[Ii]nteger out of range"),
    "huge size": (
        COORDINATES + "2 " + "9" * 5000 + " 1\n1 1 1\n",
        "line 2: expected rows, columns",
    ),
    "negative size": (COORDINATES + "-2 2 1\n1 1 1\n", "line 2: expected rows, columns"),
    "no sizes": (COORDINATES + "% only\n", "no line with the sizes"),
    "long line": (COORDINATES + "2 2 1\n" + " " * 5_000_000 + "1 1 1\n", "is longer than 65536 bytes"),
    "pattern of an array": (
        DENSE.replace("real", "pattern") + "1 1\n",
        "the banner combines array, pattern",
    ),
    "other field": (
        DENSE.replace("real", "quaternion") + "1 1\n",
        "field 'quaternion' must be one of",
    ),
    "row outside, late": (
        "%%MatrixMarket matrix coordinate real general\n% a\n% b\n\n% c\n% d\n3 3 3\n1 1 1\n\n4 1 2\n2 2 2\n",
        "line 10: Row index out of bounds",
    ),
    "column outside": (
        "%%MatrixMarket matrix coordinate complex general\r\n% a\r\n3 3 1\r\n1 4 1 1\r\n",
        "line 4: Column index out of bounds",
    ),
    "row zero": (
        "%%MatrixMarket matrix coordinate pattern symmetric\n% a\n3 3 2\n1 1\n0 1\n",
        "line 5: Row index out of bounds",
    ),
    "integer beyond 64 bits": (
        "%%MatrixMarket matrix coordinate integer general\n%\n2 2 1\n1 1 92233720368547758089\n",
        "line 4: Integer out of range",
    ),
    "index beyond 64 bits": (
        "%%MatrixMarket matrix coordinate real general\n%\n2 2 1\n99999999999999999999 1 1\n",
        "line 4: Integer out of range",
    ),
    "two numbers for a pattern": (
        "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 1 2 3\n",
        "line 3: '1 1 2 3' is not a valid entry",
    ),
    "both triangles": (
        "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n1 3 5\n3 1 5\n",
        r"both \(3, 1\) and \(1, 3\) are listed",
    ),
    "skew diagonal": (
        "%%MatrixMarket matrix coordinate integer skew-symmetric\n3 3 2\n1 3 5\n2 2 5\n",
        r"entry \(2, 2\) must be its own mirror image",
    ),
    "hermitian diagonal": (
        "%%MatrixMarket matrix coordinate complex hermitian\n3 3 1\n2 2 5 1\n",
        r"entry \(2, 2\) must be its own mirror image",
    ),
    "utf-16": (COORDINATES.encode("utf-16").decode("latin-1"), "no banner"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", LIES)
def test_wrong_market_files_name_the_line(kind: str, packed: bool, tmp_path: Path) -> None:
    text, message = LIES[kind]
    path = tmp_path / ("lie.mtx.gz" if packed else "lie.mtx")
    path.write_bytes(gzip.compress(text.encode("latin-1")) if packed else text.encode("latin-1"))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"lie\.mtx.*: not a readable Matrix Market file \(.*{message}"):
            load_matrix(path)
        assert tracemalloc.get_traced_memory()[1] < 40e6
    finally:
        tracemalloc.stop()


def array_bytes(shape: str, data: bytes, kind: str = "<f8") -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data


@pytest.mark.parametrize(
    ("shape", "kind", "message"),
    [
        ("(1000000000000,)", "<f8", r"data\.npy: claims shape \(1000000000000,\) but has \d+ bytes"),
        ("(-1,)", "<f8", r"data\.npy: claims shape \(-1,\)"),
        ("(2,)", "|O", r"data\.npy: Python objects are not supported"),
        ("(2,", "<f8", r"not a readable sparse matrix"),
        ("(" * 3000 + ")" * 3000, "<f8", r"not a readable sparse matrix"),
    ],
)
def test_archives_with_wrong_headers_are_refused(shape: str, kind: str, message: str, tmp_path: Path) -> None:
    sound = save_matrix(poisson_2d(2), tmp_path / "sound.npz")
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(sound) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.infolist():
            held = array_bytes(shape, bytes(96), kind) if member.filename == "data.npy" else old.read(member)
            new.writestr(member.filename, held)
    with pytest.raises(ValueError, match=rf"lie\.npz: .*{message}"):
        load_matrix(path)


def test_an_archive_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    rows = 20_000_000
    path = tmp_path / "bomb.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_array((rows, 3)))
    assert path.stat().st_size < 200_000
    with pytest.raises(ValueError, match=r"bomb\.npz: .*the arrays would take 800\d+ bytes"):
        load_matrix(path)
    scipy.sparse.save_npz(path, scipy.sparse.coo_array((1_500_000_000, 3)))
    with pytest.raises(ValueError, match=r"bomb\.npz: .*pointers to 1500000000 rows would take"):
        load_matrix(path)


def sound_files(folder: Path) -> list[Path]:
    matrix = random_uniform(9, 7, 3, dtype=torch.float64)
    files = [save_matrix(matrix, folder / f"sound{suffix}") for suffix in SUFFIXES]
    for name, header in (("array", "array"), ("symmetric", "pattern symmetric"), ("complex", "hermitian")):
        (folder / f"{name}.mtx").write_text(f"%%MatrixMarket matrix {MARKET[header][0]}\n")
        files.append(folder / f"{name}.mtx")
    for kind in ("coo", "csc", "bsr", "dia"):
        source = getattr(scipy.sparse, f"{kind}_array")(np.diag([1.0, 2.0, 3.0, 4.0]))
        files.append(folder / f"{kind}.npz")
        scipy.sparse.save_npz(files[-1], source, compressed=kind == "coo")
    return files


def attack(folder: Path, count: int) -> None:
    """Check that a mutated file gives the documented error or a usable matrix."""
    for seed, file in enumerate(sound_files(folder)):
        sound, path = file.read_bytes(), folder / f"mutated{''.join(file.suffixes)}"
        pairs = [(sound, bytes)]
        if file.name.endswith(".gz"):
            pairs.append((gzip.decompress(sound), gzip.compress))
        for data, pack in pairs:
            for kind, mutated in mutations(data, count, seed):
                path.write_bytes(pack(mutated))
                try:
                    matrix, message = load_matrix(path), ""
                except ValueError as error:
                    matrix, message = poisson_2d(1), str(error)
                assert not message or message.startswith(f"{path}: "), (file.name, kind)
                matrix.validate()
                if max(matrix.shape) < 10**7:
                    x = torch.ones(matrix.shape[1], dtype=matrix.dtype)
                    assert (matrix @ x).shape == matrix.shape[:1]


def test_mutated_files_give_the_documented_error(tmp_path: Path) -> None:
    attack(tmp_path, 2 * len(KINDS))


@pytest.mark.slow
def test_many_mutated_files_give_the_documented_error(tmp_path: Path) -> None:
    attack(tmp_path, 60 * len(KINDS))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", MARKET)
def test_every_kind_of_market_file(kind: str, packed: bool, tmp_path: Path) -> None:
    header, expected = MARKET[kind]
    text = f"%%MatrixMarket matrix {header}\n".encode()
    path = tmp_path / ("m.mtx.gz" if packed else "m.MTX")
    path.write_bytes(gzip.compress(text) if packed else text)
    loaded = load_matrix(path)
    loaded.validate()
    assert isinstance(loaded, CSR)
    assert loaded.dtype == (torch.complex128 if kind == "hermitian" else torch.float64)
    assert np.array_equal(loaded.to_dense().numpy(), np.asarray(expected))


def test_large_integers_are_not_rounded_unless_asked(tmp_path: Path) -> None:
    path, packed = tmp_path / "m.mtx", tmp_path / "m.npz"
    for number in (2**53 + 1, -(2**53) - 1, 2**63 - 1):
        path.write_text(f"%%MatrixMarket matrix coordinate integer general\n2 2 1\n2 1 {number}\n")
        scipy.sparse.save_npz(packed, scipy.sparse.coo_array(np.array([[0, number], [3, 0]])))
        for file in (path, packed):
            with pytest.raises(ValueError, match=rf"float64 would round the integer {number}; pass dtype"):
                load_matrix(file)
            assert float(number) in load_matrix(file, dtype=torch.float64).values.tolist()
    for number in (2**53, 2**53 + 2, -(2**63)):
        path.write_text(f"%%MatrixMarket matrix array integer general\n2 1\n{number}\n0\n")
        assert [int(one) for one in load_matrix(path).values.tolist()] == [number]


def test_integers_in_npz_become_floating(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "i.npz", scipy.sparse.coo_array(np.array([[0, 2], [-3, 0]])))
    assert load_matrix(tmp_path / "i.npz").to_dense().tolist() == [[0.0, 2.0], [-3.0, 0.0]]
    scipy.sparse.save_npz(tmp_path / "b.npz", scipy.sparse.csr_array(np.eye(2, dtype=bool)))
    assert load_matrix(tmp_path / "b.npz", dtype=torch.float16).dtype == torch.float16


def test_shipped_matrices_load_as_scipy_reads_them(tmp_path: Path) -> None:
    load_example = pytest.importorskip("pyamg.gallery").load_example
    for name in ("airfoil", "helmholtz_2D"):
        matrix = load_example(name)["A"].tocsr()
        matrix.sort_indices()
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", matrix)
        loaded = load_matrix(tmp_path / f"{name}.npz")
        difference = scipy.sparse.csr_array(loaded.to_scipy()) - scipy.sparse.csr_array(matrix)
        assert loaded.shape == matrix.shape
        assert abs(difference).max() == 0


def test_missing_files_and_wrong_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.mtx: no such file"):
        load_matrix(tmp_path / "nothing.mtx")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(FileNotFoundError, match=r"folder\.npz: a folder, not a file"):
        load_matrix(tmp_path / "folder.npz")
    for name in ("m.mat", "mtx", "m.npy", "m.gz"):
        with pytest.raises(
            ValueError, match=rf"{name}: expected a name that ends in \.mtx, \.mtx\.gz, \.npz"
        ):
            load_matrix(tmp_path / name)
        with pytest.raises(ValueError, match="expected a name that ends in"):
            save_matrix(poisson_2d(2), tmp_path / name)
    with pytest.raises(FileNotFoundError, match="absent does not exist"):
        save_matrix(poisson_2d(2), tmp_path / "absent" / "m.npz")


DAMAGED = {
    "empty.mtx": b"",
    "words.mtx": b"hello\n",
    "short.mtx": b"%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n",
    "outside.mtx": b"%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1.0\n",
    "zero.mtx": b"%%MatrixMarket matrix coordinate real general\n2 2 1\n0 1 1.0\n",
    "letters.mtx": b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 x\n",
    "plain.mtx.gz": b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1.0\n",
    "cut.mtx.gz": gzip.compress(b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1.0\n")[:40],
    "flipped.mtx.gz": gzip.compress(b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1.0\n")[:12]
    + b"\xff" * 40,
    "empty.npz": b"",
    "words.npz": b"hello\n",
    "cut.npz": b"PK\x03\x04\x14\x00",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(DAMAGED[name])
    with pytest.raises(ValueError, match=rf"{name}: not a readable"):
        load_matrix(path)


def test_npz_of_other_content(tmp_path: Path) -> None:
    path = tmp_path / "dense.npz"
    np.savez(path, weights=np.eye(3))
    with pytest.raises(ValueError, match=r"dense\.npz: not a readable sparse matrix .*save_matrix"):
        load_matrix(path)
    lying = {"format": np.array(b"csr"), "shape": np.array([2, 2]), "data": np.ones(2)}
    np.savez(path, **lying, indptr=np.array([0, 1, 2]), indices=np.array([0, 7]))
    with pytest.raises(ValueError, match=r"dense\.npz: "):
        load_matrix(path)
    one_dimension = scipy.sparse.coo_array(np.array([0.0, 1.0, 2.0]))
    scipy.sparse.save_npz(path, one_dimension)
    with pytest.raises(ValueError, match=r"dense\.npz: "):
        load_matrix(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_write_leaves_what_was_there(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_matrix(poisson_2d(3), tmp_path / f"m{suffix}")
    before = path.read_bytes()

    def fail(stream: Any, *_: object, **__: object) -> None:
        stream.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(scipy.io, "mmwrite", fail)
    monkeypatch.setattr(scipy.sparse, "save_npz", fail)
    with pytest.raises(OSError, match="disk full"):
        save_matrix(poisson_2d(4), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_files_can_be_read_by_others_and_are_the_same_each_time(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    paths = [save_matrix(poisson_2d(3), tmp_path / f"{name}.mtx.gz") for name in ("a", "b")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert stat.S_IMODE(paths[0].stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
