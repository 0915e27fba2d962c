"""Measured choices: how row counts are gathered, and the files they are kept in."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.kernels.choices import key_of
from sparse_core.nm.linear import tuning
from sparse_core.nm.linear.choice import TUNER, LinearCase, LinearChoice, row_bucket

CASE = LinearCase("GPU 1", "0.8.0", "torch.bfloat16", "torch.bfloat16", "none", 512, 1024, "dense", 64)
VENDOR = LinearChoice("vendor", 3, 12.5, 20.25)


@pytest.fixture(autouse=True)
def _nothing_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TUNER, "shipped", tmp_path / "shipped.json")


# Row counts


@given(rows=st.integers(1, 1 << 22), step=st.sampled_from([8, 16]))
def test_a_bucket_is_a_little_larger_and_its_own_bucket(rows: int, step: int) -> None:
    bucket = row_bucket(rows, step)
    assert rows <= bucket < rows + max(step, rows / 8)
    assert row_bucket(bucket, step) == bucket
    # What needs padding is not measured with what does not.
    assert (bucket % step == 0) == (rows % step == 0)


@given(rows=st.integers(1, 1 << 20), step=st.sampled_from([8, 16]))
def test_buckets_rise_with_the_rows(rows: int, step: int) -> None:
    if rows % step == 0:
        assert row_bucket(rows, step) <= row_bucket(rows + step, step)
    elif (rows + 1) % step:
        assert row_bucket(rows, step) <= row_bucket(rows + 1, step)


def test_there_are_few_buckets() -> None:
    buckets = {row_bucket(rows) for rows in range(1, 1 << 16)}
    assert len(buckets) <= 2 * (8 + 8 * 10)
    assert {row_bucket(rows) for rows in range(1, 8)} == {7}
    assert row_bucket(8) == 8
    assert row_bucket(128) == 128
    assert row_bucket(136) == 144
    assert row_bucket(130) == 143


# Keys


def test_keys_tell_every_part_apart() -> None:
    changes = {
        "device": "GPU 2",
        "library": "none",
        "dtype": "torch.int8",
        "out_dtype": "torch.int32",
        "activation": "relu",
        "out": 513,
        "columns": 1025,
        "rows": 65,
        "storage": "packed",
    }
    assert set(changes) == set(LinearCase._fields)
    keys = {key_of(CASE), *(key_of(CASE._replace(**{name: part})) for name, part in changes.items())}
    assert len(keys) == 1 + len(changes)


def test_the_nearest_row_count_of_the_same_weight(tmp_path: Path) -> None:
    with tuning(folder=tmp_path / "own"):
        assert TUNER.nearest(CASE) is None
        for rows in (8, 56, 512):
            TUNER.remember(CASE._replace(rows=rows), LinearChoice("vendor", rows))
        TUNER.remember(CASE._replace(columns=10240, rows=64), LinearChoice("vendor", 1))
        TUNER.remember(CASE._replace(out=5120), LinearChoice("vendor", 2))
        TUNER.remember(CASE._replace(activation="relu"), LinearChoice("vendor", 4))
        TUNER.remember(CASE._replace(storage="packed"), LinearChoice("vendor", 5))
        assert TUNER.lookup(CASE) is None
        for rows, expected in ((1, 8), (33, 56), (64, 56), (280, 56), (290, 512), (4096, 512)):
            assert TUNER.nearest(CASE._replace(rows=rows)) == LinearChoice("vendor", expected)


# Files


choices = st.builds(
    LinearChoice,
    st.sampled_from(["dense", "cuda", "vendor"]),
    st.integers(0, 40),
    st.integers(0, 10**6).map(lambda hundredths: hundredths / 100),
    st.integers(0, 10**6).map(lambda hundredths: hundredths / 100),
)
cases = st.builds(
    LinearCase,
    st.text(st.characters(exclude_characters="|", codec="utf-8"), max_size=8),
    st.just("0.8.0"),
    st.sampled_from(["torch.int8", "torch.float16"]),
    st.just("torch.float16"),
    st.sampled_from(["none", "gelu"]),
    st.integers(1, 10**5),
    st.integers(1, 10**5),
    st.sampled_from(["dense", "packed"]),
    st.integers(1, 10**6),
)


@settings(max_examples=8)
@given(entries=st.dictionaries(cases.map(key_of), choices, max_size=6))
def test_a_file_reads_back_as_written(
    entries: dict[str, LinearChoice], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tables") / "table.json"
    TUNER.write(path, entries)
    assert TUNER.read(path) == entries
    assert json.loads(path.read_text(encoding="utf-8"))["version"] == TUNER.version
    assert [file.name for file in path.parent.iterdir()] == ["table.json"]


def test_one_choice_a_line_in_order(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    entries = {key_of(CASE._replace(rows=rows)): VENDOR for rows in (72, 8, 64)}
    TUNER.write(path, entries)
    lines = path.read_text().splitlines()
    assert [line for line in lines if "GPU 1" in line] == sorted(line for line in lines if "GPU 1" in line)
    assert len(lines) == 5
    TUNER.write(path, dict(reversed(entries.items())))
    assert path.read_text().splitlines() == lines


def test_choices_are_found_again_in_another_process(tmp_path: Path) -> None:
    with tuning(folder=tmp_path / "deep" / "own"):
        assert TUNER.lookup(CASE) is None
        TUNER.remember(CASE, VENDOR)
        assert TUNER.lookup(CASE) == VENDOR
    with tuning(folder=tmp_path / "other"):
        assert TUNER.lookup(CASE) is None
    # As after a start: the table is read anew.
    with tuning("table", folder=tmp_path / "deep" / "own"):
        assert TUNER.lookup(CASE) == VENDOR
        other = CASE._replace(rows=8)
        TUNER.remember(other, LinearChoice("dense"))
    with tuning(folder=tmp_path / "deep" / "own"):
        assert TUNER.lookup(CASE) == VENDOR
        assert TUNER.lookup(other) == LinearChoice("dense")


def test_what_was_measured_here_comes_before_what_was_shipped(tmp_path: Path) -> None:
    other = CASE._replace(rows=8)
    TUNER.write(tmp_path / "shipped.json", {key_of(CASE): VENDOR, key_of(other): VENDOR})
    with tuning(folder=tmp_path / "own"):
        assert TUNER.lookup(CASE) == VENDOR
        TUNER.remember(CASE, LinearChoice("dense"))
    with tuning(folder=tmp_path / "own"):
        assert TUNER.lookup(CASE) == LinearChoice("dense")
        assert TUNER.lookup(other) == VENDOR
    (kept,) = (tmp_path / "own").iterdir()
    assert list(TUNER.read(kept)) == [key_of(CASE)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"null",
        b"[1, 2]",
        b"7",
        b"{}",
        b'{"version": 1}',
        b'{"version": 0, "choices": {}}',
        b'{"version": "1", "choices": {"KEY": ["dense", 0, 1, 1]}}',
        b'{"version": 1, "choices": []}',
        b'{"version": 1, "choices": {"KEY": ["magic", 0, 1, 1]}}',
        b'{"version": 1, "choices": {"KEY": ["dense", 0, 1]}}',
        b'{"version": 1, "choices": {"KEY": ["dense", "x", 1, 1]}}',
        b'{"version": 1, "choices": {"KEY": ["dense", null, 1, 1]}}',
        b'{"version": 1, "choices": {"KEY": 5}}',
        b'{"version": 1, "choices": {"KEY": ["dense", Infinity, 1, 1]}}',
        b'{"version": 1, "choices": ' + b"[" * 100_000,
    ],
)
def test_a_damaged_or_foreign_file_is_measured_again(tmp_path: Path, content: bytes) -> None:
    TUNER.write(tmp_path / "shipped.json", {key_of(CASE._replace(rows=8)): VENDOR})
    with tuning(folder=tmp_path / "own"):
        path = TUNER.file
        path.parent.mkdir()
        path.write_bytes(content.replace(b"KEY", key_of(CASE).encode()))
        assert TUNER.lookup(CASE) is None
        assert TUNER.lookup(CASE._replace(rows=8)) == VENDOR
        assert TUNER.nearest(CASE) == VENDOR
        TUNER.remember(CASE, LinearChoice("dense"))
    with tuning(folder=tmp_path / "own"):
        assert TUNER.lookup(CASE) == LinearChoice("dense")


def test_a_key_that_is_none_is_passed_over(tmp_path: Path) -> None:
    good = key_of(CASE._replace(rows=8))
    TUNER.write(tmp_path / "shipped.json", {good: VENDOR, good + "x": VENDOR, good[:-1]: VENDOR})
    with tuning(folder=tmp_path / "own"):
        assert TUNER.nearest(CASE) == VENDOR


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with tuning():
        assert TUNER.file.parent == tmp_path / "sparsight"
        assert TUNER.lookup(CASE) is None


def test_an_unwritable_folder_is_passed_over(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    for folder in (blocked, blocked / "below"):
        with tuning(folder=folder):
            assert TUNER.lookup(CASE) is None
            TUNER.remember(CASE, VENDOR)
            assert TUNER.lookup(CASE) == VENDOR  # in this process
    assert blocked.read_text() == "in the way"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tuning(folder=tmp_path / "own"):
        TUNER.remember(CASE, VENDOR)
        before = TUNER.file.read_bytes()

        def full(*_: object) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr(Path, "replace", full)
        TUNER.remember(CASE._replace(rows=8), VENDOR)
        assert TUNER.file.read_bytes() == before
        assert [file.name for file in TUNER.file.parent.iterdir()] == [TUNER.file.name]


def test_writers_at_the_same_time_leave_a_whole_file(tmp_path: Path) -> None:
    with tuning(folder=tmp_path / "own"):
        threads = [
            threading.Thread(target=TUNER.remember, args=(CASE._replace(rows=rows), VENDOR))
            for rows in range(8, 8 * 13, 8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = TUNER.read(TUNER.file)
        assert len(kept) == len(threads)
        assert set(kept.values()) == {VENDOR}


# Settings


def test_settings_hold_within_the_block(tmp_path: Path) -> None:
    before = TUNER.settings
    with tuning("table", folder=tmp_path) as outer:
        assert TUNER.settings is outer
        assert (outer.mode, outer.folder) == ("table", tmp_path)
        with tuning(folder=str(tmp_path / "inner")):
            assert TUNER.settings.mode == "measure"
            assert TUNER.file.parent == tmp_path / "inner"
        assert TUNER.settings is outer
        assert TUNER.file.parent == tmp_path
    assert TUNER.settings is before


def test_each_block_sees_its_own_table(tmp_path: Path) -> None:
    with tuning(folder=tmp_path / "outer"):
        TUNER.remember(CASE, VENDOR)
        with tuning(folder=tmp_path / "inner"):
            assert TUNER.lookup(CASE) is None
            TUNER.remember(CASE, LinearChoice("dense"))
        assert TUNER.lookup(CASE) == VENDOR


def test_settings_are_restored_after_an_error(tmp_path: Path) -> None:
    before = TUNER.settings
    with pytest.raises(KeyError), tuning("table", folder=tmp_path):
        raise KeyError("inside")
    assert TUNER.settings is before


@pytest.mark.parametrize("mode", ["", "Measure", "auto", None])
def test_unknown_modes(mode: str) -> None:
    before = TUNER.settings
    with pytest.raises(ValueError, match="mode must be 'measure' or 'table', got"), tuning(mode):
        pass
    assert TUNER.settings is before


def test_the_usual_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with tuning():
        assert TUNER.file.parent == tmp_path / "cache" / "sparsight"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    with tuning():
        assert TUNER.file.parent == tmp_path / ".cache" / "sparsight"
