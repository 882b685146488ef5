"""A door's present models apply, also if the pipeline has met one of its name before."""

from __future__ import annotations

import pytest
from routingkit import REPLY, Scripted, router

from causerie.access.keys import Caller, StaticKeys
from causerie.access.limits import MemoryCounters
from causerie.catalog.catalog import Catalog, WildcardModel
from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities, TargetTariffs
from causerie.errors import Forbidden, NotFound
from causerie.http.doors import MountedDoor
from causerie.metering.meter import Meter
from causerie.pipeline import Pipeline, Scopes
from causerie.protocol.targets import Candidate

ANYBODY = Caller(key="", name="anonymous", door="d")


TARGET = TargetCapabilities(Candidate("t0"))


def pipeline() -> Pipeline:
    card = ModelCard("w/*", "w/*")
    wildcard = WildcardModel(
        card, [TARGET], lambda _: TargetTariffs(), known=lambda: ("a", "b", "exact")
    )
    return Pipeline(
        keys=StaticKeys(),
        catalog=Catalog(
            [
                ServedModel(ModelCard("m", "M"), [TARGET]),
                wildcard,
                ServedModel(ModelCard("w/exact", "W"), [TARGET]),
            ]
        ),
        limits=MemoryCounters(),
        scopes=Scopes({}, {}),
        router=router(Scripted(REPLY)),
        meter=Meter([]),
    )


def test_a_door_that_shows_less_after_a_reload_lets_nobody_through() -> None:
    made = pipeline()
    assert made.allowed(MountedDoor("d", "/v1"), ANYBODY, "m").id == "m"
    narrow = MountedDoor("d", "/v1", models=frozenset())
    with pytest.raises(NotFound):
        made.allowed(narrow, ANYBODY, "m")


def test_whom_a_model_is_not_for_is_asked_of_every_caller() -> None:
    made, door = pipeline(), MountedDoor("d", "/v1")
    assert made.allowed(door, ANYBODY, "m").id == "m"
    with pytest.raises(Forbidden):
        made.allowed(door, Caller(key="k", name="k", door="d", models=frozenset({"x"})), "m")


def test_a_key_is_for_a_wildcard_or_for_one_of_its_names() -> None:
    made, door = pipeline(), MountedDoor("d", "/v1")
    for models, may in (({"w/*"}, ("w/a", "w/b")), ({"w/a"}, ("w/a",)), ({"m"}, ())):
        caller = Caller(key="k", name="k", door="d", models=frozenset(models))
        for name in ("w/a", "w/b"):
            if name in may:
                assert made.allowed(door, caller, name).id == "w/*"
                continue
            with pytest.raises(Forbidden):
                made.allowed(door, caller, name)


def test_a_key_is_shown_the_names_of_a_wildcard_that_it_may_ask() -> None:
    made, door = pipeline(), MountedDoor("d", "/v1")
    for models, shown in (
        (None, ["m", "w/a", "w/b", "w/exact"]),
        ({"w/*"}, ["w/a", "w/b"]),
        ({"w/b", "w/unlisted", "x"}, ["w/b", "w/unlisted"]),
        ({"m"}, ["m"]),
    ):
        allowed = None if models is None else frozenset(models)
        caller = Caller(key="k", name="k", door="d", models=allowed)
        assert [entry.id for entry in made.models(door, caller)] == shown


def test_names_of_a_wildcard_are_not_kept() -> None:
    """A client could make names without end."""
    made, door = pipeline(), MountedDoor("d", "/v1")
    for number in range(100):
        made.allowed(door, ANYBODY, f"w/{number}")
    assert not made._choices_by_name
