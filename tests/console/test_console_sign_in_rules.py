"""Rules for sign-ins: whose addresses are trusted, which accounts an identity joins,
whether passwords are taken, and how long sessions last; and the record of every sign-in.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from accountkit import PASSWORD, World
from consolekit import Page, Place, console_of
from oidcserver import CLIENT, SECRET, RunningIssuer
from structlog.testing import capture_logs
from test_console_openid import come, follow

from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.people import SYSTEM, GroupGrant
from causerie.hosted.accounts.tokens import SessionClient, SignInPolicy
from causerie.hosted.identity.provider import IdentityHttp, OidcProvider, ProviderOptions

ENTRA = {"email_verified": None, "email": "grace@example.org"}
"""Claims as Entra ID sends them: nothing says that the address is verified."""


@dataclass
class Company:
    world: World
    oidc: RunningIssuer

    def served(self, **options: Any) -> AbstractAsyncContextManager[Place]:
        """A console whose identity provider has these options."""
        made = ProviderOptions("test", "The Test", self.oidc.issuer, CLIENT, SECRET, **options)
        provider = OidcProvider(made, IdentityHttp(seconds=2.0), now=time.time)
        return console_of(self.world, providers=[provider])

    async def signs_in(self, claims: dict[str, Any], **options: Any) -> Page:
        """One sign-in with these claims, at a provider with these options."""
        self.oidc.behave(claims=claims)
        async with self.served(**options) as place:
            return await come(place.visitor())

    async def why(self) -> str:
        """Return the recorded reason of the last sign-in, which was refused."""
        last = (await self.world.sign_ins())[-1]
        assert last.action == "sign_in.refuse"
        assert last.details["method"] == self.oidc.issuer
        assert last.details["address"] == "127.0.0.1"
        return last.details["why"]


@pytest.fixture
def company(lite: World, oidc: RunningIssuer) -> Company:
    return Company(lite, oidc)


async def test_addresses_of_an_issuer_are_trusted_for_given_domains(company: Company) -> None:
    everybody = frozenset({"*"})
    with capture_logs() as lines:
        assert (await company.signs_in(ENTRA, domains=everybody)).status == 401
    unverified = (
        "no account has this identity, and grace@example.org is not verified by the provider"
    )
    assert await company.why() == unverified
    [line] = [one for one in lines if one["event"] == "sign_in.refused"]
    assert (line["why"], line["log_level"]) == (unverified, "warning")

    trusted = frozenset({"example.org"})
    denied = ENTRA | {"email_verified": False}
    assert (
        await company.signs_in(denied, domains=everybody, trusted_domains=trusted)
    ).status == 401
    other = ENTRA | {"email": "eve@evil.org"}
    assert (await company.signs_in(other, domains=everybody, trusted_domains=trusted)).status == 401
    below = ENTRA | {"email": "eve@sub.example.org"}
    assert (await company.signs_in(below, domains=everybody, trusted_domains=trusted)).status == 401
    entered = await company.signs_in(ENTRA, domains=everybody, trusted_domains=trusted)
    assert entered.status == 303, entered.text
    [user] = await company.world.users.every(SYSTEM)
    assert user.email == "grace@example.org"
    last = (await company.world.sign_ins())[-1]
    assert (last.action, last.subject, last.actor) == (
        "sign_in.succeed",
        user.id,
        f"user:{user.id}",
    )


async def test_claims_are_configured(company: Company) -> None:
    claims = {"email": None, "preferred_username": "Grace@Example.org", "nick": "Amazing Grace"}
    options = {"email_claim": "preferred_username", "name_claim": "nick", "domains": {"*"}}
    page = await company.signs_in(claims, **options, verified_claim="")
    assert page.status == 401, "`email_verified` is about another claim"
    verified = claims | {"xms_edov": 1}
    assert (await company.signs_in(verified, **options, verified_claim="xms_edov")).status == 303
    [user] = await company.world.users.every(SYSTEM)
    assert (user.email, user.name) == ("grace@example.org", "Amazing Grace")


async def test_every_refusal_has_its_reason(company: Company) -> None:
    world = company.world
    verified = {"email": "ada@example.org"}
    await company.signs_in({"email": None}, domains={"example.org"})  # userinfo has Ada's address
    assert (await company.world.sign_ins())[-1].action == "sign_in.succeed"
    [ada] = await world.users.every(SYSTEM)

    await company.signs_in(verified | {"sub": "b"}, domains={"example.org"})
    assert await company.why() == "This address has an account already; sign in with it."
    await company.signs_in({"email": "ada@other.org", "sub": "b"}, domains={"example.org"})
    words = "no account has this identity, and other.org is none of the domains that may sign up"
    assert await company.why() == words
    await company.signs_in({"email": "nonsense", "sub": "b"}, domains={"*"})
    assert (await company.why()).endswith("the provider gives no address")
    await company.signs_in({"aud": "another"})
    assert await company.why() == "it is for somebody else"

    await world.person("boss", operator=True)
    await world.users.disable(SYSTEM, ada.id)
    await company.signs_in(verified, domains={"*"})
    assert await company.why() == "the account is disabled"
    last = (await world.sign_ins())[-1]
    assert (last.subject, last.actor) == (ada.id, f"user:{ada.id}")


@pytest.mark.parametrize("join", ["never", "unclaimed", "all"])
async def test_accounts_that_were_made_beforehand_are_joined(company: Company, join: str) -> None:
    world = company.world
    unclaimed = await world.person("unclaimed")
    claimed = await world.person("claimed", password=PASSWORD)
    entered = []
    for user in (unclaimed, claimed):
        claims = {"sub": user.id, "email": user.email}
        eve = claims | {"email_verified": False, "sub": "eve"}
        assert (await company.signs_in(eve, join=join)).status == 401
        if (await company.signs_in(claims, join=join)).status == 303:
            entered.append(user.name)
            assert (await world.sign_ins())[-1].subject == user.id
    expected = {"never": [], "unclaimed": ["unclaimed"], "all": ["unclaimed", "claimed"]}
    assert entered == expected[join]
    assert len(await world.users.every(SYSTEM)) == 2


@asynccontextmanager
async def ruled(world: World, policy: SignInPolicy) -> AsyncIterator[Place]:
    world.sign_in.policy = policy
    async with console_of(world) as place:
        yield place


async def test_passwords_can_be_left_to_operators_or_nobody(lite: World) -> None:
    ada = await lite.person("ada", password=PASSWORD)
    boss = await lite.person("boss", password=PASSWORD, operator=True)
    async with console_of(lite) as place:
        visitor, chief = place.visitor(), place.visitor()
        assert (await visitor.sign_in(ada)).status == 303
        assert (await chief.sign_in(boss)).status == 303
        lite.sign_in.policy = SignInPolicy("operators")
        assert (await visitor.get("/profile")).status == 303, "that session began with a password"
        assert (await chief.get("/profile")).status == 200
        assert 'name="password"' in (await place.visitor().get("/sign-in")).text
        refused = await place.visitor().sign_in(ada)
        assert refused.status == 403
        assert "Sign in with your identity provider" in refused.text
        last = (await lite.sign_ins())[-1]
        assert (last.action, last.subject) == ("sign_in.refuse", ada.id)
        wrong = await place.visitor().sign_in(ada, "another password entirely")
        assert wrong.status == 401, "who does not know the password learns nothing"

        lite.sign_in.policy = SignInPolicy("off")
        assert (await chief.get("/profile")).status == 303
        assert (await place.visitor().sign_in(boss)).status == 403
        assert 'name="password"' not in (await place.visitor().get("/sign-in")).text
        link = await lite.users.invite(SYSTEM, email="new@example.org")
        guest = place.visitor()
        await guest.get("/link")
        shown = await guest.post("/link", {"token": link.token})
        assert shown.status == 200
        assert 'name="password"' not in shown.text
        given = {"token": link.token, "name": "New", "password": PASSWORD}
        assert (await guest.post("/link/account", given)).status == 403


async def test_a_second_factor_comes_before_anything_else(lite: World) -> None:
    ada = await lite.person("ada", password=PASSWORD)
    own = await lite.project(owner=ada)
    async with ruled(lite, SignInPolicy(two_factor=True)) as place:
        visitor = place.visitor()
        assert (await visitor.sign_in(ada)).status == 303
        overview = f"/projects/{own.id}/overview"
        for path in ("/", overview, "/profile/factor/remove", "/operator"):
            assert (await visitor.get(path)).target == "/profile?done=factor-required"
        assert (await visitor.post("/profile/name", {"name": "Eve"})).status == 303
        assert (await lite.users.see(SYSTEM, ada.id)).name == "ada"
        notice = await visitor.get("/profile?done=factor-required")
        assert "requires two-factor authentication" in notice.text
        await visitor.post("/profile/factor")
        async with lite.store.reading() as tx:
            factor = await tx.factors.find(ada.id)
        assert factor is not None
        code = passwords.totp_code_at(factor.secret, int(lite.now.timestamp()) // 30)
        codes = await visitor.post("/profile/factor/confirm", {"code": code})
        assert len(codes.code("codes").split()) == passwords.RECOVERY_CODES
        assert "done=factor-required" not in (await visitor.get("/")).headers.get("location", "")

        await lite.users.link_identity(ada, "https://id.example", "ada-1")
        boss = await lite.person("boss")
        await lite.users.link_identity(boss, "https://id.example", "boss")
        by_provider = place.visitor()
        begun = await lite.sign_in.with_identity("https://id.example", "boss", SessionClient())
        by_provider.cookies["causerie"] = begun.token
        assert (await by_provider.get("/profile/factor/remove")).status == 200, "it has its own"


async def test_sessions_last_as_long_as_the_operator_says(lite: World) -> None:
    ada = await lite.person("ada", password=PASSWORD)
    policy = SignInPolicy(life=timedelta(hours=8), idle=timedelta(hours=1))
    async with ruled(lite, policy) as place:
        visitor = place.visitor()
        entered = await visitor.sign_in(ada)
        assert "Max-Age=28800" in entered.headers["set-cookie"]
        for _ in range(8):
            lite.later(minutes=59)
            assert (await visitor.get("/profile")).status == 200
        lite.later(minutes=9)
        assert (await visitor.get("/profile")).status == 303
        await visitor.sign_in(ada)
        lite.later(minutes=61)
        assert (await visitor.get("/profile")).status == 303
        await visitor.sign_in(ada)
        lite.later(minutes=30)
        lite.sign_in.policy = SignInPolicy(life=timedelta(minutes=20))
        assert (await visitor.get("/profile")).status == 303, "also of sessions that there are"


async def test_sign_ins_with_passwords_are_recorded(lite: World) -> None:
    ada = await lite.person("ada", password=PASSWORD)
    await lite.factor(ada)
    async with console_of(lite) as place:
        visitor = place.visitor()
        await visitor.sign_in(ada, "not the password")
        await visitor.get("/sign-in")
        for email in ("nobody@example.org", "my secret password"):
            await visitor.post("/sign-in", {"email": email, "password": "x"})
        assert (await visitor.sign_in(ada)).target.startswith("/sign-in/code")
        await visitor.get("/sign-in/code")
        assert (await visitor.post("/sign-in/code", {"code": "000000"})).status == 401
        async with lite.store.reading() as tx:
            factor = await tx.factors.find(ada.id)
        assert factor is not None
        lite.later(seconds=60)
        code = passwords.totp_code_at(factor.secret, int(lite.now.timestamp()) // 30)
        assert (await visitor.post("/sign-in/code", {"code": code})).status == 303
        recorded = [
            (one.action.removeprefix("sign_in."), one.subject, one.details.get("why", ""))
            for one in await lite.sign_ins()
        ]
        assert recorded == [
            ("refuse", ada.id, "the password is wrong"),
            ("refuse", "nobody@example.org", "no account has this address"),
            ("refuse", "", "no account has this address"),
            ("refuse", ada.id, "The code is wrong or was used before."),
            ("succeed", ada.id, ""),
        ]
        boss = await place.visitor_of(await lite.person("boss", operator=True))
        shown = (await boss.get("/operator/audit?kind=sign_in")).text
        for words in ("sign-in page", "nobody@example.org", "was refused", "signed in", "Sign-ins"):
            assert words in shown


async def test_an_identity_is_checked_again_while_its_session_goes_on(company: Company) -> None:
    """The provider is asked by the browser, so that its person notices nothing."""
    world, issuer = company.world, company.oidc.issuer
    user = await world.person("grace")
    await world.users.link_identity(user, issuer, "ada-1")
    project = await world.project()
    rules = [GroupGrant("staff", project.id)]
    world.sign_in.policy = SignInPolicy(lives={issuer: timedelta(minutes=30)})
    async with company.served(groups=rules) as place:
        company.oidc.behave(claims={"groups": ["staff"]})
        visitor = place.visitor()
        assert (await come(visitor)).status == 303
        keys = f"/projects/{project.id}/keys"
        assert (await visitor.get(keys)).status == 200
        world.later(minutes=29)
        assert (await visitor.get(keys)).status == 200
        world.later(minutes=2)
        company.oidc.behave(claims={"groups": []})
        lost = await visitor.get(keys)
        assert lost.target == f"/sign-in/test?next=/console{keys}"
        kept = await visitor.post(f"/projects/{project.id}/name", {"name": "Other"})
        assert (kept.status, "Other" in kept.text) == (401, True), "what was typed is not lost"
        away = await visitor.get(lost.target)
        back = await visitor.get(await follow(visitor, away.headers["location"]))
        assert back.target == keys
        assert (await visitor.get(keys)).status == 404, "a group fewer"
        world.later(minutes=31)
        company.oidc.behave(denied=True)
        begun = await visitor.get("/sign-in/test?next=")
        refused = await visitor.get(await follow(visitor, begun.headers["location"]))
        assert refused.status == 401
        assert (await visitor.get("/profile")).target.startswith("/sign-in/test?")
        world.sign_in.policy = SignInPolicy(lives={issuer: timedelta(minutes=30)})
        world.later(days=8)
        assert (await visitor.get("/profile")).target.startswith("/sign-in?"), "it was idle"
