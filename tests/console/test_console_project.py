"""Projects and the service through the pages: members, invitations, bounds, users, log."""

from __future__ import annotations

import re
from decimal import Decimal

from accountkit import PASSWORD
from casekit import part_of
from consolekit import Place
from ledgerkit import record
from marketkit import day
from pageskit import Shop
from picturebook import many_targets

from causerie.engines.base import EngineState, EngineStatus
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.people import (
    RIGHTS,
    SYSTEM,
    Action,
    Extent,
    Role,
    RoleColumn,
    actor_of,
)
from causerie.hosted.store.usage import SqlUsage


async def test_somebody_is_invited_and_their_role_changed(place: Place) -> None:
    owner = await place.world.person("olga")
    project = await place.world.project(owner=owner)
    visitor = await place.visitor_of(owner)
    base = f"/projects/{project.id}"
    assert "Invite a member" in (await visitor.get(f"{base}/invite")).text
    wrong = await visitor.post(f"{base}/invite", {"email": "nobody", "role": "member"})
    assert (wrong.status, "no e-mail address" in wrong.text) == (400, True)
    made = await visitor.post(f"{base}/invite", {"email": "bo@example.org", "role": "admin"})
    address = made.code("link")
    assert address.startswith(f"http://127.0.0.1:{place.port}/console/link#")
    page = await visitor.get(base)
    assert "bo@example.org" in page.text

    bo = await place.world.users.accept(
        address.partition("#")[2], email="bo@example.org", name="Bo", password=PASSWORD
    )
    member = f"{base}/members/{bo.id}"
    assert "checked" in (await visitor.get(member)).text
    assert (await visitor.post(member, {"role": "viewer"})).target == f"{base}?done=member-changed"
    assert (await visitor.post(member, {"role": "king"})).status == 400
    assert "Remove Bo" in (await visitor.get(f"{member}/remove")).text
    assert (await visitor.post(f"{member}/remove")).target == f"{base}?done=member-removed"
    last = await visitor.post(f"{base}/members/{owner.id}/remove")
    assert (last.status, "last owner" in last.text) == (409, True)


