"""Groups of an identity provider become memberships at each sign-in, and end at one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from accountkit import World
from consolekit import Place, console_of
from oidcserver import CLIENT, SECRET, RunningIssuer
from test_console_openid import come

from causerie.hosted.accounts.keys import KeyState
from causerie.hosted.accounts.people import (
    SYSTEM,
    GroupClaims,
    GroupGrant,
    Project,
    Role,
    User,
    actor_of,
)
from causerie.hosted.accounts.provisioning import ProvisionedPerson, WantedGroup
from causerie.hosted.identity.provider import IdentityHttp, OidcProvider, ProviderOptions


@dataclass
class Company:
    """A console, an identity provider whose groups give something, and somebody in them."""

    place: Place
    oidc: RunningIssuer
    atlas: Project
    zephyr: Project
    user: User

    async def sign_in(self, *groups: str, told: bool = False) -> int:
        """Sign in with these groups in the token, or with ``told`` at the userinfo endpoint."""
        given = {"groups": [*groups]}
        self.oidc.behave(**({"told": given} if told else {"claims": given}))
        return (await come(self.place.visitor())).status

    async def roles(self) -> dict[str, tuple[Role, str]]:
        """Return role and mark by project."""
        found = await self.place.world.projects.of(self.user)
        return {project.id: (each.role, each.from_group) for project, each in found}

    async def operator(self) -> bool:
        return (await self.place.world.users.see(SYSTEM, self.user.id)).operator


@asynccontextmanager
async def company_of(
    lite: World, oidc: RunningIssuer, *, provisioned: bool = False
) -> AsyncIterator[Company]:
    atlas, zephyr = await lite.project(owner=await lite.person("olga")), await lite.project()
    rules = [
        GroupGrant("staff", atlas.id, Role.VIEWER),
        GroupGrant("builders", atlas.id),
        GroupGrant("builders", zephyr.id, Role.ADMIN),
        GroupGrant("builders", "prj_gone", Role.ADMIN),
        GroupGrant("platform", operator=True),
        GroupGrant("finance", rights=frozenset({"read", "usage"})),
        GroupGrant("help", rights=frozenset({"people"})),
    ]
    options = ProviderOptions(
        *("test", "The Test", oidc.issuer, CLIENT, SECRET), groups=rules, provisioned=provisioned
    )
    provider = OidcProvider(options, IdentityHttp(seconds=2.0), now=time.time)
    user = await lite.person("grace")
    await lite.users.link_identity(user, oidc.issuer, "ada-1")
    async with console_of(lite, providers=[provider]) as place:
        yield Company(place, oidc, atlas, zephyr, user)


@pytest.fixture
async def company(lite: World, oidc: RunningIssuer) -> AsyncIterator[Company]:
    async with company_of(lite, oidc) as found:
        yield found


async def test_memberships_follow_groups(company: Company) -> None:
    world, atlas, zephyr = company.place.world, company.atlas, company.zephyr
    assert await company.sign_in("staff", "strangers") == 303
    assert await company.roles() == {atlas.id: (Role.VIEWER, "test:staff")}

    assert await company.sign_in("staff", "builders", told=True) == 303
    assert await company.roles() == {
        atlas.id: (Role.MEMBER, "test:builders"),
        zephyr.id: (Role.ADMIN, "test:builders"),
    }
    key = await world.key(atlas, company.user)
    before = await world.actions()
    assert await company.sign_in("staff", "builders") == 303
    assert await world.actions() == before, "a sign-in that changes nothing writes nothing"
    olga = await company.place.visitor_of(await world.person("boss", operator=True))
    assert "by group" in (await olga.get(f"/projects/{atlas.id}")).text

    assert await company.sign_in() == 303
    assert await company.roles() == {}
    (kept,) = await world.keys.of(SYSTEM, atlas.id)
    assert (kept.id, kept.state(world.now)) == (key.key.id, KeyState.WITHDRAWN)
    changes = [each for each in await world.actions() if each.startswith("member.")]
    assert changes[:1] == ["member.join"]
    assert sorted(changes[1:]) == ["member.change", "member.join", *["member.remove"] * 2]


async def test_what_was_given_by_hand_stays(company: Company) -> None:
    world = company.place.world
    await world.join(company.atlas, company.user, Role.VIEWER)
    assert await company.sign_in("builders") == 303
    assert (await company.roles())[company.atlas.id] == (Role.VIEWER, "")
    assert await company.sign_in() == 303
    assert await company.roles() == {company.atlas.id: (Role.VIEWER, "")}


async def test_groups_that_are_told_elsewhere_change_nothing(company: Company) -> None:
    """As some providers do for people of very many groups: what is not known ends nothing."""
    assert await company.sign_in("staff") == 303
    company.oidc.behave(claims={"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {}}})
    assert (await come(company.place.visitor())).status == 303
    assert await company.roles() == {company.atlas.id: (Role.VIEWER, "test:staff")}


async def test_a_group_makes_operators_but_never_ends_the_last_one(company: Company) -> None:
    world = company.place.world
    assert await company.sign_in("platform") == 303
    assert await company.operator()
    assert await company.sign_in() == 303
    assert await company.operator(), "the service would have none"
    boss = await world.person("boss", operator=True)
    assert await company.sign_in() == 303
    assert not await company.operator()
    await world.users.make_operator(actor_of(boss), company.user.id)
    assert await company.sign_in() == 303
    assert await company.operator(), "made one by hand"


async def test_a_group_makes_limited_operators(company: Company) -> None:
    world = company.place.world
    boss = await world.person("boss", operator=True)

    async def rights() -> tuple[bool, set[str]]:
        user = await world.users.see(SYSTEM, company.user.id)
        return user.operator, set(user.rights)

    for groups, expected in (
        (("finance",), (False, {"read", "usage"})),
        (("finance", "help"), (False, {"read", "usage", "people"})),
        (("finance", "platform"), (True, set())),
        (("help",), (False, {"people"})),
        ((), (False, set())),
    ):
        assert await company.sign_in(*groups) == 303
        assert await rights() == expected
    await world.users.make_operator(
        actor_of(boss), company.user.id, rights=frozenset({"configuration"})
    )
    assert await company.sign_in("finance") == 303
    assert await rights() == (False, {"configuration"}), "what was given by hand stays"


async def test_groups_that_a_directory_provisions_count_and_not_those_of_the_token(
    lite: World, oidc: RunningIssuer
) -> None:
    async with company_of(lite, oidc, provisioned=True) as company:
        service, user, atlas = lite.accounts.provisioning, company.user, company.atlas
        directory = GroupClaims("test", provisioned=True)  # the grants come at the sign-in
        wanted = WantedGroup("staff", "", frozenset({user.id}))
        group = await service.create_group(directory, wanted)
        assert await company.roles() == {}
        assert await company.sign_in("builders", "platform") == 303
        assert await company.roles() == {atlas.id: (Role.VIEWER, "test:staff")}
        assert not await company.operator()
        await service.remove_group(directory, group.id)
        anne = ProvisionedPerson("anne@corp.example", "anne@example.org", "Anne")
        await service.create(directory, anne)
        boss = await company.place.visitor_of(await lite.person("boss", operator=True))
        users = (await boss.get("/operator/users")).text
        assert users.count("provisioned by SCIM as") == 1
        assert "provisioned by SCIM as anne@corp.example" in users
        assert await company.sign_in("staff") == 303
        assert await company.roles() == {}
