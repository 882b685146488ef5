"""Signing in by another provider, through the pages and a provider's own process."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import aiohttp
import pytest
from accountkit import PASSWORD, World
from consolekit import Page, Place, Visitor, console_of
from hostedkit import config
from oidcserver import CLIENT, SECRET, RunningIssuer
from servicekit import service_view

from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.people import SYSTEM, Role, User, actor_of
from causerie.hosted.identity.provider import IdentityHttp, OidcProvider, ProviderOptions

BACK = "/sign-in/test/back?"


@pytest.fixture
async def place(lite: World, oidc: RunningIssuer) -> AsyncIterator[Place]:
    oidc.behave()
    options = ProviderOptions(
        "test", "The Test", oidc.issuer, CLIENT, SECRET, domains=frozenset({"example.com"})
    )
    provider = OidcProvider(options, IdentityHttp(seconds=2.0), now=time.time)
    async with console_of(lite, providers=[provider]) as served:
        yield served


async def follow(visitor: Visitor, address: str) -> str:
    """To the provider; gives where it leads back to, below the console."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(address, allow_redirects=False) as response,
    ):
        assert response.status == 302, await response.text()
        place = response.headers["location"]
    root = f"http://127.0.0.1:{visitor.port}/console"
    assert place.startswith(root + BACK), place
    return place.removeprefix(root)


async def come(visitor: Visitor, after: str = "") -> Page:
    """All the way, by the link of the page to sign in."""
    begun = await visitor.get(f"/sign-in/test?next={after}")
    assert begun.status == 303, begun.text
    return await visitor.get(await follow(visitor, begun.headers["location"]))


async def linked(place: Place, oidc: RunningIssuer) -> User:
    user = await place.world.person("grace", password=PASSWORD)
    await place.world.users.link_identity(user, oidc.issuer, "ada-1")
    return user


async def test_whoever_is_known_comes_in(place: Place, oidc: RunningIssuer) -> None:
    await linked(place, oidc)
    visitor = place.visitor()
    shown = await visitor.get("/sign-in?next=/console/profile")
    assert 'href="/console/sign-in/test?next=/console/profile"' in shown.text
    assert "Continue with The Test" in shown.text
    before = dict(visitor.cookies)
    entered = await come(visitor, "/console/profile")
    assert (entered.status, entered.target) == (303, "/profile")
    assert "HttpOnly; SameSite=Lax" in entered.headers["set-cookie"]
    assert visitor.cookies != before
    assert "grace@example.org" in (await visitor.get("/profile")).text


async def test_nothing_about_the_attempt_can_be_read_on_the_way(place: Place) -> None:
    begun = await place.visitor().get("/sign-in/test?next=/console/profile")
    address = begun.headers["location"]
    assert "/console/profile" not in address.replace("%2F", "/")
    assert SECRET not in address
    assert begun.headers["cache-control"] == "no-store"


async def test_nobody_else_comes_in(place: Place) -> None:
    visitor = place.visitor()
    refused = await come(visitor)
    assert refused.status == 401
    assert "No account here belongs to this identity" in refused.text
    assert (await visitor.get("/profile")).status == 303


async def test_addresses_of_listed_domains_sign_up(place: Place, oidc: RunningIssuer) -> None:
    name = "<script>alert(1)</script>"
    oidc.behave(claims={"email": "ada@example.com", "name": name})
    visitor = place.visitor()
    assert (await come(visitor)).status == 303
    page = await visitor.get("/profile")
    assert "ada@example.com" in page.text
    assert name not in page.text
    assert "&lt;script&gt;" in page.text
    oidc.behave(claims={"email": "eve@example.com", "email_verified": False, "sub": "eve"})
    assert (await come(place.visitor())).status == 401


async def test_an_invitation_is_followed_by_a_provider(place: Place) -> None:
    owner = await place.world.person("owner")
    project = await place.world.project(owner=owner)
    link = await place.world.projects.invite(actor_of(owner), project.id, role=Role.MEMBER)
    visitor = place.visitor()
    await visitor.get("/link")
    shown = await visitor.post("/link", {"token": link.token})
    assert 'action="/console/link/with/test"' in shown.text
    away = await visitor.post("/link/with/test", {"token": link.token})
    address = away_address(away)
    assert link.token not in address
    back = await follow(visitor, address)
    assert (await visitor.get(back)).status == 303
    assert project.name in (await visitor.get("/profile")).text
    thief = place.visitor()
    await thief.get("/link")
    assert (await thief.post("/link/with/test", {"token": link.token})).status == 404


