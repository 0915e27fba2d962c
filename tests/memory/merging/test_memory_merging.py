"""Merging: which memories are the same thing, against a comparison of all pairs."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import Filter, MemoryStore
from memory.merging import MergeOptions, propose_merges
from memory.merging.clustering import same_thing
from memory.merging.matching import CHI2_99, Features, compare, mahalanobis_squared
from memory.types import Memory


def scene(seed: int, count: int, *, spread: float, dim: int = 4, framed: bool = False) -> list[Memory]:
    """Sights of a few things with noise, out of order."""
    rng = np.random.default_rng(seed)
    things = rng.uniform(-spread, spread, (max(1, count // 5), 3)) * [1.0, 1.0, 0.05]
    looks = rng.normal(size=(len(things), dim))
    found = []
    for number in range(count):
        thing = rng.integers(len(things))
        root = rng.normal(scale=0.3, size=(3, 3))
        vector = looks[thing] + 0.3 * rng.normal(size=dim)
        found.append(
            Memory(
                id=int(number),
                time_ns=int(rng.integers(10)),
                provenance="detector" if framed else "",
                position=tuple(things[thing] + rng.normal(scale=0.3, size=3)),
                covariance=root @ root.T if rng.random() < 0.7 else None,
                map_id="ab"[int(thing) % 2],
                label=["Car", "", "Cup"][int(thing) % 3],
                embedding=vector.astype(np.float32) if rng.random() < 0.8 else None,
                count=int(rng.integers(1, 4)),
            )
        )
    return found


def could_be_same(a: Memory, b: Memory, options: MergeOptions) -> tuple[bool, float]:
    """The rule of one pair, written out."""

    def trusted(memory: Memory) -> np.ndarray:
        matrix = memory.covariance
        if matrix is None:
            matrix = np.eye(3) * options.default_sigma_m**2 / memory.count
        values, vectors = np.linalg.eigh(matrix)
        return vectors @ np.diag(np.maximum(values, options.floor_sigma_m**2)) @ vectors.T

    offset = np.array(a.position) - np.array(b.position)
    squared = float(offset @ np.linalg.inv(trusted(a) + trusted(b)) @ offset)
    same = (a.map_id, a.kind, a.label) == (b.map_id, b.kind, b.label)
    same = same and squared <= options.gate and math.dist(a.position, b.position) <= options.max_distance_m
    if a.embedding is not None and b.embedding is not None:
        cosine = a.embedding @ b.embedding / np.linalg.norm(a.embedding) / np.linalg.norm(b.embedding)
        same = same and bool(cosine >= options.least_similarity)
    else:
        same = same and a.label != ""
    if a.provenance and (a.time_ns, a.provenance) == (b.time_ns, b.provenance):
        same = False
    return same, squared


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 20), st.sampled_from([0.5, 3.0, 40.0]), st.booleans())
def test_compare_is_the_rule_of_all_pairs(seed: int, count: int, spread: float, framed: bool) -> None:
    memories = scene(seed, count, spread=spread, framed=framed)
    options = MergeOptions()
    first, second = (index.ravel() for index in np.indices((count, count)))
    match = compare(Features.of(memories, options), first, second, options)
    for a, b, same, squared in zip(first, second, match.same, match.distance_squared, strict=True):
        expected, distance = could_be_same(memories[a], memories[b], options)
        assert same == expected
        if expected:
            assert squared == pytest.approx(distance, rel=1e-6, abs=1e-9)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.sampled_from([0.5, 3.0, 40.0]))
def test_clusters_are_those_found_one_memory_after_the_other(seed: int, count: int, spread: float) -> None:
    memories = scene(seed, count, spread=spread)
    options = MergeOptions()
    order = np.random.default_rng(seed).permutation(count)
    clusters = same_thing(Features.of(memories, options), options, order)
    leaders: list[int] = []
    for row in order.tolist():
        if not any(could_be_same(memories[row], memories[k], options)[0] for k in leaders):
            leaders.append(row)
    assert set(clusters.leader.tolist()) == set(leaders)
    for row in range(count):
        if row in leaders:
            assert clusters.leader[row] == row
            continue
        pairs = {k: could_be_same(memories[row], memories[k], options) for k in leaders}
        fitting = {k: distance for k, (same, distance) in pairs.items() if same}
        assert clusters.leader[row] == min(fitting, key=lambda k: fitting[k])
        assert clusters.distance_squared[row] == pytest.approx(min(fitting.values()), rel=1e-6, abs=1e-9)


def test_at_equal_distance_the_earlier_leader_wins() -> None:
    memories = [
        Memory(time_ns=1, label="Cup", position=(x, 0.0, 0.0), covariance=np.eye(3) * 0.02)
        for x in (0, 0.5, 1)
    ]
    options = MergeOptions()
    features = Features.of(memories, options)
    for order, leader in (([0, 2, 1], [0, 0, 2]), ([2, 0, 1], [0, 2, 2]), ([1, 0, 2], [1, 1, 1])):
        assert same_thing(features, options, np.array(order)).leader.tolist() == leader


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.sampled_from([0.5, 3.0]))
def test_no_two_of_one_frame_become_one(seed: int, count: int, spread: float) -> None:
    memories = scene(seed, count, spread=spread, framed=True)
    options = MergeOptions()
    clusters = same_thing(Features.of(memories, options), options, np.arange(count))
    places = [(int(leader), memories[row].time_ns) for row, leader in enumerate(clusters.leader)]
    assert len(set(places)) == len(places)
    assert (clusters.leader[clusters.leader] == clusters.leader).all()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_proposals_do_not_depend_on_the_order_and_hold_each_memory_once(seed: int, framed: bool) -> None:
    memories = scene(seed, 40, spread=2.0, framed=framed)
    proposals = propose_merges(memories)
    mixed = [memories[row] for row in np.random.default_rng(seed).permutation(40)]
    again = propose_merges(mixed)
    assert [proposal.ids for proposal in again] == [proposal.ids for proposal in proposals]
    assert [proposal.result for proposal in again] == [proposal.result for proposal in proposals]
    ids = [number for proposal in proposals for number in proposal.ids]
    assert len(set(ids)) == len(ids)
    by_id = {memory.id: memory for memory in memories}
    for proposal in proposals:
        assert proposal.result.count == sum(by_id[number].count for number in proposal.ids)


def test_one_thing_becomes_one_and_says_why() -> None:
    vector = np.array([1.0, 0.0], np.float32)
    memories = [
        Memory(id=10, time_ns=1, label="Cup", position=(0.0, 0.0, 0.0), embedding=vector),
        Memory(id=3, time_ns=2, label="Cup", position=(0.6, 0.0, 0.0), embedding=vector * 2),
        Memory(id=4, time_ns=3, label="Cup", position=(30.0, 0.0, 0.0), embedding=vector),
        Memory(id=5, time_ns=3, label="Car", position=(0.0, 0.0, 0.0), embedding=vector),
        Memory(id=6, time_ns=3, label="Cup", position=(0.0, 0.0, 0.0), map_id="yard", embedding=vector),
        Memory(id=7, time_ns=3, label="Cup", position=(0.3, 0.0, 0.0), embedding=vector[::-1]),
    ]
    (proposal,) = propose_merges(memories)
    assert proposal.ids == (3, 10)
    assert proposal.result.position == pytest.approx((0.3, 0.0, 0.0))
    assert str(proposal.why) == (
        "2 memories of kind object and label 'Cup' within 1.41 standard deviations of one place in map"
        " 'default', similarity at least 1.00"
    )


def test_a_row_of_parked_cars_stays_a_row() -> None:
    cars = [
        Memory(id=10 * car + look, time_ns=look, label="Car", position=(1.2 * car, 0.02 * look, 0.0))
        for car in range(20)
        for look in range(3)
    ]
    proposals = propose_merges(cars, MergeOptions(default_sigma_m=0.2))
    assert [proposal.ids for proposal in proposals] == [
        (10 * car, 10 * car + 1, 10 * car + 2) for car in range(20)
    ]


def test_two_people_side_by_side_stay_two() -> None:
    """Closer to each other than the gate, but always seen both in one frame."""
    rng = np.random.default_rng(0)
    people = [
        Memory(
            id=2 * frame + person,
            time_ns=frame,
            provenance="detector",
            label="Pedestrian",
            position=(0.8 * person + rng.normal(scale=0.05), rng.normal(scale=0.05), 0.0),
        )
        for frame in range(50)
        for person in range(2)
    ]
    proposals = propose_merges(people)
    assert [len(proposal.ids) for proposal in proposals] == [50, 50]
    assert all(len({number % 2 for number in proposal.ids}) == 1 for proposal in proposals)
    together = propose_merges(people, MergeOptions(distinct_in_frame=False))
    assert len(together) == 1


def test_events_notes_and_what_nothing_says_is_alike_are_left() -> None:
    for values in ({"kind": "event", "label": "door"}, {"kind": "note", "label": "door"}, {"label": ""}):
        memories = [Memory(id=i, time_ns=i, position=(0, 0, 0), **values) for i in range(3)]  # type: ignore[arg-type]
        assert propose_merges(memories) == []
    events = [Memory(id=i, time_ns=i, position=(0, 0, 0), kind="event", label="door") for i in range(3)]
    assert len(propose_merges(events, MergeOptions(kinds=("event",)))) == 1


def test_one_pass_leaves_nothing_for_a_second_where_things_are_far_apart() -> None:
    rng = np.random.default_rng(5)
    memories = [
        Memory(
            id=number,
            time_ns=number,
            label="Cup",
            position=(20.0 * (number % 7) + rng.normal(scale=0.1), rng.normal(scale=0.1), 0.0),
            covariance=np.eye(3) * 0.09,
        )
        for number in range(70)
    ]
    proposals = propose_merges(memories)
    assert len(proposals) == 7
    merged = [dataclasses.replace(proposal.result, id=i) for i, proposal in enumerate(proposals)]
    assert propose_merges(merged) == []


def test_positions_of_any_size_are_compared_without_warning() -> None:
    memories = [
        Memory(id=i, time_ns=i, label="Cup", position=(x, y, 0.0))
        for i, (x, y) in enumerate([(1e308, -1e308), (-1e308, 1e308), (1e16, 0.0), (1e16, 0.0), (0.0, 0.0)])
    ]
    assert [proposal.ids for proposal in propose_merges(memories)] == [(2, 3)]


def test_far_cells_do_not_hide_near_ones() -> None:
    """Neighbours on both sides of a cell's edge, among cells that are far away."""
    memories = [
        Memory(id=2 * i + j, time_ns=j, label="Cup", position=(x + 0.01 * j, -x + 0.01 * j, 0.0))
        for i, x in enumerate(np.linspace(-3e4, 3e4, 400))
        for j in range(2)
    ]
    assert len(propose_merges(memories)) == 400