async def test_an_invitation_is_withdrawn(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    made = await place.world.projects.invite(actor_of(owner), project.id, Role.MEMBER)
    visitor = await place.visitor_of(owner)
    done = await visitor.post(f"/projects/{project.id}/invitations/{made.link.id}/withdraw")
    assert done.status == 303
    assert (await visitor.post("/link", {"token": made.token})).status == 404


async def test_an_operator_sets_bounds_and_owners_see_them(place: Place) -> None:
    owner, operator = await place.world.person(), await place.world.person(operator=True)
    project = await place.world.project(owner=owner)
    base = f"/projects/{project.id}"
    visitor = await place.visitor_of(operator)
    fields = [
        ("budget_amount", "100"),
        ("budget_unit", "money"),
        ("budget_period", "month"),
        ("budget_model", ""),
        ("limit_model", ""),
        ("limit_requests_per_minute", "60"),
    ]
    assert (await visitor.post(f"{base}/bounds", fields)).target == (
        f"{base}/limits?done=bounds-saved"
    )
    view = await place.world.projects.see(SYSTEM, project.id)
    assert view.bounds == LimitsAndBudgets(
        (Limit("", requests_per_minute=60),), (Budget(Decimal(100)),)
    )
    mine = await place.visitor_of(owner)
    page = await mine.get(f"{base}/limits")
    assert "$100.00" in page.text
    assert "60 requests / min" in page.text
    assert (await mine.post(f"{base}/bounds", fields)).status == 403


async def test_an_operator_sets_the_bounds_of_a_person_who_sees_them(place: Place) -> None:
    ada, operator = await place.world.person("ada"), await place.world.person(operator=True)
    project, other = await place.world.project(owner=ada), await place.world.project(owner=ada)
    at = int(place.world.now.timestamp()) * 1_000_000
    spent = [
        record(project=each.id, user=ada.id, at=at, amount=Decimal("1.25"))
        for each in (project, other)
    ]
    await SqlUsage(place.world.database).append(spent)
    visitor, here = await place.visitor_of(operator), f"/operator/users/{ada.id}/bounds"
    fields = [("budget_amount", "ten"), ("budget_unit", "money"), ("budget_period", "month")]
    wrong = await visitor.post(here, fields)
    assert (wrong.status, "is no amount" in wrong.text) == (400, True), wrong.text[-3000:]
    fields[0] = ("budget_amount", "10")
    assert (await visitor.post(here, fields)).target == "/operator/users?done=bounds-saved"
    assert 'value="10"' in (await visitor.get(here)).text
    users = (await visitor.get("/operator/users")).text
    assert re.search(r"\$2\.50 <span class=\"quiet\">of \$10\.00", users)
    of_ada = f"/operator/usage?by=project&amp;user={ada.id}"
    assert of_ada in users
    usage = (await visitor.get(of_ada.replace("&amp;", "&"))).text
    assert ("Everyone" in usage, "$2.50" in usage, "by app" in usage) == (True, True, False)
    table = (await visitor.get(f"/operator/usage.csv?by=user&user={ada.id}")).text
    assert [line.split(",")[2] for line in table.splitlines()[1:]] == ["ada"]

    mine = await place.visitor_of(ada)
    overview = (await mine.get(f"/projects/{project.id}/overview")).text
    assert "Your budgets" in overview
    assert (await mine.post(here, fields)).status == 403


async def test_of_one_there_is_no_plural(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    await place.world.projects.set_bounds(
        SYSTEM,
        project.id,
        LimitsAndBudgets((Limit("", requests_per_minute=1, tokens_per_minute=1),), ()),
    )
    await place.world.recordings.keep(actor_of(owner), project.id, 1)
    visitor = await place.visitor_of(owner)
    limits = await visitor.get(f"/projects/{project.id}/limits")
    assert "1 request / min" in limits.text
    assert "1 token / min" in limits.text
    assert "are kept for 1 day," in (await visitor.get(f"/projects/{project.id}/logging")).text


async def test_a_bound_whose_numbers_were_cleared_ends_only_when_that_was_asked(
    place: Place,
) -> None:
    operator = await place.world.person(operator=True)
    project = await place.world.project(owner=operator)
    visitor, path = await place.visitor_of(operator), f"/projects/{project.id}/bounds"
    budgets = (Budget(Decimal(5), BudgetPeriod.WEEK), Budget(Decimal(7), unit=Unit.TOKENS))
    await place.world.projects.set_bounds(
        SYSTEM,
        project.id,
        LimitsAndBudgets(
            (Limit("", requests_per_minute=60), Limit("m", requests_per_minute=6)), budgets
        ),
    )

    async def bounds() -> LimitsAndBudgets:
        return (await place.world.projects.see(SYSTEM, project.id)).bounds

    form = dict(enumerate((await visitor.get(path)).fields))
    for name in ("budget_amount", "limit_requests_per_minute"):
        first = next(at for at, field in form.items() if field[0] == name)
        form[first] = (name, "")
    page = await visitor.post(path, list(form.values()))
    for _ in ("the limit", "the budget"):
        assert (page.status, page.text.count("No number is left here")) == (400, 1)
        assert len((await bounds()).budgets) == 2
        page = await visitor.post(path, page.fields)
    assert page.status == 303
    assert await bounds() == LimitsAndBudgets((Limit("m", requests_per_minute=6),), budgets[1:])


async def test_what_was_typed_stays_with_what_is_wrong_about_it(place: Place) -> None:
    owner, long = await place.world.person(operator=True), "long" * 26
    project = await place.world.project(owner=owner)
    visitor, base = await place.visitor_of(owner), f"/projects/{project.id}"
    forms: dict[str, list[tuple[str, str]]] = {
        "name": [("name", long)],
        "recording": [("days", "1000")],
        "bounds": [
            *(("budget_amount", "100"), ("budget_unit", "money"), ("budget_period", "month")),
            *(("budget_amount", "-7"), ("budget_unit", "money"), ("budget_period", "day")),
        ],
    }
    for path, fields in forms.items():
        page = await visitor.post(f"{base}/{path}", fields)
        assert page.status == 400, path
        [field] = re.findall(r'<input [^>]*aria-invalid="true"[^>]*>', page.text)
        typed = {"name": long, "recording": "1000", "bounds": "-7"}[path]
        assert f'value="{typed}"' in field
        assert "autofocus" in field
        assert page.text.count('role="alert"') == 1


async def test_a_project_is_made_renamed_archived_and_restored(place: Place) -> None:
    operator = await place.world.person(operator=True)
    visitor = await place.visitor_of(operator)
    assert (await visitor.get("/")).target == "/operator/projects"
    assert (await visitor.post("/operator/projects/new", {"name": ""})).status == 400
    made = await visitor.post("/operator/projects/new", {"name": "Atlas", "owner": operator.id})
    base = made.target.partition("?")[0]
    assert (await visitor.post(f"{base}/name", {"name": "Borealis"})).status == 303
    assert (await visitor.post(f"{base}/name", {"name": "\u202e"})).status == 400
    assert "Archive Borealis?" in (await visitor.get(f"{base}/archive")).text
    assert (await visitor.post(f"{base}/archive")).status == 303
    assert "no key of this project works" in (await visitor.get(base)).text
    assert "none of its keys work" in (await visitor.get(f"{base}/keys")).text
    assert (await visitor.post(f"{base}/restore")).status == 303
    log = await visitor.get(f"{base}/audit")
    assert re.findall(r"<code>(project\.\w+)", log.text) == [
        "project.restore",
        "project.archive",
        "project.rename",
        "project.create",
    ]
    assert re.search(r"renamed the project <a [^>]+>Borealis</a>", log.text)
    assert re.search(r"<del>Atlas</del>.+<ins>Borealis</ins>", log.text)
    only = await visitor.get(f"{base}/audit?action=project.rename")
    assert re.findall(r"<code>project\.(\w+)</code></a></td>", only.text) == ["rename"]
    assert "No entry matches" in (await visitor.get(f"{base}/audit?kind=key")).text
    by_nobody = await visitor.get(f"{base}/audit?actor=system:cli")
    assert "No entry matches" in by_nobody.text
    assert '<option value="system:cli" selected>command line' in by_nobody.text
    assert (await visitor.get(f"{base}/audit?kind=colour")).status == 400


async def test_the_log_is_read_page_by_page(place: Place) -> None:
    operator = await place.world.person(operator=True)
    for _ in range(120):
        await place.world.users.invite(actor_of(operator))
    visitor = await place.visitor_of(operator)
    seen, path = 0, "/operator/audit?action=user.invite"
    while path:
        page = await visitor.get(path)
        seen += len(re.findall(r'title="user.invite lnk_\w+"', page.text))
        older = re.search(r'href="/console(/operator/audit\?[^"]+)">Older', page.text)
        path = older[1].replace("&amp;", "&") if older else ""
    assert seen == 120


async def test_an_operator_sees_to_users(place: Place) -> None:
    operator = await place.world.person(operator=True)
    user = await place.world.person("una", password=PASSWORD)
    visitor = await place.visitor_of(operator)
    theirs = await place.visitor_of(user)
    assert "una@example.org" in (await visitor.get("/operator/users")).text
    here = f"/operator/users/{user.id}"
    assert (await visitor.post(f"{here}/disable")).status == 303
    assert (await theirs.get("/profile")).status == 303
    assert (await visitor.post(f"{here}/enable")).status == 303
    reset = await visitor.post(f"{here}/reset")
    assert "/console/link#" in reset.code("link")
    for rights in ("all", "none"):
        assert (await visitor.post(f"{here}/operator", {"operator": rights})).status == 303
    last = await visitor.post(f"/operator/users/{operator.id}/disable")
    assert (last.status, "last operator" in last.text) == (409, True)
    made = await visitor.post("/operator/invite", {"email": "new@example.org", "operator": "yes"})
    assert "new@example.org" in made.text
    (link,) = await place.world.users.invitations(actor_of(operator))
    assert link.operator
    assert (await visitor.post(f"/operator/invitations/{link.id}/withdraw")).status == 303


async def test_an_operator_removes_a_second_factor(place: Place) -> None:
    operator = await place.world.person(operator=True)
    user = await place.world.person("una", password=PASSWORD)
    await place.world.factor(user)
    visitor, theirs = await place.visitor_of(operator), await place.visitor_of(user)
    listed = (await visitor.get("/operator/users")).text
    offered = re.findall(r"href=.([^\"' ]+)/factor/remove", listed)
    assert offered == [f"/console/operator/users/{user.id}"]
    here = f"/operator/users/{user.id}/factor/remove"
    assert "recovery codes" in (await visitor.get(here)).text
    assert (await visitor.post(here)).target == "/operator/users?done=users-factor-removed"
    assert (await theirs.get("/profile")).status == 303
    assert "/factor/remove" not in (await visitor.get("/operator/users")).text
    again = await visitor.post(here)
    assert (again.status, "no two-factor authentication" in again.text) == (404, True)
    own = await visitor.post(f"/operator/users/{operator.id}/factor/remove")
    assert (own.status, "in your profile" in own.text) == (409, True)


async def test_health_shows_engines_and_targets(place: Place) -> None:
    place.service_view.values = [
        EngineStatus("tiny", EngineState.LOADING, slots=4, progress=0.42),
        EngineStatus("broken", EngineState.FAILED, detail="out of <memory>"),
    ]
    visitor = await place.visitor_of(await place.world.person(operator=True))
    page = await visitor.get("/operator")
    assert "42 %" in page.text
    assert "out of &lt;memory&gt;" in page.text
    assert "queue full" in page.text
    assert "Worker processes" not in page.text
    assert "No requests to this service" in page.text
    place.service_view.days = {"m": day(place.world.now, 0.4, 50.0, range(31, 35))}
    page = await visitor.get("/operator")
    assert re.search(r'aria-label="this service answered [\d,]+ of [\d,]+ requests"', page.text)
    assert page.text.count('class="mark-bad"') == 2  # two half hours in which half of all failed
    polled = await visitor.get("/operator", {"hx-request": "true"})
    assert "sidebar" not in polled.text
    place.service_view.place = (2, 3)
    assert "As worker process 2 of 3 sees it" in (await visitor.get("/operator")).text


async def test_health_has_problems_first_and_targets_on_demand(shop: Place) -> None:
    assert isinstance(shop.service_view, Shop)
    now, many = shop.world.now, many_targets()
    shop.service_view.target_states = [*many]
    good = next(each.name for each in many if each.state == "up")
    provider = good.partition("/")[0]
    shop.service_view.days = {good: day(now, 0.4, 50.0, range(0, 96))}
    owner = await shop.world.person(operator=True)
    project = await shop.world.project(owner=owner)
    at = int(now.timestamp()) * 1_000_000
    spent = {"served_by": good, "amount": Decimal("1.25")}
    await SqlUsage(shop.world.database).append([record(project=project.id, at=at, **spent)])
    visitor = await shop.visitor_of(owner)
    page = await visitor.get("/operator")
    text = page.text
    assert text.index("Problems") < text.index("Providers</h2>")
    assert len(re.findall(r'href="/console/operator\?provider=[^"]*#open"', text)) < 20
    assert good not in text  # targets that are well come on demand
    row = text[text.index(f">{provider}</a>") :]
    row = re.sub(r"<[^>]+>|\s+", " ", row[: row.index("</tr>")])
    assert "50 models" in row
    assert "50." in row  # percent that failed
    assert "$1.25" in row
    opened = await visitor.get(f"/operator?provider={provider}")
    assert good in opened.text
    others = [each.name for each in many if not each.name.startswith(provider)]
    assert not any(f'<strong class="cut" title="{name}"' in opened.text for name in others)


_PROJECT_PAGES = {
    "": Action.PROJECT_SEE,
    "/overview": Action.USAGE_SEE,
    "/keys": Action.KEYS_SEE,
    "/limits": Action.PROJECT_SEE,
    "/logging": Action.PROJECT_SEE,
    "/settings": Action.PROJECT_RENAME,
    "/audit": Action.AUDIT_SEE,
}
_PROJECT_FORMS = {
    "/name": (Action.PROJECT_RENAME, {"name": "Same"}),
    "/networks": (Action.PROJECT_NETWORKS, {"networks": ""}),
    "/archive": (Action.PROJECT_ARCHIVE, {}),
    "/restore": (Action.PROJECT_ARCHIVE, {}),
    "/bounds": (Action.BOUNDS_SET, {}),
    "/recording": (Action.RECORDING_SET, {"days": "7"}),
    "/invite": (Action.MEMBERS_INVITE, {"role": "viewer"}),
    "/members/{other}": (Action.MEMBERS_CHANGE, {"role": "viewer"}),
    "/members/{other}/remove": (Action.MEMBERS_REMOVE, {}),
    "/keys/new": (Action.KEYS_CREATE, {"name": "k"}),
    "/keys/{key}": (Action.KEYS_EDIT, {"name": "k"}),
    "/keys/{key}/disable": (Action.KEYS_DISABLE, {}),
    "/keys/{key}/rotate": (Action.KEYS_ROTATE, {"grace": "0"}),
    "/keys/{key}/delete": (Action.KEYS_DELETE, {}),
}
_SERVICE_PAGES = {
    "/operator": Action.SERVICE_SEE,
    "/operator/users": Action.USERS_SEE,
    "/operator/invite": Action.USERS_INVITE,
    "/operator/projects": Action.USERS_SEE,
    "/operator/projects/new": Action.PROJECTS_CREATE,
    "/operator/audit": Action.SERVICE_SEE,
}


async def test_pages_let_every_role_do_what_the_table_says(place: Place) -> None:
    """Forms are asked for and sent as every role, also those of others' keys and members."""
    world = place.world
    owner = await world.person()
    people = {
        role: await world.person()
        for role in (RoleColumn.OWNER, RoleColumn.ADMIN, RoleColumn.MEMBER)
    }
    people |= {
        RoleColumn.VIEWER: await world.person(),
        RoleColumn.OPERATOR: await world.person(operator=True),
        RoleColumn.OUTSIDER: await world.person(),
    }
    for turn, (part, person) in enumerate(people.items()):
        visitor = await place.visitor_of(person)
        for path, action in _SERVICE_PAGES.items():
            allowed = RIGHTS[action][part] is Extent.ALL
            assert (await visitor.get(path)).status == (200 if allowed else 403), (part, path)
        for pattern, (action, fields) in part_of(_PROJECT_FORMS.items(), turn):
            project = await world.project(owner=owner)
            if part in (RoleColumn.OWNER, RoleColumn.ADMIN, RoleColumn.MEMBER, RoleColumn.VIEWER):
                await world.join(project, person, Role(part))
            other = await world.person()
            await world.join(project, other, Role.MEMBER)
            key = (await world.key(project, owner)).key
            path = pattern.format(other=other.id, key=key.id)
            sees = RIGHTS[Action.PROJECT_SEE][part] is Extent.ALL
            allowed = RIGHTS[action][part] is Extent.ALL
            expected = (200, 303) if allowed else (403,) if sees else (404,)
            form = await visitor.get(f"/projects/{project.id}{path}")  # 405: a button elsewhere
            assert form.status in (*expected, 405), (part, pattern, form.status)
            page = await visitor.post(f"/projects/{project.id}{path}", fields)
            assert page.status in expected, (part, pattern, page.status)
        for path, action in _PROJECT_PAGES.items():
            allowed = RIGHTS[action][part] is Extent.ALL
            sees = RIGHTS[Action.PROJECT_SEE][part] is Extent.ALL
            page = await visitor.get(f"/projects/{project.id}{path}")
            assert page.status == (200 if allowed else 403 if sees else 404), (part, path)
