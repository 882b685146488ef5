"""Text that people write into fields stays text: on pages, in the database, in addresses."""

from __future__ import annotations

from decimal import Decimal
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from accountkit import PASSWORD, World
from casekit import first_of
from consolekit import Place, Visitor, console_of

from causerie.hosted.accounts.bounds import Budget, LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM, User, actor_of
from causerie.http.pages.templating import coded

MARKUP = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "{{ 135419790 + 1 }}{% raw %}",
    "javascript:alert(1)",
    "</textarea></title><script src=//evil.example></script>",
]
SQL = ["'; DROP TABLE users; --", "' OR '1'='1", "\\'; SELECT 1; --", "%_%", "x' UNION SELECT 1 --"]


async def _filled(world: World, text: str) -> tuple[User, str]:
    """A project in which every name is this text."""
    user = await world.users.create(
        SYSTEM, email="a@example.org", name=text, password=PASSWORD, operator=True
    )
    project = await world.projects.create(actor_of(user), text)
    bounds = LimitsAndBudgets(budgets=(Budget(Decimal(1), model=text),))
    models = frozenset({text})
    await world.key(project, user, name=text, models=models, doors=models, bounds=bounds)
    await world.projects.set_bounds(actor_of(user), project.id, bounds)
    return user, project.id


def _paths(project_id: str, key_id: str, user_id: str) -> list[str]:
    base = f"/projects/{project_id}"
    key, member = f"{base}/keys/{key_id}", f"{base}/members/{user_id}"
    return [
        *("/profile", base, f"{base}/keys", f"{base}/keys/new", f"{base}/bounds"),
        *(f"{base}/audit", f"{base}/invite", f"{base}/archive", key, f"{key}/rotate"),
        *(f"{key}/delete", member, f"{member}/remove", "/operator", "/operator/users"),
        *("/operator/projects", "/operator/projects/new", "/operator/audit", "/profile"),
        f"/operator/users/{user_id}/disable",
        f"/operator/users/{user_id}/bounds",
        f"/operator/users/{user_id}/factor/remove",
    ]


class Elements(HTMLParser):
    """Looks at a page as a browser does, and complains about what is not ours."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("img", "iframe", "style", "object", "base"), tag
        assert tag != "script" or "src" in dict(attrs)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            assert name != "style", tag
            if name in ("src", "href", "action", "hx-get", "hx-post"):
                assert (value or "").startswith(("/console/", "/docs", "#main", "#whole", "?")), (
                    tag,
                    name,
                    value,
                )


@pytest.mark.parametrize("text", first_of(MARKUP, every=3))
async def test_markup_in_names_stays_text_on_every_page(place: Place, text: str) -> None:
    user, project_id = await _filled(place.world, text)
    (key,) = await place.world.keys.of(actor_of(user), project_id)
    visitor = await place.visitor_of(user)
    for path in _paths(project_id, key.id, user.id):
        page = await visitor.get(path)
        assert page.status == 200, path
        assert "135419791" not in page.text
        Elements().feed(page.text)


@pytest.mark.parametrize("text", first_of([*MARKUP, *SQL], every=3))
async def test_whatever_is_typed_comes_back_as_it_was(place: Place, text: str) -> None:
    user = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=user)
    visitor = await place.visitor_of(user)
    assert (await visitor.post("/profile/name", {"name": text})).status == 303
    async with place.world.store.reading() as repositories:
        kept = await repositories.people.find(user.id)
    assert kept is not None
    assert kept.name == " ".join(text.split())
    wrong = await visitor.post(
        f"/projects/{project.id}/keys/new",
        {"name": text, "end": text, "date": text, "purpose": text, "limit_concurrent": text},
    )
    assert wrong.status == 400
    assert "<script>" not in wrong.text
    assert "<img" not in wrong.text


async def _send_everywhere(visitor: Visitor, project_id: str, text: str) -> None:
    base = f"/projects/{project_id}"
    names = ("name", "email", "password", "old", "code", "token", "role", "grace", "keys", "end")
    names += ("date", "purpose", "doors_all", "doors", "models_all", "models", "next", "owner")
    names += ("limit_model", "limit_concurrent", "budget_amount", "budget_model", "budget_unit")
    fields = dict.fromkeys(names, text)
    posts = ("/link", "/link/account", "/link/join", "/link/password", "/profile/name")
    posts += ("/profile/password", "/profile/factor/confirm", "/profile/factor/remove")
    posts += (f"{base}/name", f"{base}/bounds", f"{base}/invite", f"{base}/keys/new")
    posts += ("/operator/invite", "/operator/projects/new", "/sign-in/code", "/sign-in")
    for path in posts:
        page = await visitor.post(path, fields)
        assert page.status < 500, (path, text, page.status)
    for value in ("action", "actor", "subject", "before", "done", "next"):
        for path in ("/operator/audit", "/sign-in"):
            page = await visitor.get(f"{path}?{value}={quote(text)}")
            assert page.status < 500, (path, value, page.status)


@pytest.mark.parametrize(
    "text",
    first_of([*SQL[:2], "\0", "\ufffd\u202e", "é" * 5000], every=3),
    ids=("or", "drop", "zero", "unseen", "long"),
)
async def test_no_text_breaks_a_page(world: World, text: str) -> None:
    """On both databases: each refuses other texts."""
    user = await world.person(operator=True, password=PASSWORD)
    project = await world.project(owner=user)
    async with console_of(world) as place:
        visitor = await place.visitor_of(user)
        await _send_everywhere(visitor, project.id, text)
        for part in ("%00", "%27%3B--", "%2e%2e", "%ff", "%25"):
            for path in ("/projects/", f"/projects/{project.id}/keys/", "/operator/users/"):
                page = await visitor.post(f"{path}{part}/disable")
                assert page.status in (403, 404), (path, part, page.status)
                assert (await visitor.get(f"{path}{part}")).status == 404
    assert await world.users.every(SYSTEM)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("no `<b>` here", "no <code>&lt;b&gt;</code> here"),
        ("<i>`a` or `b`</i>", "&lt;i&gt;<code>a</code> or <code>b</code>&lt;/i&gt;"),
        ("one ` alone <i>", "one ` alone &lt;i&gt;"),
    ],
)
def test_words_between_backticks_are_code_and_nothing_else_is_markup(
    words: str, shown: str
) -> None:
    assert coded(words) == shown
