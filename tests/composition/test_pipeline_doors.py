"""A door's present models apply, also if the pipeline has met one of its name before."""

from __future__ import annotations

import pytest
from routingkit import REPLY, Scripted, router

from causerie.access.keys import Caller, StaticKeys
from causerie.access.windows import MemoryCounters
from causerie.catalog.catalog import Catalog
from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities
from causerie.edge.doors import MountedDoor
from causerie.errors import Forbidden, NotFound
from causerie.metering.meter import Meter
from causerie.pipeline import Pipeline, Scopes
from causerie.protocol.candidate import Candidate

ANYBODY = Caller(key="", name="anonymous", door="d")


def pipeline() -> Pipeline:
    return Pipeline(
        keys=StaticKeys(),
        catalog=Catalog([ServedModel(ModelCard("m", "M"), [TargetCapabilities(Candidate("t0"))])]),
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
