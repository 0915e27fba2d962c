"""Areas travel with memories: once, in both directions; names that both sides changed are reported."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_thread import serving

from memory import Memory, MemoryStore
from memory.cli import main
from memory.errors import DataError
from memory.merging.motion import Motion
from memory.questions import Questions
from memory.questions.replying import reply
from memory.serve.routes import sync as routes
from memory.sync import Inbox, Outbox, pull, sync
from memory.sync.areas import AreaMessage, AreaReport, SentArea, words_of
from memory.sync.service import ServiceClient

Open = Callable[[str], MemoryStore]
BOX, OTHER = (0.0, 0.0, 4.0, 3.0), (10.0, 0.0, 14.0, 3.0)


def place(x: float, y: float = 0.0, **more: object) -> Memory:
    return Memory(time_ns=10**9, position=(x, y, 0.0), kind="place", **more)  # type: ignore[arg-type]


def send(source: MemoryStore, target: MemoryStore, robot: str = "robot-1") -> AreaReport:
    return sync(Outbox(source.database, robot), Inbox(target.database)).areas


def fetch(source: MemoryStore, robot: MemoryStore) -> AreaReport:
    return pull(source.database, robot.database).areas


def names(store: MemoryStore) -> list[str]:
    return [area.name for area in store.areas()]


def counts(report: AreaReport) -> tuple[int, int, list[tuple[str, str]]]:
    return report.set, report.removed, report.conflicts


def test_an_area_arrives_once_and_follows_what_becomes_of_it(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    robot.add([place(1), Memory(time_ns=10**9, position=(2, 1, 0), label="cup")])
    robot.set_area("kitchen", box=BOX)
    assert counts(send(robot, shared)) == (1, 0, [])
    assert shared.areas()[0].polygon == robot.areas()[0].polygon
    found = reply(Questions(shared), Questions(shared).understand("what is in the kitchen?", 2 * 10**9))
    assert "cup" in found.sentence
    generation = shared.generation
    assert counts(send(robot, shared)) == (0, 0, [])
    assert shared.generation == generation
    robot.set_area("Kitchen", box=OTHER)
    assert counts(send(robot, shared)) == (1, 0, [])
    assert [(area.name, area.polygon[0]) for area in shared.areas()] == [("Kitchen", (10.0, 0.0))]
    robot.remove_area("kitchen")
    assert counts(send(robot, shared)) == (0, 1, [])
    assert names(shared) == []
    assert counts(send(robot, shared)) == (0, 0, [])


def test_areas_travel_between_robots_in_both_directions(stores: Open, shared: MemoryStore) -> None:
    first, second = stores("first"), stores("second")
    for robot in (first, second):
        robot.add([place(1)])
    first.set_area("kitchen", box=BOX)
    send(first, shared, "first")
    send(second, shared, "second")
    assert counts(fetch(shared, second)) == (1, 0, [])
    assert counts(fetch(shared, second)) == (0, 0, [])
    assert counts(fetch(shared, first)) == (0, 0, [])
    # The second robot corrects it, and the first one gets that.
    second.set_area("kitchen", box=OTHER)
    assert counts(send(second, shared, "second")) == (1, 0, [])
    assert counts(send(first, shared, "first")) == (0, 0, [])
    assert counts(fetch(shared, first)) == (1, 0, [])
    assert first.areas()[0].polygon == second.areas()[0].polygon == shared.areas()[0].polygon
    # And back again: the first one changes what it got.
    first.set_area("kitchen", box=BOX)
    assert counts(send(first, shared, "first")) == (1, 0, [])
    assert counts(fetch(shared, second)) == (1, 0, [])
    assert second.areas()[0].polygon[0] == (0.0, 0.0)
    second.remove_area("kitchen")
    assert counts(send(second, shared, "second")) == (0, 1, [])
    assert counts(fetch(shared, first)) == (0, 1, [])
    assert names(first) == names(shared) == []


def test_a_name_that_both_set_is_a_conflict_until_one_gives_way(stores: Open, shared: MemoryStore) -> None:
    first, second = stores("first"), stores("second")
    for robot, box in ((first, BOX), (second, OTHER)):
        robot.add([place(1)])
        robot.set_area("kitchen", box=box)
    assert counts(send(first, shared, "first")) == (1, 0, [])
    for _ in range(2):
        assert counts(send(second, shared, "second")) == (0, 0, [("kitchen", "default")])
        assert counts(fetch(shared, second)) == (0, 0, [("kitchen", "default")])
    assert shared.areas()[0].polygon[0] == (0.0, 0.0)
    assert second.areas()[0].polygon[0] == (10.0, 0.0)
    second.remove_area("kitchen")
    assert counts(send(second, shared, "second")) == (0, 0, [])
    assert counts(fetch(shared, second)) == (1, 0, [])
    assert second.areas()[0].polygon[0] == (0.0, 0.0)


def test_the_same_area_on_both_sides_is_no_conflict(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    for store in (robot, shared):
        store.add([place(1)])
        store.set_area("kitchen", box=BOX)
    assert counts(send(robot, shared)) == (0, 0, [])


def test_a_change_on_both_sides_after_an_exchange_is_a_conflict(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    robot.add([place(1)])
    robot.set_area("kitchen", box=BOX)
    send(robot, shared)
    shared.set_area("kitchen", box=(0, 0, 5, 5))
    assert counts(send(robot, shared)) == (0, 0, [])
    robot.set_area("kitchen", box=OTHER)
    assert counts(send(robot, shared)) == (0, 0, [("kitchen", "default")])
    assert shared.areas()[0].polygon[2] == (5.0, 5.0)


def test_what_was_removed_or_undone_there_does_not_come_back(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    robot.add([place(1)])
    robot.set_area("kitchen", box=BOX)
    send(robot, shared)
    shared.undo(shared.generation)
    assert names(shared) == []
    assert counts(send(robot, shared)) == (0, 0, [])
    assert names(shared) == []


def test_places_are_those_that_arrived_and_come_back_by_their_own_numbers(
    stores: Open, shared: MemoryStore
) -> None:
    shared.add([place(90 + number) for number in range(5)])
    robot = stores("robot")
    ids = robot.add([place(1), place(2), place(30)])
    robot.set_area("bay 3", places=[ids[0] or 0, ids[1] or 0], radius_m=2.0)
    assert counts(send(robot, shared)) == (1, 0, [])
    (area,) = shared.areas()
    assert sorted(area.places or {}) == [6, 7]
    assert sorted((area.places or {}).values()) == [(1.0, 0.0), (2.0, 0.0)]
    assert area.radius_m == 2.0
    # Somebody adds the third place there; the robot gets its own number back.
    shared.set_area("bay 3", places=[6, 7, 8], radius_m=2.0)
    assert counts(fetch(shared, robot)) == (1, 0, [])
    assert sorted(robot.areas()[0].places or {}) == ids
    assert counts(send(robot, shared)) == (0, 0, [])


def test_an_area_waits_for_its_places(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    (id,) = robot.add([place(1)])
    robot.set_area("bay", places=[id or 0])
    message = Outbox(robot.database, "robot").areas(shared.database.store)
    report = Inbox(shared.database).take_areas(message)
    assert (report.set, report.waiting) == (0, 1)
    assert "1 areas wait" in words_of(report)[0]
    assert counts(send(robot, shared)) == (1, 0, [])


def test_corners_follow_the_alignment_of_the_map(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    corners = [(0, 0), (6, 0), (6, 2), (0, 5), (9, 9)]
    robot.add([Memory(time_ns=10**9, position=(x, y, 0), label=f"thing {x}{y}") for x, y in corners])
    shared.add([Memory(time_ns=10**9, position=(10 - y, x, 0), label=f"thing {x}{y}") for x, y in corners])
    send(robot, shared)
    shared.align("robot-1", map_id="default", frame=Motion(math.pi / 2, 10.0, 0.0))
    robot.set_area("bay", box=(0, 0, 6, 2))
    assert counts(send(robot, shared)) == (1, 0, [])
    (area,) = shared.areas()
    expected = [(10, 0), (10, 6), (8, 6), (8, 0)]
    assert all(math.dist(a, b) < 0.01 for a, b in zip(area.polygon, expected, strict=True))
    assert counts(fetch(shared, robot)) == (0, 0, [])
    assert robot.areas()[0].polygon[1] == (6.0, 0.0)


def test_only_areas_of_the_robots_maps_are_pulled(stores: Open, shared: MemoryStore) -> None:
    robot = stores("robot")
    robot.add([place(1, map_id="yard")])
    shared.add([place(1, map_id="yard"), place(1, map_id="house")])
    shared.set_area("bay", box=BOX, map_id="yard")
    shared.set_area("kitchen", box=BOX, map_id="house")
    assert counts(fetch(shared, robot)) == (1, 0, [])
    assert names(robot) == ["bay"]


def test_a_message_survives_json_and_a_wrong_one_is_refused(stores: Open) -> None:
    robot = stores("robot")
    ids = robot.add([place(1), place(2)])
    robot.set_area("bay", places=[ids[0] or 0])
    robot.set_area("kitchen", box=BOX)
    robot.remove_area("kitchen")
    message = Outbox(robot.database, "robot").areas("other")
    assert AreaMessage.of_json(json.loads(json.dumps(message.to_json()))) == message
    assert [isinstance(sent, SentArea) and sent.area is None for sent in message.areas] == [False, True]
    good = message.to_json()
    for wrong in (
        {**good, "areas": [{"name": "x"}]},
        {**good, "areas": [{**good["areas"][0], "name": ""}]},
        {**good, "areas": [{**good["areas"][0], "area": {"polygon": [[0, 0]]}}]},
        {**good, "generation": "1"},
    ):
        with pytest.raises(DataError, match="areas: "):
            AreaMessage.of_json(wrong)


@contextlib.contextmanager
def client_of_service(folder: Path) -> Iterator[tuple[ServiceClient, MemoryStore]]:
    """Yield a client of a running service, and its store."""
    with (
        MemoryStore.open(folder, dim=8) as store,
        serving(store) as address,
        contextlib.closing(ServiceClient(address)) as client,
    ):
        yield client, store


def test_areas_travel_over_http(stores: Open, tmp_path: Path) -> None:
    robot, other = stores("robot"), stores("other")
    ids = robot.add([place(1), place(2)])
    other.add([place(1)])
    robot.set_area("kitchen", box=BOX)
    robot.set_area("bay", places=[ids[1] or 0])
    conflict = (0, 0, [("kitchen", "default")])
    with client_of_service(tmp_path / "served") as (client, served):
        assert counts(sync(Outbox(robot.database, "robot"), client).areas) == (2, 0, [])
        assert counts(sync(Outbox(robot.database, "robot"), client).areas) == (0, 0, [])
        assert names(served) == ["bay", "kitchen"]
        assert counts(pull(client, other.database).areas) == (2, 0, [])
        other.set_area("kitchen", box=OTHER)
        robot.set_area("kitchen", box=(0, 0, 1, 1))
        assert counts(sync(Outbox(other.database, "other"), client).areas) == (1, 0, [])
        assert counts(sync(Outbox(robot.database, "robot"), client).areas) == conflict
        assert counts(pull(client, robot.database).areas) == conflict


def test_a_service_of_an_earlier_release_still_takes_memories(
    stores: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [route for route in routes.router.routes if "/areas/" not in route.path]  # type: ignore[attr-defined]
    assert len(kept) < len(routes.router.routes)
    monkeypatch.setattr(routes.router, "routes", kept)
    robot = stores("robot")
    robot.add([place(1)])
    robot.set_area("kitchen", box=BOX)
    with client_of_service(tmp_path / "served") as (client, served):
        report = sync(Outbox(robot.database, "robot"), client)
        assert (report.added, report.areas.supported, names(served)) == (1, False, [])
        assert not pull(client, robot.database).areas.supported
    assert "earlier release" in words_of(report.areas)[0]


def test_the_command_reports_areas_and_conflicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for name, box in (("one", BOX), ("two", OTHER), ("all", None)):
        with MemoryStore.open(tmp_path / name, dim=2) as store:
            store.add([place(1)])
            if box is not None:
                store.set_area("kitchen", box=box)
    assert main(["sync", str(tmp_path / "one"), str(tmp_path / "all")]) == 0
    assert "sent as one: 1 new memory, 1 area set" in capsys.readouterr().out
    again = ["sync", str(tmp_path / "two"), str(tmp_path / "all"), "--pull"]
    with caplog.at_level(logging.WARNING):
        assert main(again) == 0
    (warned,) = [record.message for record in caplog.records if "kitchen" in record.message]
    assert "each keeps its own. Remove it in one of them" in warned
    capsys.readouterr()
    assert main([*again, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    conflicts = [found[way]["areas"]["conflicts"] for way in ("sent", "pulled")]
    assert conflicts == [[["kitchen", "default"]]] * 2
