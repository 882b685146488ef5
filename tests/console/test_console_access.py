"""Allowed models and doors on the pages of a project, a member and a user."""

from __future__ import annotations

from decimal import Decimal

from consolekit import MODELS, Place

from causerie.access.allowed import ALL, Access
from causerie.hosted.accounts.people import SYSTEM, Role

SMALL, THINKER, LONG = MODELS
ALL_DOORS = {"doors_all": "all", "providers_all": "all"}


async def test_an_operator_limits_a_project_and_its_members_see_what_is_left(place: Place) -> None:
    world = place.world
    member = await world.person()
    project = await world.project(member=member)
    here = f"/projects/{project.id}/access"
    visitor = await place.visitor_of(member)
    page = await visitor.get(here)
    assert "Nothing is restricted" in page.text
    assert "3 models of 3" in page.text
    assert f"{here}/change" not in page.text
    assert (await visitor.get(f"{here}/change")).status == 403
    operator = await place.visitor_of(await world.person(operator=True))
    form = {
        "models": f"{SMALL}\n org/*",
        "doors_all": "some",
        "doors": "hosted",
        "providers_all": "all",
        "prompt_price": "2.50",
        "completion_price": "",
    }
    done = await operator.post(f"{here}/change", form)
    assert done.target == f"{here}?done=access-saved"
    found = await world.accounts.access.see(SYSTEM, project.id)
    assert found == Access(
        frozenset({SMALL, "org/*"}), frozenset({"hosted"}), None, Decimal("2.50")
    )
    page = await visitor.get(here)
    assert "2 models of 3" in page.text
    assert "it is not among the models of the project" in page.text
    assert "input up to $2.50 per 1M tokens" in page.text
    new = (await visitor.get(f"/projects/{project.id}/keys/new")).text
    offered = new[new.index("Models and networks") :]
    assert f'value="{SMALL}"' in offered
    assert f'value="{THINKER}"' not in offered
    assert 'value="router"' not in offered
    playground = (await visitor.get(f"/projects/{project.id}/playground")).text
    assert SMALL in playground
    assert THINKER not in playground
    again = await operator.get(f"{here}/change")
    assert f"org/*\n{SMALL}" in again.text
    wrong = await operator.post(f"{here}/change", form | {"prompt_price": "cheap"})
    assert wrong.status == 400
    assert "is no price" in wrong.text
    await operator.post(f"{here}/change", {"models": "", **ALL_DOORS})
    assert await world.accounts.access.see(SYSTEM, project.id) == ALL


async def test_an_admin_limits_a_member_and_an_operator_a_person(place: Place) -> None:
    world = place.world
    owner, admin, member = [await world.person() for _ in range(3)]
    project = await world.project(owner=owner, admin=admin, member=member)
    visitor = await place.visitor_of(admin)
    dialog = await visitor.get(f"/projects/{project.id}/members/{member.id}")
    here = f"/projects/{project.id}/members/{member.id}/access"
    assert here in dialog.text
    assert (await visitor.post(here, {"models": SMALL, **ALL_DOORS})).status == 303
    other = f"/projects/{project.id}/members/{owner.id}/access"
    assert (await visitor.post(other, {"models": SMALL, **ALL_DOORS})).status == 403
    mine = await place.visitor_of(member)
    page = await mine.get(f"/projects/{project.id}/access")
    assert "You, in this project" in page.text
    assert "it is not among the models of this member of the project" in page.text
    assert (await mine.post(here, ALL_DOORS)).status == 403
    operator = await place.visitor_of(await world.person(operator=True))
    form = {"models": "", "doors_all": "all", "providers_all": "some"}
    assert (await operator.post(f"/operator/users/{member.id}/access", form)).status == 303
    assert (
        "the provider causerie is not allowed for the person"
        in (await mine.get(f"/projects/{project.id}/access")).text
    )
    await world.projects.change_role(SYSTEM, project.id, member.id, Role.VIEWER)
    audit = (await operator.get("/operator/audit")).text
    assert "set allowed models and doors of" in audit
