"""Measures of tracks.

The expected figures are those of eval-ab-3d-mot 2.3.0 and trackeval 1.3.0 on the random sequences of
conftest.py; test_oracles.py compares all of them where both are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perception.data.kitti.tracking import read_tracks, write_tracks
from perception.errors import DataError
from perception.track.evaluation import clear_measures, hota_measures, load_sequences

Write = Callable[[Path, int], tuple[Path, Path]]

EXPECTED = [
    (
        0,
        "car",
        {
            "samota": 0.846896165,
            "amota": 0.456250000,
            "amotp": 0.611184032,
            "mota": 0.750000000,
            "motp": 0.664224678,
            "id_switches": 3,
            "fragments": 3,
            "hota": 0.550418680,
            "deta": 0.535353353,
            "assa": 0.575192817,
            "loca": 0.794554552,
        },
    ),
    (
        0,
        "pedestrian",
        {
            "samota": 0.000000000,
            "amota": -0.006250000,
            "amotp": 0.012553334,
            "mota": -1.750000000,
            "motp": 0.290594170,
            "id_switches": 0,
            "fragments": 0,
            "hota": 0.505176695,
            "deta": 0.302587276,
            "assa": 0.849248120,
            "loca": 0.906753674,
        },
    ),
    (
        1,
        "car",
        {
            "samota": 0.667047504,
            "amota": 0.322727273,
            "amotp": 0.547806744,
            "mota": 0.636363636,
            "motp": 0.661797591,
            "id_switches": 2,
            "fragments": 5,
            "hota": 0.481626187,
            "deta": 0.453255983,
            "assa": 0.518471129,
            "loca": 0.820375759,
        },
    ),
    (
        1,
        "pedestrian",
        {
            "samota": 0.050000000,
            "amota": 0.009375000,
            "amotp": 0.062733087,
            "mota": 0.250000000,
            "motp": 0.437319175,
            "id_switches": 0,
            "fragments": 0,
            "hota": 0.259853783,
            "deta": 0.191186299,
            "assa": 0.363269284,
            "loca": 0.811525959,
        },
    ),
]


@pytest.mark.parametrize(("seed", "label", "expected"), EXPECTED)
def test_figures_of_the_programs_that_define_them(
    seed: int, label: str, expected: dict[str, float], write_sequences: Write, tmp_path: Path
) -> None:
    pairs = load_sequences(*write_sequences(tmp_path / "data", seed))
    found = clear_measures(pairs, label).to_dict() | hota_measures(pairs, label).to_dict()
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-8)


def perfect(labels: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in (labels / "label_02").iterdir():
        rows = [line for line in path.read_text().splitlines() if "DontCare" not in line]
        (folder / path.name).write_text("".join(f"{row} 1.0\n" for row in rows))
    return folder


def test_labels_as_results_are_perfect(write_sequences: Write, tmp_path: Path) -> None:
    labels, _ = write_sequences(tmp_path / "data", 3)
    pairs = load_sequences(labels, perfect(labels, tmp_path / "perfect"))
    found, hota = clear_measures(pairs, "Car"), hota_measures(pairs, "Car")
    assert (found.mota, found.false_positives, found.id_switches, found.fragments) == (1.0, 0, 0, 0)
    assert found.motp == pytest.approx(1.0)
    assert hota.hota == pytest.approx(1.0)


def test_nothing_found_and_nothing_labelled(write_sequences: Write, tmp_path: Path) -> None:
    labels, results = write_sequences(tmp_path / "data", 3)
    for path in results.iterdir():
        path.write_text("")
    pairs = load_sequences(labels, results)
    assert clear_measures(pairs, "Car").samota == 0.0
    assert hota_measures(pairs, "Car").hota == 0.0
    assert clear_measures(pairs, "Tram").labels == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0 1 Car -1 -1 0 1 2 3 4 1 1 1 0 0 9", "line 1: 16 fields"),
        ("0 1 Car -1 -1 0 1 2 3 4 1 1 1 0 0 9 nan 1", "rotation_y is 'nan'"),
        ("-2 1 Car -1 -1 0 1 2 3 4 1 1 1 0 0 9 0 1", "frame is -2"),
        ("0 1 Car -1 -1 0 1 2 3 4 1 1 1 0 0 9 0", "without a score"),
        ("99 1 Car -1 -1 0 1 2 3 4 1 1 1 0 0 9 0 1", "beyond the end"),
        ("0 1 Car -1 -1 0 1 2 3 4 1 1 1 0 0 9 0 1\n" * 2, "twice"),
    ],
)
def test_damaged_results_are_named(line: str, said: str, write_sequences: Write, tmp_path: Path) -> None:
    labels, results = write_sequences(tmp_path / "data", 3)
    (results / "0004.txt").write_text(line)
    with pytest.raises(DataError, match=said) as raised:
        load_sequences(labels, results)
    assert "0004.txt" in str(raised.value)


def test_tracks_are_read_as_they_were_written(write_sequences: Write, tmp_path: Path) -> None:
    _, results = write_sequences(tmp_path / "data", 5)
    rows = read_tracks(results / "0001.txt")
    write_tracks(tmp_path / "again.txt", rows)
    again = read_tracks(tmp_path / "again.txt")
    assert len(again) == len(rows)
    assert sorted(again.location[:, 0].tolist()) == pytest.approx(sorted(rows.location[:, 0].tolist()))
    assert set(again.type.tolist()) == set(rows.type.tolist())
