"""Areas of a store: set, queried, undone, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memory import Filter, Memory, MemoryStore, Query
from memory.errors import UnknownAreaError, UnknownMemoryError


def thing(label: str, x: float, y: float, **more: object) -> Memory:
    return Memory(time_ns=1, position=(x, y, 0), label=label, embedding=np.eye(4)[0], **more)


def ids_of(store: MemoryStore, **parts: object) -> list[int | None]:
    return sorted(hit.memory.id for hit in store.query(Query(k=50, **parts)))


def test_an_area_limits_every_kind_of_query(location: Path | str) -> None:
    with MemoryStore.open(location, dim=4) as store:
        mug, plate, _ = store.add([thing("mug", 1, 1), thing("plate", 2, 2), thing("mug", 9, 9)])
        store.set_area("Kitchen", box=(0, 0, 4, 3))
        assert ids_of(store, area="kitchen") == [mug, plate]
        assert ids_of(store, area="kitchen", labels=["mug"]) == [mug]
        assert ids_of(store, area="kitchen", text="mug") == [mug]
        assert ids_of(store, area="kitchen", embedding=np.eye(4)[0]) == [mug, plate]
        assert ids_of(store, area="kitchen", like=mug) == [plate]
        assert store.count(Filter(area="kitchen")) == 2
        assert [memory.id for memory in store.find(Filter(area="KITCHEN", text="plate"))] == [plate]
        assert store.find_seen(Filter(area="kitchen", between_ns=(0, 2)))[1] == 2


def test_areas_outlive_the_store_object_and_can_be_undone(location: Path | str) -> None:
    with MemoryStore.open(location, dim=4) as store:
        (near,) = store.add([thing("mug", 1, 1)])
        store.set_area("kitchen", polygon=[(0, 0), (4, 0), (0, 4)])
    with MemoryStore.open(location) as store:
        (area,) = store.areas()
        assert (area.name, area.map_id, len(area.polygon)) == ("kitchen", "default", 3)
        smaller = store.set_area("Kitchen", box=(3, 3, 4, 4))
        assert ids_of(store, area="kitchen") == []
        store.undo(smaller)
        assert ids_of(store, area="kitchen") == [near]
        removed = store.remove_area("kitchen")
        with pytest.raises(UnknownAreaError, match=r"no area is called 'kitchen'\. Areas: none yet"):
            store.query(Query(area="kitchen"))
        store.undo(removed)
        assert store.count(Filter(area="kitchen")) == 1


def test_an_area_of_places_follows_them(location: Path | str) -> None:
    with MemoryStore.open(location, dim=4) as store:
        first, second, cup = store.add(
            [thing("", 0, 0, kind="place"), thing("", 4, 0, kind="place"), thing("cup", 5, 1)]
        )
        store.set_area("bay 3", places=[first, second], radius_m=2.0)
        assert ids_of(store, area="bay 3") == [first, second, cup]
        store.repose([second], [(40, 0, 0)], [0.0])
        assert ids_of(store, area="bay 3") == [first, second]
        store.forget([second])
        # A forgotten place counts where it was when the area was set.
        assert ids_of(store, area="bay 3") == [first, cup]


def test_a_name_may_stand_for_an_area_of_each_map(location: Path | str) -> None:
    with MemoryStore.open(location, dim=4) as store:
        up, _ = store.add([thing("mug", 1, 1, map_id="upstairs"), thing("mug", 1, 1, map_id="cellar")])
        for name in ("upstairs", "cellar"):
            store.set_area("bath", box=(0, 0, 2, 2), map_id=name)
        assert ids_of(store, area="bath", map_id="upstairs") == [up]
        with pytest.raises(UnknownAreaError, match=r"maps cellar, upstairs\. Name the map"):
            store.count(Filter(area="bath"))
        with pytest.raises(ValueError, match="give map_id; the maps are cellar, upstairs"):
            store.set_area("hall", box=(0, 0, 1, 1))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({}, "needs one shape"),
        ({"box": (0, 0, 1, 1), "places": [1]}, "needs one shape"),
        ({"box": (1, 0, 0, 1)}, "x0 < x1"),
        ({"polygon": [(0, 0), (1, 1)]}, "at least three"),
        ({"places": []}, "1 to 1000 places"),
        ({"places": [1], "radius_m": 0.0}, "above 0"),
    ],
)
def test_a_bad_shape_is_refused_and_nothing_is_logged(
    tmp_path: Path, shape: dict[str, object], message: str
) -> None:
    with MemoryStore.open(tmp_path, dim=4) as store:
        store.add([thing("mug", 1, 1)])
        before = store.generation
        with pytest.raises(ValueError, match=message):
            store.set_area("kitchen", **shape)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="give the name of an area"):
            store.set_area(" ", box=(0, 0, 1, 1))
        with pytest.raises(UnknownMemoryError):
            store.set_area("kitchen", places=[99])
        assert store.generation == before
