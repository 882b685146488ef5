"""API keys through the pages: made, shown once, changed, rotated, stopped, deleted."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

from casekit import each_of
from consolekit import MODELS, Place

from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import Role, actor_of
from causerie.hosted.accounts.tokens import digest

FULL: list[tuple[str, object]] = [
    ("name", "Batch job"),
    ("end", "date"),
    ("date", "2026-12-24"),
    ("doors_all", "some"),
    ("doors", "hosted"),
    ("models_all", "some"),
    ("models", MODELS[0]),
    ("models", MODELS[1]),
    ("limit_model", ""),
    ("limit_requests_per_minute", "1,000"),
    ("limit_tokens_per_minute", ""),
    ("limit_input_tokens_per_minute", ""),
    ("limit_output_tokens_per_minute", "5000"),
    ("limit_concurrent", "4"),
    ("budget_amount", "$1,025.50"),
    ("budget_unit", "money"),
    ("budget_period", "week"),
    ("budget_model", MODELS[0]),
    ("budget_amount", ""),  # as it was offered: nobody touched it
    ("budget_unit", "money"),
    ("budget_period", "month"),
    ("budget_model", ""),
]


async def test_a_key_is_made_and_shown_once(place: Place) -> None:
    """Interface 5.3: under API Keys, by Create key."""
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    visitor = await place.visitor_of(owner)
    base = f"/projects/{project.id}/keys"
    empty = (await visitor.get(base)).text
    assert all(words in empty for words in ("No keys yet", "API Keys</h1>", "Create key</a>"))
    operator = await place.visitor_of(await place.world.person(operator=True))
    assert "This project has no keys" in (await operator.get(base)).text
    assert "Rate limits" in (await visitor.get(f"{base}/new")).text
    made = await visitor.post(f"{base}/new", FULL)
    assert made.status == 200
    credential = made.code("credential")
    for api in ("chat", "responses", "messages"):
        for snippet in ("curl", "python", "javascript", "environment"):
            text = made.code(f"code-{api}-{snippet}")
            assert credential in text
            assert f"http://127.0.0.1:{place.port}/hosted" in text
    assert made.code("base-1") == f"http://127.0.0.1:{place.port}/hosted/v1"
    (key,) = await place.world.keys.of(actor_of(owner), project.id)
    assert credential.startswith(key.id)
    assert key.expires_at == datetime(2026, 12, 24, 23, 59, 59, tzinfo=UTC)
    assert key.doors == frozenset({"hosted"})
    assert key.models == frozenset(MODELS[:2])
    assert key.bounds == LimitsAndBudgets(
        (Limit("", requests_per_minute=1000, output_tokens_per_minute=5000, concurrent=4),),
        (Budget(Decimal("1025.50"), BudgetPeriod.WEEK, Unit.MONEY, MODELS[0]),),
    )
    listed = await visitor.get(base)
    assert "Batch job" in listed.text
    assert credential not in listed.text
    assert "$1,025.50" in listed.text
    assert "never" in listed.text


@each_of(
    ("fields", "wrong", "said"),
    [
        ({"name": ""}, "name", "A name has 1 to 100"),
        ({"name": "a", "end": "date", "date": "2020-01-01"}, "date", "in the future"),
        ({"name": "a", "end": "date", "date": "soon"}, "date", "Choose the day"),
        ({"name": "a", "purpose": "both"}, "", "inference or management"),
        ({"name": "a", "limit_concurrent": "-1"}, "limit_concurrent", "no whole number"),
        ({"name": "a", "budget_amount": "much"}, "budget_amount", "no amount"),
        ({"name": "a", "budget_amount": "12,50"}, "budget_amount", "no amount"),
        ({"name": "a", "limit_concurrent": "1,5"}, "limit_concurrent", "no whole number"),
        (
            {"name": "a", "budget_amount": "1.5", "budget_unit": "tokens", "budget_period": "day"},
            "budget_amount",
            "Tokens are whole",
        ),
        (
            {"name": "a", "limit_requests_per_minute": "", "limit_model": MODELS[0]},
            "limit_requests_per_minute",
            "needs a number",
        ),
        *(
            ({"name": "a", "budget_amount": "", **chosen}, "budget_amount", "needs an amount")
            for chosen in (
                {"budget_model": MODELS[0]},
                {"budget_unit": "tokens"},
                {"budget_period": "day"},
            )
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_makes_no_sense_is_said_beside_it(
    place: Place, fields: dict[str, str], wrong: str, said: str
) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    visitor = await place.visitor_of(owner)
    page = await visitor.post(f"/projects/{project.id}/keys/new", fields)
    assert page.status == 400
    assert said in page.text
    invalid = re.findall(r'<input [^>]*aria-invalid="true"[^>]*>', page.text)
    assert len(invalid) == bool(wrong)
    for field in invalid:
        assert f'name="{wrong}"' in field
        assert f'value="{fields[wrong]}"' in field
        described = re.search(r'aria-describedby="([^"]+)"', field)
        assert described
        assert re.search(rf'id="{described[1]}" role="alert">.*{said}', page.text)
    assert not await place.world.keys.of(actor_of(owner), project.id)


async def test_a_form_that_nothing_was_changed_in_changes_nothing(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    visitor = await place.visitor_of(owner)
    await visitor.post(f"/projects/{project.id}/keys/new", FULL)
    (key,) = await place.world.keys.of(actor_of(owner), project.id)
    form = await visitor.get(f"/projects/{project.id}/keys/{key.id}")
    saved = await visitor.post(f"/projects/{project.id}/keys/{key.id}", form.fields)
    assert saved.target.endswith("?done=key-saved")
    assert (await place.world.keys.see(actor_of(owner), key.id)) == key


async def test_a_key_is_rotated_stopped_and_deleted(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    made = await place.world.key(project, owner)
    visitor = await place.visitor_of(owner)
    base = f"/projects/{project.id}/keys/{made.key.id}"
    assert "24 hours" in (await visitor.get(f"{base}/rotate")).text
    rotated = await visitor.post(f"{base}/rotate", {"grace": "1"})
    credential = rotated.code("credential")
    assert credential != made.credential
    async with place.world.store.reading() as repositories:
        old = await repositories.keys.grant(digest(made.credential))
        new = await repositories.keys.grant(digest(credential))
    assert old is not None
    assert old.until == datetime(2026, 11, 21, 13, tzinfo=UTC)
    assert new is not None
    assert new.until is None
    assert (await visitor.post(f"{base}/rotate", {"grace": "9999"})).status == 400

    listed = f"/projects/{project.id}/keys"
    assert (await visitor.post(f"{base}/disable")).target == f"{listed}?done=key-disabled"
    page = await visitor.get(f"{listed}?done=key-disabled")
    assert "it stops within a second" in page.text
    assert "Enable" in page.text
    assert (await visitor.post(f"{base}/enable")).target == f"{listed}?done=key-enabled"
    assert "cannot be undone" in (await visitor.get(f"{base}/delete")).text
    assert (await visitor.post(f"{base}/delete")).target == f"{listed}?done=key-deleted"
    assert (await visitor.get(base)).status == 404


async def test_a_management_key_is_told_apart(place: Place) -> None:
    owner, member = await place.world.person(), await place.world.person()
    project = await place.world.project(owner=owner, member=member)
    visitor = await place.visitor_of(owner)
    path = f"/projects/{project.id}/keys/new"
    made = await visitor.post(path, {"name": "ci", "purpose": "management"})
    assert f"http://127.0.0.1:{place.port}/api/projects/{project.id}/keys" in made.code(
        "code-management-curl"
    )
    (key,) = await place.world.keys.of(actor_of(owner), project.id)
    assert key.purpose is Purpose.MANAGEMENT
    other = await place.visitor_of(member)
    assert 'value="management"' not in (await other.get(path)).text
    assert (await other.post(path, {"name": "ci", "purpose": "management"})).status == 403


async def test_a_key_of_another_project_is_not_there(place: Place) -> None:
    owner = await place.world.person()
    mine, other = await place.world.project(owner=owner), await place.world.project(owner=owner)
    key = (await place.world.key(other, owner)).key
    visitor = await place.visitor_of(owner)
    assert (await visitor.get(f"/projects/{mine.id}/keys/{key.id}")).status == 404
    assert (await visitor.post(f"/projects/{mine.id}/keys/{key.id}/delete")).status == 404
    stranger = await place.visitor_of(await place.world.person())
    assert (await stranger.get(f"/projects/{mine.id}/keys")).status == 404
    assert (await stranger.get(f"/projects/{other.id}/keys/{key.id}")).status == 404


async def test_networks_of_a_key_and_of_its_project(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    visitor = await place.visitor_of(owner)
    base = f"/projects/{project.id}"
    await visitor.get(f"{base}/keys/new")
    typed = {"name": "k", "networks": "10.0.0.0/8,\n192.0.2.7"}
    wrong = await visitor.post(f"{base}/keys/new", typed | {"networks": "10.0.0.1/8"})
    assert wrong.status == 400
    assert 'value="10.0.0.1/8"' in wrong.text
    assert "10.0.0.1/8 has host bits set" in wrong.text
    assert (await visitor.post(f"{base}/keys/new", typed)).status == 200
    (key,) = await place.world.keys.of(actor_of(owner), project.id)
    assert key.networks == ("10.0.0.0/8", "192.0.2.7/32")
    form = await visitor.get(f"{base}/keys/{key.id}")
    assert ("networks", "10.0.0.0/8, 192.0.2.7/32") in form.fields
    assert (await visitor.post(f"{base}/keys/{key.id}", form.fields)).status == 303
    (same,) = await place.world.keys.of(actor_of(owner), project.id)
    assert same.networks == key.networks

    assert "Networks" in (await visitor.get(f"{base}/settings")).text
    assert (await visitor.post(f"{base}/networks", {"networks": "nonsense"})).status == 400
    saved = await visitor.post(f"{base}/networks", {"networks": "2001:db8::/32"})
    assert saved.target == f"{base}/settings?done=networks-saved"
    found = (await place.world.projects.see(actor_of(owner), project.id)).project
    assert found.networks == ("2001:db8::/32",)
    member = await place.world.person()
    await place.world.join(project, member, Role.MEMBER)
    other = await place.visitor_of(member)
    assert (await other.post(f"{base}/networks", {"networks": ""})).status == 403
    await visitor.post(f"{base}/networks", {"networks": ""})
    assert (await place.world.projects.see(actor_of(owner), project.id)).project.networks is None


async def test_a_choice_of_doors_is_offered_where_there_are_several(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    visitor = await place.visitor_of(owner)
    path = f"/projects/{project.id}/keys/new"
    assert "Doors, models and networks" in (await visitor.get(path)).text
    del place.service_view.open_doors[1:]
    alone = (await visitor.get(path)).text
    assert 'name="doors_all"' not in alone
    assert "Models and networks" in alone
    await visitor.post(path, {"name": "free", "end": "never"})
    [key] = await place.world.keys.of(actor_of(owner), project.id)
    assert key.doors is None
    held = await place.world.key(project, owner, name="held", doors=frozenset({"hosted"}))
    edit = (await visitor.get(f"/projects/{project.id}/keys/{held.key.id}")).text
    assert 'name="doors_all"' in edit, "what is set can be seen and taken back"


async def test_a_key_leads_to_its_requests(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    key = (await place.world.key(project, owner)).key
    visitor = await place.visitor_of(owner)
    page = (await visitor.get(f"/projects/{project.id}/keys")).text
    assert f'/activity?key={key.id}">Activity</a>' in page
