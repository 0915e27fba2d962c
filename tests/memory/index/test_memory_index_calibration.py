"""Efforts are measured on an index's own rows, kept with it, and measured again when it grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memory.index import files
from memory.index.calibration import calibrate, efforts_by_aim, needs_calibration
from memory.index.effort import (
    AIMS,
    EXACT,
    HIGH,
    PATIENCE,
    THOROUGH,
    USUAL,
    Effort,
    IndexCalibration,
    Rung,
    check_aim,
    choose_effort,
)
from memory.index.evaluation import clustered, recall
from memory.index.flat import FlatIndex
from memory.index.lsh import LSHIndex
from memory.index.neighbours import LongTermIndex
from memory.index.planner import exact_price
from memory.index.tiered import TieredIndex

DIM, ROWS = 48, 15_000
EASY = clustered(ROWS + 200, 1, dim=DIM, centres=1000, noise=0.03).vectors


def uniform(rows: int, seed: int = 0) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((rows, DIM)).astype(np.float32)
    units: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units


def make_lsh(vectors: NDArray[np.float32], **options: Any) -> LSHIndex:
    index = LSHIndex(DIM, expected=len(vectors), **options)
    index.add(vectors, np.arange(len(vectors)))
    return index


def make_lists(vectors: NDArray[np.float32], lists: Any = "flat", cells: int = 128) -> LongTermIndex:
    pytest.importorskip("faiss")
    from memory.index.faiss_index import FaissIndex

    index = FaissIndex(DIM, lists=lists, cells=cells, probes=4)
    index.add(vectors, np.arange(len(vectors)))
    index.train()
    return index


@pytest.fixture(scope="module")
def easy() -> LSHIndex:
    index = make_lsh(EASY[:ROWS])
    calibrate(index)
    return index


@pytest.fixture(scope="module")
def hard() -> LSHIndex:
    index = make_lsh(uniform(ROWS))
    calibrate(index)
    return index


def test_hard_vectors_get_more_effort_than_easy_ones(easy: LSHIndex, hard: LSHIndex) -> None:
    for aim in (USUAL, HIGH):
        assert easy.effort(aim) != EXACT
        assert hard.price(hard.effort(aim)) > 1.3 * easy.price(easy.effort(aim))
    for index in (easy, hard):
        prices = [index.price(index.effort(aim)) for aim in AIMS]
        assert prices == sorted(prices)


@pytest.mark.parametrize("aim", AIMS)
def test_other_queries_find_what_was_measured(easy: LSHIndex, aim: float) -> None:
    exact = FlatIndex(DIM)
    exact.add(EASY[:ROWS], np.arange(ROWS))
    asked = EASY[ROWS:]
    truth = exact.search(asked, 10).ids
    # Two hundred queries of ten say it to within half a per cent.
    assert recall(easy.search(asked, 10, effort=easy.effort(aim)).ids, truth) >= aim - 0.005
    assert recall(easy.search(asked, 10, aim=aim).ids, truth) >= aim - 0.005


@pytest.mark.slow
@pytest.mark.parametrize("lists", ["flat", "rabitq"])
def test_lists_are_measured_too(lists: Any) -> None:
    simple, even = make_lists(EASY[:ROWS], lists), make_lists(uniform(8000), lists, cells=32)
    assert not simple.tail
    for index in (simple, even):
        assert needs_calibration(index)
        calibrate(index)
        assert not needs_calibration(index)
    first, second = simple.effort(HIGH), even.effort(HIGH)
    assert first.probes < 0.2 * 128
    assert second == EXACT or second.probes > 0.5 * 32
    asked, exact = EASY[ROWS:], FlatIndex(DIM)
    exact.add(EASY[:ROWS], np.arange(ROWS))
    found = simple.search(asked, 10, aim=HIGH)
    assert recall(found.ids, exact.search(asked, 10).ids) >= HIGH - 0.005


@pytest.mark.slow
def test_the_same_rows_and_seed_give_the_same_result() -> None:
    made = [make_lsh(EASY[:6000], probes=64) for _ in range(2)]
    first, second = (calibrate(index, seed=3) for index in made)
    assert first == second
    assert first.rungs
    assert calibrate(made[0], seed=4) != first


def test_own_rows_and_copies_do_not_flatter_nor_spoil() -> None:
    """Of equal vectors any is right: ids say nothing."""
    vectors = np.repeat(EASY[:2000], 12, axis=0)
    index = make_lsh(vectors)
    found = calibrate(index)
    assert max(rung.recall for rung in found.rungs) == 1.0


def test_an_index_whose_least_effort_is_dearer_than_comparing_all_rows_does_that() -> None:
    index = make_lsh(uniform(3000))
    found = calibrate(index)
    assert found.rungs == ()
    assert found.queries == 250
    exact = FlatIndex(DIM)
    exact.add(uniform(3000), np.arange(3000))
    asked = uniform(20, seed=1)
    for aim in AIMS:
        assert index.effort(aim) == EXACT
        np.testing.assert_array_equal(index.search(asked, 10, aim=aim).ids, exact.search(asked, 10).ids)
    # Many queries at once share the cost of comparing all rows.
    assert exact_price(3000, 100) < 0.3 * exact_price(3000)


def test_many_queries_at_once_may_be_compared_with_all_rows(easy: LSHIndex) -> None:
    assert easy.effort(USUAL) != EXACT
    assert easy.effort(USUAL, queries=1000) == EXACT
    exact = FlatIndex(DIM)
    exact.add(EASY[:ROWS], np.arange(ROWS))
    asked = np.repeat(EASY[ROWS:], 5, axis=0)
    np.testing.assert_array_equal(easy.search(asked, 10).ids, exact.search(asked, 10).ids)


def test_what_is_chosen() -> None:
    rungs = (Rung(Effort(1, 9), 0.9, 0.01), Rung(Effort(2, 9), 0.96, 0.001), Rung(Effort(4, 9), 0.98, 0.0))
    known = IndexCalibration(1000, 200, rungs)

    def choose(aim: float, exact: float, calibration: IndexCalibration | None = known) -> Effort:
        return choose_effort(
            calibration,
            aim,
            usual=lambda aim: Effort(7, 7),
            price=lambda effort: float(effort.probes),
            exact_price=exact,
        )

    assert choose(0.85, 100.0) == Effort(1, 9)
    assert choose(0.9, 100.0) == Effort(2, 9), "0.90 with an error of 0.01 is not 0.90"
    assert choose(0.95, 100.0) == Effort(2, 9)
    assert choose(0.95, 2.0) == EXACT
    assert choose(0.99, 4.0 * PATIENCE) == EXACT, "not reached, and comparing all is not much dearer"
    assert choose(0.99, 4.0 * PATIENCE + 1.0) == Effort(4, 9)
    assert choose(1.0, 1e9) == EXACT
    assert choose(0.95, 1.0, None) == Effort(7, 7)
    assert choose(1.0, 1.0, None) == EXACT
    assert choose(0.5, 100.0, IndexCalibration(1000, 200, ())) == EXACT


@pytest.mark.parametrize("aim", [0.0, -1.0, 1.01, float("nan"), True])
def test_an_aim_that_means_nothing_is_refused(aim: float) -> None:
    with pytest.raises(ValueError, match="aim must be above 0"):
        check_aim(aim)
    with pytest.raises(ValueError, match="aim"):
        LSHIndex(DIM).search(EASY[:1], 1, aim=aim)
    with pytest.raises(ValueError, match="aim"):
        TieredIndex(DIM, make=lambda count: LSHIndex(DIM)).search(EASY[:1], 1, aim=aim)


def test_an_uncalibrated_index_does_what_it_was_made_with() -> None:
    index = make_lsh(EASY[:3000], probes=100, rerank=70)
    assert index.effort(USUAL) == Effort(100, 70)
    assert index.effort(HIGH) == Effort(600, 400)
    usual = index.search(EASY[:5], 10)
    np.testing.assert_array_equal(usual.ids, index.search(EASY[:5], 10, effort=Effort(100, 70)).ids)
    assert efforts_by_aim(index) is None


def test_the_header_keeps_it(tmp_path: Path, easy: LSHIndex) -> None:
    loaded = LSHIndex.load(easy.save(tmp_path / "a.lshindex"))
    assert loaded.calibration == easy.calibration
    assert loaded.effort(HIGH) == easy.effort(HIGH)
    simple = make_lists(EASY[:5000])
    calibrate(simple)
    again = type(simple).load(simple.save(tmp_path / "a.faissindex"))  # type: ignore[attr-defined]
    assert again.calibration == simple.calibration


def test_files_of_before_load_and_count_as_not_calibrated(
    tmp_path: Path, easy: LSHIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "crc32", lambda data, start=0: 0)  # Else another text is a damaged file.
    file = easy.save(tmp_path / "a.lshindex")
    text = json.dumps(easy.calibration.to_text() if easy.calibration else "").encode()
    data = file.read_bytes()
    assert data.count(b'"calibration": ' + text) == 1
    for other in ("", "{}", "[1]", '{"version": 2, "rows": 1, "queries": 1, "rungs": []}', "nonsense"):
        # Of the same length, so that the arrays stay where they are.
        replaced = json.dumps(other).encode()
        replaced += b" " * (len(text) - len(replaced))
        file.write_bytes(data.replace(text, replaced))
        loaded = LSHIndex.load(file)
        assert loaded.calibration is None
        assert needs_calibration(loaded)
        assert loaded.effort(USUAL) == Effort(loaded.probes, loaded.rerank)
    # A file without the entry at all.
    written = files.save_arrays

    def without(path: Any, kind: str, header: Any, arrays: Any) -> Path:
        return written(path, kind, {k: v for k, v in header.items() if k != "calibration"}, arrays)

    monkeypatch.setattr("memory.index.base.save_arrays", without)
    loaded = LSHIndex.load(easy.save(tmp_path / "b.lshindex"))
    assert loaded.calibration is None
    assert len(loaded) == ROWS


def test_text_that_is_damaged_is_no_calibration() -> None:
    known = IndexCalibration(10, 5, (Rung(Effort(3, 4), 0.5, 0.125),))
    assert IndexCalibration.of_text(known.to_text()) == known
    for old, new in (('"rows": 10', '"rows": -1'), ("0.5", "1.5"), ("0.125", "NaN"), ("[3", "[0")):
        assert old in known.to_text()
        assert IndexCalibration.of_text(known.to_text().replace(old, new)) is None


def test_growth_and_loss_make_it_stale() -> None:
    index = make_lsh(EASY[:3000])
    assert needs_calibration(index)
    calibrate(index)
    index.add(EASY[3000:5999], np.arange(3000, 5999))
    assert not needs_calibration(index)
    index.add(EASY[5999:6000], [5999])
    assert needs_calibration(index)
    calibrate(index)
    index.remove(np.arange(3000))
    assert needs_calibration(index)
    index.remove(np.arange(6000))
    assert not needs_calibration(index), "nothing is there to be measured"
    assert not needs_calibration(FlatIndex(DIM))


@pytest.mark.parametrize("rows", [1, 2, 11, 300])
def test_few_rows_and_removed_ones(rows: int) -> None:
    index = make_lsh(EASY[:6000])
    index.remove(np.arange(rows, 6000))
    found = calibrate(index)
    assert (found.rows, found.queries) == (rows, 0 if rows == 1 else min(rows, 250))
    assert index.search(EASY[:1], 1).ids.tolist() == [[0]]
    assert not needs_calibration(index)


def test_tiers_are_measured_as_they_grow() -> None:
    index = TieredIndex(DIM, make=lambda count: LSHIndex(DIM, expected=count), dense=1000, recent=100)
    index.add(EASY[:3000], np.arange(3000))
    assert not index.needs_calibration, "there is no long-term tier yet"
    paused: list[int] = []
    assert index.replace(index.build(lambda: paused.append(1)))
    long_term = index.tiers[1]
    assert long_term is not None
    first = long_term.calibration
    assert first is not None
    assert first.rows == 2900
    assert len(paused) > 15, "the budget of whoever builds holds while it is measured"
    index.add(EASY[3000:6000], np.arange(3000, 6000))
    assert not index.calibrate()
    while index.move(500):
        pass
    assert needs_calibration(long_term)
    assert index.calibrate()
    assert not needs_calibration(long_term)
    assert long_term.calibration is not None
    assert long_term.calibration.rows == 5900
    assert long_term.tail == 0


def test_the_planner_is_told_what_the_index_really_costs(easy: LSHIndex) -> None:
    index = TieredIndex(DIM, make=lambda count: LSHIndex(DIM), dense=1000, recent=0)
    index.adopt(easy)
    assert index.costs(THOROUGH).index_base == easy.price(easy.effort(THOROUGH))
    assert index.costs(USUAL).index_base == easy.price(easy.effort(USUAL)) < exact_price(ROWS)
    small = TieredIndex(DIM, make=lambda count: LSHIndex(DIM), dense=1000, recent=0)
    other = make_lsh(uniform(3000))
    calibrate(other)
    small.adopt(other)
    # The index would compare all: so the planner is to, which knows the filter.
    assert small.costs(THOROUGH).index_base > exact_price(3000)


def test_what_is_reached_is_told(easy: LSHIndex) -> None:
    told = efforts_by_aim(easy)
    assert told is not None
    assert [one.aim for one in told] == list(AIMS)
    for one in told:
        assert one.recall >= one.aim
        assert Effort(one.probes, one.rerank) == easy.effort(one.aim)
        assert one.to_json() == {
            "aim": one.aim, "probes": one.probes, "rerank": one.rerank, "recall": one.recall
        }  # fmt: skip
    small = make_lsh(uniform(3000))
    calibrate(small)
    assert [(one.probes, one.recall) for one in efforts_by_aim(small) or ()] == [(0, 1.0)] * 3
