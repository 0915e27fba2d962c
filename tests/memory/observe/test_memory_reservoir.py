"""The reservoir: shares, what is never dropped, and a day in front of one wall."""

import json
import math
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.config import ReservoirConfig
from memory.observe.reservoir import Decision, Reservoir
from memory.types import Kind, Memory

HOUR_NS = 3600 * 10**9
AXES = np.eye(8, dtype=np.float32)


def offer(reservoir: Reservoir, key: int, **values: object) -> Decision:
    importance = values.pop("importance", 0.5)
    x, y, *_ = values.pop("position", (0.5, 0.5))  # type: ignore[misc]
    memory = Memory(**{"time_ns": 0, "position": (x, y, 0.0), **values})  # type: ignore[arg-type]
    return reservoir.offer(key, memory, importance)  # type: ignore[arg-type]


OFFERS = st.lists(
    st.tuples(
        st.floats(0.0, 1.0),
        st.integers(0, 2),  # window
        st.integers(0, 1),  # place
        st.sampled_from(["", "Car"]),
        st.one_of(st.none(), st.integers(0, 3)),  # direction
        st.booleans().flatmap(lambda first: st.booleans() if first else st.just(False)),  # marked
    ),
    max_size=60,
)


def run(reservoir: Reservoir, offers: list, start: int = 0) -> list[Decision]:
    return [
        offer(
            reservoir,
            start + key,
            importance=importance,
            time_ns=window * HOUR_NS + key,
            position=(5.0 * place, 0.0),
            label=label,
            embedding=None if direction is None else AXES[direction],
            marked=marked,
        )
        for key, (importance, window, place, label, direction, marked) in enumerate(offers)
    ]


def expected_kept(offers: list, share: float, least: int, most: int | None) -> set[int]:
    """The rule written out: everything is looked at again at each step."""
    kept: dict[int, tuple] = {}
    seen: dict[tuple, int] = {}
    for key, (importance, window, place, label, direction, marked) in enumerate(offers):
        neighbours = [k for k in kept if kept[k][2:4] == (place, label) and kept[k][4] == "unique"]
        alike = [k for k in neighbours if direction is None or offers[k][4] == direction]
        unique = not alike
        why = "unique" if unique else "marked" if marked else ""
        seen[place, window] = seen.get((place, window), 0) + 1
        thing = alike[0] if alike else key
        kept[key] = (importance, window, place, label, why, thing)
        here = [k for k in kept if kept[k][1:3] == (window, place)]
        count = Counter(kept[k][5] for k in here)
        room = max(least * len(count), math.floor(share * seen[place, window] + 1e-9))
        room = room if most is None else min(room, most)
        ordinary = [k for k in here if not kept[k][4]]
        if ordinary and len(here) > room:
            largest = max(count[kept[k][5]] for k in ordinary)
            del kept[
                min((k for k in ordinary if count[kept[k][5]] == largest), key=lambda k: (kept[k][0], -k))
            ]
    return set(kept)


@given(OFFERS, st.sampled_from([0.0, 0.1, 0.29, 0.5, 1.0]), st.integers(0, 3), st.sampled_from([None, 3, 5]))
def test_the_same_is_kept_as_by_the_rule_written_out(
    offers: list, share: float, least: int, most: int | None
) -> None:
    reservoir = Reservoir(ReservoirConfig(share=share, least=least, most=most))
    decisions = run(reservoir, offers)
    kept = {key for key, decision in enumerate(decisions) if decision.kept}
    kept -= {decision.evicted for decision in decisions if decision.evicted is not None}
    assert set(reservoir.kept.tolist()) == kept == expected_kept(offers, share, least, most)
    assert len(reservoir) == len(kept)
    assert reservoir.seen == len(offers)


@settings(max_examples=50)
@given(before=OFFERS, after=OFFERS)
def test_a_saved_reservoir_goes_on_as_if_it_had_never_been_away(
    before: list, after: list, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = ReservoirConfig(share=0.2, window_s=3600.0)
    straight, paused = Reservoir(config), Reservoir(config)
    run(straight, before)
    run(paused, before)
    loaded = Reservoir.load(paused.save(tmp_path_factory.mktemp("reservoir") / "state.npz"))
    assert loaded.config == config
    assert repr(run(loaded, after, 1000)) == repr(run(straight, after, 1000))
    np.testing.assert_array_equal(loaded.kept, straight.kept)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(-0.5, 0.95))
