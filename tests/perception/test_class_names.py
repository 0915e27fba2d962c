"""Names of classes that mean the same, and errors that name the nearest."""

from __future__ import annotations

import pytest

from perception.class_names import check_known, mapped_classes, nearest_class, same_class, well_known

TRAINED = ("Car", "Pedestrian", "Cyclist")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("car", "Car"),
        ("CARS", "Car"),
        ("vehicle.car", "Car"),
        ("automobile", "Car"),
        ("TYPE_VEHICLE", "Car"),
        ("REGULAR_VEHICLE", "Car"),
        ("person", "Pedestrian"),
        ("People", "Pedestrian"),
        ("human.pedestrian.adult", "Pedestrian"),
        ("human.pedestrian.police_officer", "Pedestrian"),
        ("TYPE_PEDESTRIAN", "Pedestrian"),
        ("bicyclist", "Cyclist"),
        ("rider", "Cyclist"),
        ("Motorcyclist", "Motorcyclist"),
        ("MOTORCYCLISTS", "Motorcyclist"),
        ("vehicle.bus.rigid", "Bus"),
        ("vehicle.bicycle", None),
        ("human.pedestrian.wheelchair", None),
        ("boat", None),
        ("", None),
        ("..", None),
    ],
)
def test_names_of_other_data_sets_mean_a_well_known_class(name: str, meant: str | None) -> None:
    assert well_known(name) == meant
    assert same_class(name, TRAINED) == (meant if meant in TRAINED else None)


def test_spellings_of_own_classes_are_the_same() -> None:
    known = ("Pallet", "traffic_cone", "bus", "Battery")
    names = ("Pallet", "pallets", "TrafficCone", "Traffic Cones", "buses", "batteries")
    meant = ["Pallet", "Pallet", "traffic_cone", "traffic_cone", "bus", "Battery"]
    assert [same_class(name, known) for name in names] == meant
    assert same_class("gas", ["ga"]) is None
    assert same_class("palette", known) is None
    assert nearest_class("palette", known) == "Pallet"
    assert nearest_class("zebra", known) is None


def test_an_unknown_class_is_refused_with_the_nearest() -> None:
    check_known(["Car", "Cyclist"], TRAINED)
    with pytest.raises(ValueError, match=r"unknown class 'person'\. Did you mean 'Pedestrian'\? Known"):
        check_known(["Car", "person"], TRAINED)
    with pytest.raises(ValueError, match=r"unknown class 'zebra'\. Known classes: Car, Pedestrian, Cyclist"):
        check_known(["zebra"], TRAINED)


def test_labels_are_mapped_to_trained_classes_and_spellings_are_joined() -> None:
    names = ["vehicle.car", "boat", "Boats", "Motorcyclist", "person", "rider"]
    assert mapped_classes(names, TRAINED) == {
        "vehicle.car": "Car",
        "boat": "boat",
        "Boats": "boat",
        "Motorcyclist": "Motorcyclist",
        "person": "Pedestrian",
        "rider": "Cyclist",
    }
    # Where cars have a name of their own, vehicles are something else.
    assert mapped_classes(["car", "Vehicle"], TRAINED) == {"car": "Car", "Vehicle": "Vehicle"}
    assert mapped_classes(["Vehicle"], TRAINED) == {"Vehicle": "Car"}
