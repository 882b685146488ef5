"""Sign-in with the identity of another provider: admitted people and rejected ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from accountkit import PASSWORD, World

from causerie.errors import InvalidRequest, NotFound, ServiceError, Unauthenticated
from causerie.hosted.accounts.people import SYSTEM, Role, Vouched, actor_of
from causerie.hosted.accounts.provisioning import ANY_DOMAIN
from causerie.hosted.accounts.tokens import SessionClient

HERE = SessionClient("192.0.2.1", "Firefox")
ISSUER = "https://id.example.org"
ADA = Vouched(ISSUER, "ada-1", "ada@example.org", email_verified=True, name="Ada Lovelace")


async def test_nobody_gets_an_account_without_a_reason(world: World) -> None:
    for domains in ((), ("example.com",), ("org",), ("xample.org",), ("ada@example.org",)):
        with pytest.raises(Unauthenticated) as caught:
            await world.arrivals.enter(ADA, HERE, domains=domains)
        assert caught.value.code == "no_account"
    assert await world.users.every(SYSTEM) == []


@pytest.mark.parametrize("domains", [("other.org", "example.org"), (ANY_DOMAIN,)])
async def test_verified_addresses_of_listed_domains_sign_up(
    world: World, domains: tuple[str, ...]
) -> None:
    for unproved in (
        replace(ADA, email_verified=False),
        replace(ADA, email=""),
        replace(ADA, email="ada"),
    ):
        with pytest.raises(Unauthenticated):
            await world.arrivals.enter(unproved, HERE, domains=domains)
    made = await world.arrivals.enter(ADA, HERE, domains=domains)
    user, _ = await world.sign_in.whose(made.token)
    assert (user.email, user.name, user.password, user.operator) == (
        "ada@example.org",
        "Ada Lovelace",
        None,
        False,
    )
    again = await world.arrivals.enter(ADA, HERE, old_token=made.token)
    assert (await world.sign_in.whose(again.token))[0].id == user.id
    with pytest.raises(Unauthenticated):
        await world.sign_in.whose(made.token)
    with pytest.raises(Unauthenticated):
        await world.sign_in.with_password("ada@example.org", "", HERE)
    assert await world.actions() == ["user.create", "project.create", "user.link_identity"]


async def test_the_same_address_is_no_way_into_an_account(world: World) -> None:
    user = await world.person("ada", password=PASSWORD)
    with pytest.raises(InvalidRequest) as caught:
        await world.arrivals.enter(ADA, HERE, domains=["example.org"])
    assert caught.value.code == "taken"
    await world.users.link_identity(user, ADA.issuer, ADA.subject)
    moved = replace(ADA, email="elsewhere@example.com", email_verified=False)
    made = await world.arrivals.enter(moved, HERE)
    assert (await world.sign_in.whose(made.token))[0].id == user.id
    with pytest.raises(Unauthenticated):
        await world.arrivals.enter(replace(ADA, issuer="https://id.example.com"), HERE)


async def test_an_invitation_makes_an_account(world: World) -> None:
    owner = await world.person("owner")
    project = await world.project(owner=owner)
    link = await world.projects.invite(actor_of(owner), project.id, role=Role.MEMBER)
    made = await world.arrivals.enter(
        replace(ADA, email_verified=False, name="\0"), HERE, link_token=link.token
    )
    user, _ = await world.sign_in.whose(made.token)
    assert user.name == "ada"
    assert [each.id for each, _ in await world.projects.of(user)] == [project.id]
    with pytest.raises(NotFound):
        await world.arrivals.enter(replace(ADA, subject="eve"), HERE, link_token=link.token)


async def test_an_invitation_for_an_address_is_for_who_has_it(world: World) -> None:
    link = await world.users.invite(SYSTEM, email="ada@example.org")
    for other in (
        replace(ADA, email="eve@example.org"),
        replace(ADA, email_verified=False),
        replace(ADA, email=""),
    ):
        with pytest.raises(InvalidRequest):
            await world.arrivals.enter(other, HERE, link_token=link.token)
    await world.arrivals.enter(ADA, HERE, link_token=link.token)


async def test_the_first_owner_may_come_by_an_identity(world: World) -> None:
    link = await world.users.first_link()
    assert link is not None
    made = await world.arrivals.enter(ADA, HERE, link_token=link.token)
    assert (await world.sign_in.whose(made.token))[0].operator


async def test_who_is_disabled_does_not_come_back_by_another_way(world: World) -> None:
    made = await world.arrivals.enter(ADA, HERE, domains=["example.org"])
    user, _ = await world.sign_in.whose(made.token)
    await world.users.disable(SYSTEM, user.id)
    link = await world.users.invite(SYSTEM)
    for who in (ADA, replace(ADA, email="ada2@example.org")):
        with pytest.raises(ServiceError):
            await world.arrivals.enter(who, HERE, domains=["example.org"])
        with pytest.raises(ServiceError):
            await world.arrivals.enter(who, HERE, link_token=link.token)
    assert len(await world.users.every(SYSTEM)) == 1
    await world.users.link(link.token)  # it was not used up


async def test_of_two_at_once_one_account_comes(world: World) -> None:
    done = await asyncio.gather(
        *(world.arrivals.enter(ADA, HERE, domains=["example.org"]) for _ in range(4)),
        return_exceptions=True,
    )
    assert len(await world.users.every(SYSTEM)) == 1
    assert any(not isinstance(each, BaseException) for each in done)
    for each in done:
        assert not isinstance(each, BaseException) or isinstance(each, InvalidRequest)
