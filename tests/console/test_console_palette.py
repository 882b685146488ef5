"""What the command palette finds, and for whom."""

from __future__ import annotations

import re

from consolekit import Place, Visitor


async def _found(visitor: Visitor, query: str) -> list[str]:
    page = await visitor.get(f"/go?{query}")
    assert page.status == 200
    listed = page.text.partition('id="palette-found"')[2].partition("</ul>")[0]
    return re.findall(r'href="/console([^"]+)"', listed)


async def test_members_find_their_pages_projects_and_models(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    other = await place.world.project(owner=await place.world.person())
    visitor = await place.visitor_of(owner)
    base = f"/projects/{project.id}"
    assert await _found(visitor, "find=Usage") == [f"{base}/usage"]
    assert await _found(visitor, "find=audit") == []  # an operator's
    projects = await _found(visitor, "find=project")
    assert f"{base}/overview" in projects
    assert not any(other.id in path for path in projects)
    model = str(place.service_view.models()[0]["id"])
    assert any("playground?model=" in path for path in await _found(visitor, f"find={model}"))
    assert (await visitor.get(f"/go?project={other.id}")).status == 404


async def test_pages_are_those_of_the_project_that_is_open(place: Place) -> None:
    owner = await place.world.person()
    first, second = [await place.world.project(owner=owner) for _ in range(2)]
    visitor = await place.visitor_of(owner)
    for project in (first, second):
        found = await _found(visitor, f"project={project.id}&find=activity")
        assert found == [f"/projects/{project.id}/activity"]


async def test_operators_find_all_and_strangers_sign_in(place: Place) -> None:
    operator = await place.world.person(operator=True)
    project = await place.world.project(owner=await place.world.person())
    visitor = await place.visitor_of(operator)
    assert f"/projects/{project.id}/overview" in await _found(visitor, "find=project")
    assert "/operator/users" in await _found(visitor, "find=users")
    assert (await place.visitor().get("/go")).status == 303
