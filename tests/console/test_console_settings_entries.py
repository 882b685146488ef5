"""Models of the service and doors on the console: added, changed, switched, deleted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest
from accountkit import PASSWORD, World
from configurekit import added, configured
from consolekit import Page, ScriptedServiceView, Visitor, console_of
from operationskit import Market
from sqlalchemy import select
from structlog.testing import capture_logs

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.authorization import Policies
from causerie.hosted.accounts.people import SYSTEM, RoleColumn
from causerie.hosted.console.entries import SettingsForm
from causerie.hosted.console.settings_entries import DOORS, MODELS
from causerie.hosted.store.operations import SqlAlertBook
from causerie.hosted.store.tables import alert_deliveries, alerts
from causerie.hosted.store.tables import configuration_entries as table
from causerie.observe.alerts import AlertKind, Condition, Delivery, DeliveryState

OWN, DOOR_LIST = "/operator/models", "/operator/doors"


@pytest.fixture
async def desk(lite: World, tmp_path: Path) -> AsyncIterator[tuple[Visitor, Market]]:
    async with configured(lite, tmp_path) as (market, _):
        service_view = ScriptedServiceView()
        service_view.operations = market.services
        async with console_of(lite, service_view=service_view) as place:
            user = await lite.person("operator", operator=True, password=PASSWORD)
            yield await place.visitor_of(user), market


def edit_path(page: Page, name: str) -> str:
    """The path of the form of an entry in a list."""
    row = page.text[page.text.index(f'title="{name}"') :]
    found = re.search(r'href="[^"]*?(/operator/[a-z]+/[0-9a-zA-Z_-]+)"', row)
    assert found is not None
    return found.group(1)


def invalid(page: Page) -> set[str]:
    return set(re.findall(r'id="field-([a-z_.]+)"[^>]*aria-invalid', page.text))


async def test_a_model_is_added_changed_and_deleted(desk: tuple[Visitor, Market]) -> None:
    visitor, market = desk
    assert "Weights" in (await visitor.get(f"{OWN}/new")).text
    made = await visitor.post(
        f"{OWN}/new",
        {
            "id": "own",
            "more": '{"engine": "fake"}',
            "limits.concurrent": "3",
            "price.prompt": "0.2",
        },
    )
    assert made.target == f"{OWN}?done=model-added"
    assert "own" in market.services.models()
    page = await visitor.get(OWN)
    assert "fake" in page.text
    path = edit_path(page, "own")
    form = (await visitor.get(path)).text
    assert 'name="limits.concurrent" type="text" value="3"' in form
    assert 'value="fake" selected' in form
    version = re.findall(r'name="version" value="(\d+)"', form)[0]
    sent = {"id": "own", "engine": "fake", "name": "Our own", "version": version}
    assert (await visitor.post(path, sent)).target == f"{OWN}?done=model-saved"
    listed = (await visitor.get(OWN)).text
    assert "Our own" in listed
    stale = await visitor.post(path, sent)
    assert stale.status == 409 or "changed" in stale.text
    assert (await visitor.post(f"{path}/disable", {})).target == f"{OWN}?done=model-disabled"
    assert "own" not in market.services.models()
    assert "unloaded" in (await visitor.get(f"{path}/delete")).text
    assert (await visitor.post(f"{path}/delete", {})).target == f"{OWN}?done=model-deleted"


async def test_what_is_wrong_stands_at_its_field(desk: tuple[Visitor, Market]) -> None:
    visitor, _ = desk
    nameless = await visitor.post(f"{OWN}/new", {"ref": "hf:a/b"})
    assert (nameless.status, invalid(nameless)) == (400, {"id"})
    wrong = {"id": "x", "ref": "hf:a/b", "llamacpp.context": "many", "llamacpp.replicas": "0"}
    assert invalid(await visitor.post(f"{OWN}/new", wrong)) == {
        "llamacpp.context", "llamacpp.replicas"
    }  # fmt: skip
    place = await visitor.post(f"{OWN}/new", {"id": "x", "ref": "/etc/passwd"})
    assert invalid(place) == {"ref"}
    assert "Only the file may name a place" in unescape(place.text)
    entry = await visitor.post(
        f"{DOOR_LIST}/new", {"name": "side", "kind": "gateway", "limits.concurrent": "no"}
    )
    assert invalid(entry) == {"limits.concurrent"}


async def test_a_door_is_opened_limited_and_closed(desk: tuple[Visitor, Market]) -> None:
    visitor, _ = desk
    sent = {"name": "side", "kind": "gateway", "models": "pool", "prefix": "/side/v1"}
    made = await visitor.post(f"{DOOR_LIST}/new", sent | {"reasoning": "on"})
    assert made.target == f"{DOOR_LIST}?done=door-added"
    page = await visitor.get(DOOR_LIST)
    assert "/side/v1" in page.text
    assert ">pool<" in page.text
    path = edit_path(page, "side")
    form = (await visitor.get(path)).text
    assert 'value="pool"' in form
    assert 'name="reasoning" value="on" checked' in form
    version = re.findall(r'name="version" value="(\d+)"', form)[0]
    saved = await visitor.post(path, sent | {"version": version, "limits.concurrent": "5"})
    assert saved.target == f"{DOOR_LIST}?done=door-saved"
    assert "5 at once" in (await visitor.get(DOOR_LIST)).text
    assert (await visitor.post(f"{path}/delete", {})).target == f"{DOOR_LIST}?done=door-deleted"
    assert "there is no such" in unescape((await visitor.get(f"{OWN}/{path[-8:]}")).text).casefold()


async def test_what_a_newer_version_has_made_is_skipped_and_shown(
    desk: tuple[Visitor, Market], lite: World
) -> None:
    visitor, market = desk
    made = await added(market, "model", id="own", engine="fake")
    alert, delivery = AlertKind.JOB, DeliveryState.FAILED
    lasting = Condition("job:new", alert, "A job fails", level=1)
    book = SqlAlertBook(lite.database)
    sent = Delivery("d", "ops", "", alert, True, "A job fails", {}, lite.now, delivery)
    await book.fire(lasting, [sent], lite.now, lite.now)
    copy = select(table).where(table.c.id == made.id)
    async with lite.database.writing() as connection:
        row = (await connection.execute(copy)).mappings().one()
        newer = {"id": "cfg_pager", "kind": "pager", "name": "night shift"}
        await connection.execute(table.insert().values({**row, **newer}))
        await connection.execute(alerts.update().values(kind="disk"))
        await connection.execute(alert_deliveries.update().values(state="held", next_at=lite.now))
    configuration = market.configuration
    with capture_logs() as lines:
        assert (await configuration.reload()).applied
    assert [line["name"] for line in lines if "skipped" in line["event"]] == ["night shift"]
    assert "own" in market.services.models()
    for path in (OWN, DOOR_LIST, "/operator/alerts"):
        assert "night shift" in (await visitor.get(path)).text
    assert not await book.alerts()
    assert not await book.deliveries(9)
    assert await book.claim(lite.now, lite.now, 9) == ()
    entries = market.services.configuration
    *_, last = await entries.every(SYSTEM)
    assert (last.kind, last.in_force, last.settings["name"]) == ("pager", False, "night shift")
    assert "does not know" in last.problems[0]
    with pytest.raises(InvalidRequest, match="'pager'"):
        await entries.switch(SYSTEM, "cfg_pager", enabled=False)
    await entries.switch(SYSTEM, made.id, enabled=False)  # others can be changed
    await entries.delete(SYSTEM, "cfg_pager")
    assert "night shift" not in (await visitor.get(OWN)).text


def test_a_form_gives_back_what_it_was_made_of() -> None:
    model = {
        "id": "m",
        "ref": "hf:a/b",
        "llamacpp": {"context": "auto", "kv_type": "q8_0"},
        "limits": {"concurrent": 2, "input_tokens_per_minute": 9},
        "price": {"prompt": "0.5"},
        "queue": {"max_waiting": 3},
    }
    door = {"name": "d", "kind": "router", "hosts": ["a.example.org"], "reasoning": True}
    for kind, settings in ((MODELS, model), (DOORS, door)):
        assert SettingsForm.of(kind.fields, settings, 1).settings() == settings


async def test_a_policy_is_made_and_holds_for_new_people(desk: tuple[Visitor, Market]) -> None:
    visitor, _ = desk
    list_path = "/operator/policies"
    assert "No policies yet" in (await visitor.get(list_path)).text
    fields = {
        "name": "people",
        "budget": "25",
        "limits.requests_per_minute": "60",
        "models": "small, openai/*",
        "personal_projects": "never",
    }
    made = await visitor.post(f"{list_path}/new", fields)
    assert made.target == f"{list_path}?done=policy-added"
    page = await visitor.get(list_path)
    assert "$25 a month" in page.text
    assert "openai/*" in page.text
    path = edit_path(page, "people")
    form = (await visitor.get(path)).text
    assert 'value="never" selected' in form
    assert 'name="budget" type="text" value="25"' in form
    wrong = await visitor.post(f"{list_path}/new", {"name": "projects", "role": "member"})
    assert (wrong.status, invalid(wrong)) == (400, {"role"})
    assert (await visitor.post(f"{path}/delete", {})).target == f"{list_path}?done=policy-deleted"


async def test_the_page_of_request_logging_says_who_may_not(lite: World) -> None:
    async with console_of(lite) as place:
        admin = await lite.person()
        project = await lite.project(admin=admin)
        visitor = await place.visitor_of(admin)
        page = f"/projects/{project.id}/logging"
        assert "Turn on" in (await visitor.get(page)).text
        lite.accounts.govern(Policies(loggers=frozenset({RoleColumn.OWNER})))
        shown = (await visitor.get(page)).text
        assert "does not let you turn it on" in shown
        assert "Turn on" not in shown
        refused = await visitor.post(f"/projects/{project.id}/recording", {"days": "7"})
        assert refused.status == 403
