"""Attacks on the management API: nothing breaks, nothing is disclosed, nothing changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from accountkit import World
from casekit import part_of
from managekit import OPERATOR, Office, office

from causerie.hosted.management.application import ROUTES
from causerie.hosted.management.routing import ApiRoute

STRINGS = (
    "' OR '1'='1",
    "'; DROP TABLE users; --",
    '" OR ""="',
    "1; SELECT pg_sleep(10)--",
    "%' AND 1=0 UNION SELECT password FROM users --",
    "\\' OR 1=1 #",
    "${jndi:ldap://x}",
    "{{7*7}}",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "%00",
    "\x00",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "\u202eabc",
    "a" * 5000,
    "-1",
    "99999999999999999999999999",
    "NULL",
)


@pytest.fixture
async def services(world: World) -> AsyncIterator[Office]:
    async with office(world) as made:
        yield made


def _filled(route: ApiRoute, word: str) -> str:
    path: str = route.path
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", quote(word, safe=""))
    return path


async def test_in_every_path_query_and_body(services: Office) -> None:
    user = await services.world.person("ann")
    await services.world.project(owner=user)
    for turn, route in enumerate(ROUTES):
        for word in part_of(STRINGS, turn):
            answers = []
            if route.parameters:
                empty: object = {} if route.takes_body else None
                answers.append(
                    await services.ask(OPERATOR, _filled(route, word), empty, method=route.method)
                )
            fields = route.query.__struct_fields__
            for name in (*fields, word[:50]):
                path = f"{_filled(route, 'x')}?{quote(name)}={quote(word)}"
                answers.append(await services.ask(OPERATOR, path, method="GET"))
            if route.takes_body:
                for name in (*route.body.__struct_fields__, word):
                    body = {"name": "n", "email": "n@example.org", "role": "member", name: word}
                    answers.append(
                        await services.ask(OPERATOR, _filled(route, "x"), body, method=route.method)
                    )
            for answer in answers:
                assert answer.status < 500, (route.path, word, answer.body)

    assert await _all_there(services)


async def _all_there(services: Office) -> bool:
    users = await services.ask(OPERATOR, "/users?limit=1000")
    projects = await services.ask(OPERATOR, "/projects")
    return "ann@example.org" in users.body.decode() and len(projects.json()["data"]) >= 1


CREDENTIALS = (
    *(f"Bearer {word}" for word in STRINGS if word.isprintable() and word.isascii()),
    "Bearer ck_' OR '1'='1_" + "a" * 43,
    "Bearer ck_abcdefghijkl_" + "'" * 43,
    "Basic Y2tfb3BzOng=",
    OPERATOR,
    f"Bearer {OPERATOR} x",
    f"Bearer {OPERATOR[:-1]}",
    "Bearer \xff\xfe",
    "Bearer",
)


async def test_in_the_authorization_header(services: Office) -> None:
    for shown in CREDENTIALS:
        answer = await services.ask("", "/users", headers={"authorization": shown})
        assert (answer.status, answer.error["type"]) == (401, "authentication_error"), shown
        assert shown == "Bearer" or shown.removeprefix("Bearer ") not in answer.body.decode(), shown


async def test_a_name_is_kept_as_it_is(services: Office) -> None:
    """A text that looks like a query is a name like any other."""
    for word in ("'; DROP TABLE users; --", "<script>alert(1)</script>", "Robert' OR 1=1"):
        made = await services.ask(OPERATOR, "/projects", {"name": word})
        assert made.json()["name"] == word
        seen = await services.ask(OPERATOR, f"/projects/{made.json()['id']}")
        assert seen.json()["name"] == word