def test_whatever_is_dropped_has_something_like_it_that_is_kept(seed: int, below: float) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((120, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    reservoir = Reservoir(ReservoirConfig(share=0.05, unique_below=below))
    for key, vector in enumerate(vectors):
        offer(reservoir, key, embedding=vector * 7.0, importance=rng.random(), time_ns=key * HOUR_NS // 20)
    kept = vectors[reservoir.kept]
    assert (vectors @ kept.T).max(axis=1).min() >= below - 1e-5


def test_hours_in_front_of_one_wall_shrinks_a_hundredfold_and_loses_no_event() -> None:
    rng = np.random.default_rng(7)
    dim, seconds, events = 32, 6 * 3600, 10
    wall = rng.standard_normal(dim)
    wall /= np.linalg.norm(wall)
    scenes = wall + 0.05 * rng.standard_normal((seconds, dim))
    at = np.sort(rng.choice(seconds, events, replace=False))
    for second in at:
        scenes[second] = rng.standard_normal(dim)
    scenes /= np.linalg.norm(scenes, axis=1, keepdims=True)
    reservoir = Reservoir()
    # Events matter least of all here, so that only their being unique can keep them.
    importance = np.where(np.isin(np.arange(seconds), at), 0.0, rng.random(seconds))
    vectors = scenes.astype(np.float32)
    for second in range(seconds):
        place = Memory(
            time_ns=second * 10**9, position=(0.4, 0.6, 0.0), kind="place", embedding=vectors[second]
        )
        reservoir.offer(second, place, float(importance[second]))
    assert len(reservoir) * 100 <= seconds
    assert np.isin(at, reservoir.kept).all()
    place = Memory(time_ns=0, position=(0.4, 0.6, 0.0), kind="place", embedding=vectors[0], marked=True)
    marked = reservoir.offer(seconds, place, 0.0)
    assert marked.kept
    assert str(marked.why) == "marked by the user"


def test_reasons_name_what_decided() -> None:
    reservoir = Reservoir(ReservoirConfig(share=0.5))
    assert str(offer(reservoir, 0, label="Car", embedding=AXES[0]).why) == "the first Car at this place"
    assert "not similar to any" in str(offer(reservoir, 1, label="Car", embedding=AXES[1]).why)
    dropped = offer(reservoir, 2, label="Car", embedding=AXES[1], importance=0.1)
    assert dropped._replace(why=str(dropped.why)) == (
        False,
        None,
        "similar to a kept one, similarity 1.00; of 3 at this place and time, 2 are kept,"
        " and others are more important",
        1.0,
        1,
        None,
    )
    assert offer(reservoir, 3, label="Car").kept is False
    assert offer(reservoir, 4, label="Car").kept is False
    assert str(offer(reservoir, 5, label="Car", importance=0.2).why).endswith("and there is room")
    taken = offer(reservoir, 6, label="Car", importance=0.4)
    assert (taken.kept, taken.evicted) == (True, 5)
    assert str(taken.why).endswith("it is more important than memory 5")
    offer(reservoir, -7, label="Car", importance=0.5)
    assert offer(reservoir, -8, label="Car", importance=0.6).evicted in (6, -7)
    later = [offer(reservoir, -9 - row, label="Car", importance=1.0 + row) for row in range(3)]
    assert any(str(decision.why).endswith("than one that came just before it") for decision in later)
    assert not any("-" in str(decision.why) for decision in later)


def test_places_windows_maps_and_labels_are_apart() -> None:
    reservoir = Reservoir()
    for key, where in enumerate(
        [
            {},
            {"position": (2.5, 0.5)},
            {"position": (-1.75, 0.5)},
            {"map_id": "other"},
            {"label": "Car"},
            {"kind": "event"},
        ]
    ):
        assert "the first" in str(offer(reservoir, key, embedding=AXES[0], **where).why)
    assert not offer(reservoir, 10, embedding=AXES[0]).kept
    assert offer(reservoir, 11, embedding=AXES[0], time_ns=HOUR_NS).kept
    assert offer(reservoir, 12, embedding=AXES[0], time_ns=-1).kept


def test_a_thing_on_the_edge_of_a_square_is_one_thing() -> None:
    reservoir = Reservoir()
    assert offer(reservoir, 0, position=(1.9, 0.5), embedding=AXES[0]).kept
    for key, (x, y) in enumerate([(2.1, 0.5), (2.1, -0.1), (1.9, -0.1), (3.8, 0.5)], 1):
        assert not offer(reservoir, key, position=(x, y), embedding=AXES[0], importance=0.9).kept
    assert offer(reservoir, 5, position=(3.9, 0.5), embedding=AXES[0]).kept
    # A thing stays in the place where it was first seen; of two the more similar counts.
    assert offer(reservoir, 6, position=(2.1, 0.5), embedding=AXES[0], time_ns=HOUR_NS).kept
    assert not offer(reservoir, 7, position=(1.9, 0.5), embedding=AXES[0], time_ns=HOUR_NS).kept


def test_every_thing_keeps_its_best_before_any_keeps_a_second() -> None:
    reservoir = Reservoir(ReservoirConfig(share=0.0, least=1))
    for key, direction in enumerate([0, 1, 2]):
        offer(reservoir, key, embedding=AXES[direction])
    # An hour later, the first thing is seen best, and most often.
    importances = {10: 0.9, 11: 0.8, 12: 0.7, 13: 0.2, 14: 0.1, 15: 0.3}
    directions = {10: 0, 11: 0, 12: 0, 13: 1, 14: 2, 15: 2}
    for key, importance in importances.items():
        offer(reservoir, key, importance=importance, embedding=AXES[directions[key]], time_ns=HOUR_NS)
    assert reservoir.kept.tolist() == [0, 1, 2, 10, 13, 15]
    # Where there is less room than things, the least important goes.
    narrow = Reservoir(ReservoirConfig(share=0.0, least=1, most=2))
    for key, direction in enumerate([0, 1, 2]):
        offer(narrow, key, embedding=AXES[direction])
    for key, importance in importances.items():
        offer(narrow, key, importance=importance, embedding=AXES[directions[key]], time_ns=HOUR_NS)
    assert narrow.kept.tolist() == [0, 1, 2, 10, 15]


def test_what_is_discarded_can_be_unique_again() -> None:
    reservoir = Reservoir()
    offer(reservoir, 1, embedding=AXES[0])
    offer(reservoir, 2, embedding=AXES[1])
    assert not offer(reservoir, 3, embedding=AXES[1]).kept
    reservoir.discard(2)
    assert 2 not in reservoir
    assert "not similar" in str(offer(reservoir, 4, embedding=AXES[1]).why)
    reservoir.discard(1)
    reservoir.discard(4)
    assert len(reservoir) == 0
    assert "the first" in str(offer(reservoir, 5, embedding=AXES[1]).why)
    with pytest.raises(KeyError):
        reservoir.discard(99)


def test_provisional_keys_become_ids() -> None:
    reservoir = Reservoir(ReservoirConfig(share=1.0, most=None))
    for key, direction in ((-1, 0), (-2, 1), (-3, 0)):
        assert offer(reservoir, key, embedding=AXES[direction]).kept
    reservoir.rename({-1: 7, -2: -3, -3: 8})
    assert reservoir.kept.tolist() == [-3, 7, 8]
    reservoir.discard(-3)
    reservoir.discard(8)
    assert reservoir.kept.tolist() == [7]
    assert "not similar" in str(offer(reservoir, 9, embedding=AXES[1]).why)
    with pytest.raises(KeyError):
        reservoir.rename({99: 1})
    with pytest.raises(ValueError, match="must differ"):
        reservoir.rename({7: 9})
    with pytest.raises(ValueError, match="must differ"):
        reservoir.rename({7: 1, 9: 1})


def test_bad_offers_change_nothing() -> None:
    reservoir = Reservoir()
    offer(reservoir, 1, embedding=AXES[0])
    for values, message in (
        ({"key": 1}, "in use"),
        ({"importance": math.nan}, "importance must be finite"),
        ({"position": (math.inf, 0.0)}, "position must be finite"),
        ({"embedding": AXES[0] * 0}, "embedding must not be zero"),
        ({"embedding": np.ones(3)}, "embedding has 3 numbers, those before had 8"),
    ):
        with pytest.raises(ValueError, match=message):
            offer(reservoir, **{"key": 2, **values})  # type: ignore[arg-type]
    assert reservoir.seen == 1
    assert reservoir.kept.tolist() == [1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 1.5}, "share must be"),
        ({"least": 5, "most": 4}, "least <= most"),
        ({"cell_m": 0.0}, "cell_m must be"),
        ({"window_s": math.inf}, "window_s must be"),
        ({"unique_below": 2.0}, "unique_below must be"),
    ],
)
def test_bad_settings_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReservoirConfig(**values)


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    file = Reservoir().save(tmp_path / "state.npz")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        Reservoir.load(file)
    file.write_text("hello")
    with pytest.raises(ValueError, match="damaged"):
        Reservoir.load(file)
    for header, message in (({"format": "x"}, "not a file"), ({"format": "sparsight-reservoir"}, "version")):
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        np.savez(file, header=text, vectors=np.zeros(0, np.float32))
        data = file.read_bytes()
        file.write_bytes(data + b"\ncrc32 %08x\n" % zlib.crc32(data))
        with pytest.raises(ValueError, match=message):
            Reservoir.load(file)
    with pytest.raises(FileNotFoundError):
        Reservoir.load(tmp_path / "none.npz")


def test_events_with_a_pause_between_them_are_several(tmp_path: Path) -> None:
    reservoir = Reservoir(ReservoirConfig(share=0.0, least=1, event_gap_s=60.0))

    def offer(key: int, second: int, kind: Kind = "event") -> Decision:
        fall = Memory(time_ns=second * 10**9, position=(0, 0, 0), kind=kind, label="fall", embedding=AXES[0])
        return reservoir.offer(key, fall, 0.5)

    falls = [*range(0, 50, 10), *range(200, 260, 10), *range(900, 905)]
    kept = [offer(key, second).kept for key, second in enumerate(falls)]
    assert [second for second, one in zip(falls, kept, strict=True) if one] == [0, 200, 900]
    reservoir = Reservoir.load(reservoir.save(tmp_path / "reservoir.npz"))
    assert not offer(100, 910).kept
    again = offer(101, 1000)
    assert again.kept
    assert "a new event" in str(again.why)
    assert [offer(200 + second, 2000 + second, "object").kept for second in (0, 300)] == [True, False]