def parked(at_s: float, axis: int, x: float = 0.0, **values: object) -> Memory:
    """A car of 1.5 m at least, that looks different from each side."""
    fields = {"payload": {"size_m": [4.0, 1.6, 1.5]}, "label": "Car", **values}
    vector = np.eye(4, dtype=np.float32)[axis]
    return Memory(time_ns=round(at_s * 1e9), position=(x, 0.0, 0.0), embedding=vector, **fields)  # type: ignore[arg-type]


def test_two_solid_things_are_not_in_one_place_however_unlike_they_look() -> None:
    def merged(*memories: Memory) -> int:
        return len(propose_merges([dataclasses.replace(m, id=at) for at, m in enumerate(memories)]))

    assert merged(parked(0, 0), parked(40, 1, 0.15)) == 1
    assert merged(parked(0, 0), parked(40, 1, 0.8)) == 0, "beyond half of the shortest side"
    assert merged(parked(0, 0), parked(86_400, 1, 0.15)) == 0, "another car may have come overnight"
    assert merged(parked(0, 0), parked(86_400, 0, 0.15)) == 1
    assert merged(parked(0, 0), parked(40, 1, 0.15, label="Van")) == 0
    assert merged(parked(0, 0), parked(40, 1, 0.15, payload={})) == 0, "nothing is known of its size"
    assert merged(parked(0, 0, label=""), parked(40, 1, 0.15, label="")) == 0
    together = {"size_m": [4.0, 1.6, 1.5], "tracks": {"drive/1": [0, 50 * 10**9]}}
    beside = {"size_m": [4.0, 1.6, 1.5], "tracks": {"drive/2": [0, 50 * 10**9]}}
    assert merged(parked(50, 0, payload=together), parked(50, 1, 0.15, payload=beside)) == 1, "a double"
    assert merged(parked(50, 0, payload=together), parked(50, 1, 0.7, payload=beside)) == 0
    gone = parked(0, 0, state="gone")
    assert merged(gone, parked(40, 1, 0.15)) == 0, "it had left"