async def test_who_is_known_finds_the_invitation_behind_the_provider(
    place: Place, oidc: RunningIssuer
) -> None:
    """The provider's word opens their account; the link they came by has still to be accepted."""
    user, owner = await linked(place, oidc), await place.world.person("owner")
    project = await place.world.project(owner=owner)
    link = await place.world.projects.invite(actor_of(owner), project.id, role=Role.MEMBER)
    visitor = place.visitor()
    await visitor.get("/link")
    away = await visitor.post("/link/with/test", {"token": link.token})
    entered = await visitor.get(await follow(visitor, away_address(away)))
    assert entered.target == f"/link#{link.token}"
    await visitor.get("/link")
    assert f"Join {project.name}" in (await visitor.post("/link", {"token": link.token})).text
    joined = await visitor.post("/link/join", {"token": link.token})
    assert joined.target == f"/projects/{project.id}/keys?done=joined"
    assert [each.id for each, _ in await place.world.projects.of(user)] == [project.id]


def away_address(page: Page) -> str:
    found = re.search(r'class="button button-main button-wide" href="([^"]+)"', page.text)
    assert found, page.text
    return unescape(found[1])


async def test_an_answer_is_worth_something_only_in_its_own_browser(
    place: Place, oidc: RunningIssuer
) -> None:
    """Somebody sends their own answer to another, who would then work in a foreign account."""
    await linked(place, oidc)
    thief, victim = place.visitor(), place.visitor()
    begun = await thief.get("/sign-in/test")
    back = await follow(thief, begun.headers["location"])
    await victim.get("/sign-in")
    for visitor in (victim, place.visitor()):
        refused = await visitor.get(back)
        assert refused.status == 401
        assert "was not completed" in refused.text
        assert (await visitor.get("/profile")).status == 303
    oidc.behave(back={"state": "1.planted.AAAA"})
    assert (await come(victim)).status == 401
    for path in (
        BACK,
        BACK + "code=x",
        BACK + "code=x&state=" + "x" * 9000,
        BACK + "error=access_denied&error_description=<b>you",
    ):
        page = await victim.get(path)
        assert page.status == 401
        assert "<b>you" not in page.text


async def test_answers_that_nobody_gave_are_slowed_down(place: Place, oidc: RunningIssuer) -> None:
    await linked(place, oidc)
    visitor = place.visitor()
    await visitor.get("/sign-in")
    for number in range(20):
        assert (await visitor.get(f"{BACK}state=guess{number}&code=guess")).status == 401
    page = await visitor.get(f"{BACK}state=guess&code=guess")
    assert page.status == 429
    assert "Try again in a second." in page.text
    place.world.later(seconds=1)
    assert (await come(place.visitor())).status == 303


async def test_an_answer_works_once(place: Place, oidc: RunningIssuer) -> None:
    await linked(place, oidc)
    visitor = place.visitor()
    begun = await visitor.get("/sign-in/test")
    back = await follow(visitor, begun.headers["location"])
    assert (await visitor.get(back)).status == 303
    assert (await visitor.get(back)).status == 401  # the session is another one now


@pytest.mark.parametrize(
    "after", ["//evil.example", "https://evil.example", "/console//evil.example", "\\\\evil"]
)
async def test_nobody_is_led_elsewhere(place: Place, oidc: RunningIssuer, after: str) -> None:
    await linked(place, oidc)
    assert (await come(place.visitor(), after)).headers["location"] == "/console/"


async def test_who_does_not_want_to_and_a_provider_that_is_away(
    place: Place, oidc: RunningIssuer
) -> None:
    oidc.behave(denied=True)
    assert (await come(place.visitor())).status == 401
    oidc.behave(token="broken")
    page = await come(place.visitor())
    assert page.status == 502
    assert "Try again in a while" in page.text
    assert (await place.visitor().get("/sign-in/other")).status == 404
    assert (await place.visitor().get("/sign-in/other/back")).status == 404