def test_consolidation_goes_on_until_solid_things_are_one(tmp_path: Path) -> None:
    """A second sight looks like the first alone, and the third, of the next day, like the second alone."""
    with MemoryStore.open(tmp_path / "store", dim=4) as store:
        store.add([parked(0, 0), parked(40, 1, 0.1), parked(86_400, 1, 0.2), parked(86_440, 2, 0.1)])
        store.consolidate()
        (left,) = store.find(Filter())
        assert left.count == 4


def test_a_hundred_thousand_sights_of_ten_thousand_things() -> None:
    rng = np.random.default_rng(1)
    count, things = 100_000, 10_000
    side = 100
    centre = np.column_stack([np.arange(things) % side, np.arange(things) // side]) * 4.0
    thing = np.arange(count) % things
    position = np.zeros((count, 3))
    position[:, :2] = centre[thing] + rng.normal(scale=0.1, size=(count, 2))
    features = Features(
        group=np.zeros(count, dtype=np.int64),
        position=position,
        covariance=np.broadcast_to(np.eye(3) * 0.09, (count, 3, 3)),
        embedding=np.ones((count, 1), dtype=np.float32),
        frame=np.full(count, -1),
        named=np.ones(count, dtype=bool),
        half_side_m=np.zeros(count),
        seen_ns=np.zeros((count, 2), np.int64),
        tracks=((),) * count,
    )
    order = rng.permutation(count)
    clusters = same_thing(features, MergeOptions(), order)
    thing = order[np.unique(thing[order], return_index=True)[1]][thing]
    np.testing.assert_array_equal(clusters.leader, thing)


@given(st.integers(0, 2**32 - 1))
def test_mahalanobis_distance_is_that_of_a_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(9, 3, 3)) * 10.0 ** rng.uniform(-2, 2, (9, 1, 3))
    matrices = roots @ roots.transpose(0, 2, 1) + 1e-3 * np.eye(3)
    offsets = rng.normal(size=(9, 3))
    expected = [a @ np.linalg.solve(m, a) for m, a in zip(matrices, offsets, strict=True)]
    np.testing.assert_allclose(mahalanobis_squared(offsets, matrices), expected, rtol=1e-5)


def test_a_position_known_in_one_direction_only_gives_a_finite_distance() -> None:
    direction = np.array([1.0, 1.0, 1.0]) / math.sqrt(3.0)
    line = 1e18 * np.outer(direction, direction) + 1e-4 * np.eye(3)
    found = mahalanobis_squared(np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0]]), np.stack([line, line]))
    assert np.isfinite(found).all()


def test_the_gate_is_the_quantile_of_chi_square() -> None:
    from scipy.stats import chi2

    assert pytest.approx(chi2.ppf(0.99, 3), rel=1e-12) == CHI2_99


def test_too_few_memories_are_no_merge() -> None:
    assert propose_merges([]) == []
    assert propose_merges([Memory(id=1, time_ns=1, label="Cup")]) == []


def test_memories_without_ids_of_their_own_are_refused() -> None:
    with pytest.raises(ValueError, match="needs an id"):
        propose_merges([Memory(time_ns=1), Memory(time_ns=1, id=1)])
    with pytest.raises(ValueError, match="unique"):
        propose_merges([Memory(time_ns=1, id=1), Memory(time_ns=1, id=1)])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gate": 0.0}, "gate must be"),
        ({"max_distance_m": math.inf}, "max_distance_m must be"),
        ({"least_similarity": 1.5}, "least_similarity must be"),
        ({"kinds": ("thing",)}, "kinds must be one of"),
    ],
)
def test_bad_options_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MergeOptions(**values)