async def test_an_identity_is_linked_and_unlinked(place: Place, oidc: RunningIssuer) -> None:
    user = await place.world.person("grace", password=PASSWORD)
    visitor = await place.visitor_of(user)
    assert "Add The Test" in (await visitor.get("/profile")).text
    assert (await visitor.post("/profile/identities/test/link", {"form_token": "x"})).status == 403
    away = await visitor.post("/profile/identities/test/link")
    back = await follow(visitor, away_address(away))
    assert (await visitor.get(back)).target == "/profile?done=identity-linked"
    assert (await come(place.visitor())).status == 303

    other = await place.visitor_of(await place.world.person("eve", password=PASSWORD))
    away = await other.post("/profile/identities/test/link")
    assert (await other.get(await follow(other, away_address(away)))).status == 409
    named = {"issuer": oidc.issuer, "subject": "ada-1"}
    assert (await other.post("/profile/identities/unlink", named)).status == 404

    gone = await visitor.post("/profile/identities/unlink", named)
    assert gone.target == "/profile?done=identity-unlinked"
    assert (await come(place.visitor())).status == 401
    assert {"user.link_identity", "user.unlink_identity"} < set(await place.world.actions())


async def test_who_signs_out_on_the_way_links_nothing(place: Place) -> None:
    user = await place.world.person("grace", password=PASSWORD)
    visitor = await place.visitor_of(user)
    away = await visitor.post("/profile/identities/test/link")
    back = await follow(visitor, away_address(away))
    await visitor.post("/sign-out")
    assert (await visitor.get(back)).status == 401
    assert await place.world.users.identities(user) == []


async def test_the_last_way_in_stays(place: Place, oidc: RunningIssuer) -> None:
    oidc.behave(claims={"email": "ada@example.com"})
    visitor = place.visitor()
    await come(visitor)
    await visitor.get("/profile")
    named = {"issuer": oidc.issuer, "subject": "ada-1"}
    assert (await visitor.post("/profile/identities/unlink", named)).status == 409
    [user] = [each for each in await place.world.users.every(SYSTEM) if each.name == "Ada"]
    await place.world.users.link_identity(user, "https://another.example", "a")
    assert (await visitor.post("/profile/identities/unlink", named)).status == 303


async def test_without_a_password_none_is_asked_for(place: Place, oidc: RunningIssuer) -> None:
    oidc.behave(claims={"email": "ada@example.com"})
    visitor = place.visitor()
    await come(visitor)
    await visitor.get("/profile")
    await visitor.post("/profile/factor")
    [user] = [each for each in await place.world.users.every(SYSTEM) if each.name == "Ada"]
    async with place.world.store.reading() as repositories:
        factor = await repositories.factors.find(user.id)
    assert factor is not None
    now = passwords.totp_code_at(factor.secret, int(place.world.now.timestamp()) // 30)
    codes = await visitor.post("/profile/factor/confirm", {"code": now})
    asked = await visitor.get("/profile/factor/remove")
    assert 'name="password"' not in asked.text
    recovery = codes.code("codes").split()[0]
    removed = await visitor.post("/profile/factor/remove", {"code": recovery})
    assert removed.target == "/profile?done=factor-removed"


async def test_a_service_offers_what_its_settings_name(tmp_path: Path, oidc: RunningIssuer) -> None:
    oidc.behave()
    provider = (
        f'[[identity_providers]]\nname = "work"\nissuer = "{oidc.issuer}"\n'
        f'client_id = "{CLIENT}"\nclient_secret = {{ env = "WORK_SECRET" }}\n'
    )
    plain = config()
    async with service_view(tmp_path, plain + provider, WORK_SECRET="s") as service:
        async with service.session.get(f"{service.root}/console/sign-in") as page:
            assert "Continue with work" in await page.text()
        address = f"{service.root}/console/sign-in/work"
        async with service.session.get(address, allow_redirects=False) as away:
            assert away.status == 303
            assert away.headers["location"].startswith(f"{oidc.issuer}/authorize?")
        assert (await service.reload(plain)).applied
        async with service.session.get(address, allow_redirects=False) as away:
            assert away.status == 404
