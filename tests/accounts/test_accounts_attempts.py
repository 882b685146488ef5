"""Guesses anywhere else than at sign-in: the profile, links, new accounts, other providers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from accountkit import PASSWORD, World
from casekit import each_of
from test_accounts_sign_in import ELSEWHERE, HOME, ada, code, signed_in, with_factor

from causerie.errors import (
    InvalidRequest,
    NotFound,
    Overloaded,
    RateLimited,
    ServiceError,
    Unauthenticated,
    UpstreamFailed,
)
from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.tokens import SessionClient

NEW = "nine blue windows open"


async def guesses(attempt: Callable[[], Awaitable[object]], error: type[ServiceError]) -> int:
    """Count the attempts that fail before one is not even looked at."""
    for count in range(100):
        try:
            await attempt()
        except RateLimited as refusal:
            if refusal.code == "too_many_attempts" and int(refusal.headers["Retry-After"]) >= 1:
                return count
            raise
        except error:
            continue
    raise AssertionError("a hundred guesses, and no end")


async def test_the_password_cannot_be_guessed_in_the_profile(world: World) -> None:
    user = await ada(world)
    assert (
        await guesses(
            lambda: world.profile.change_password(user, "guess", NEW, ELSEWHERE), Unauthenticated
        )
        == 5
    )
    with pytest.raises(RateLimited):  # it is the same count as at sign-in
        await signed_in(world, client=ELSEWHERE)
    await world.profile.change_password(user, PASSWORD, NEW, HOME)
    world.later(seconds=1)
    with pytest.raises(Unauthenticated):  # that cleared the account's count, not the other's
        await world.profile.change_password(user, "guess", NEW, ELSEWHERE)


async def test_many_guesses_at_once_in_the_profile_are_no_way_round(world: World) -> None:
    user = await ada(world)
    done = await asyncio.gather(
        *(world.profile.change_password(user, f"guess {n}", NEW, HOME) for n in range(20)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, Unauthenticated) for each in done) == 5
    assert sum(isinstance(each, RateLimited) for each in done) == 15


async def test_codes_cannot_be_guessed_in_the_profile(world: World) -> None:
    user, secret, _ = await with_factor(world)
    assert (
        await guesses(
            lambda: world.profile.remove_factor(user, PASSWORD, "000000", HOME), Unauthenticated
        )
        == 5
    )
    half = await signed_in(world)
    with pytest.raises(RateLimited):  # nor at sign-in then
        await world.sign_in.with_code(half.token, code(world, secret), HOME)
    world.later(minutes=2)
    await world.profile.remove_factor(user, PASSWORD, code(world, secret), HOME)


async def test_the_first_code_cannot_be_guessed(world: World) -> None:
    user = await ada(world)
    enrolment = await world.profile.enrol(user, "Causerie")
    assert await guesses(lambda: world.profile.confirm(user, "000000", HOME), InvalidRequest) == 5
    world.later(seconds=1)
    assert await world.profile.confirm(user, code(world, enrolment.secret), HOME)


async def test_waits_are_said_in_words(world: World) -> None:
    user = await ada(world)
    said = []
    for _ in range(16):
        try:
            await world.profile.change_password(user, "guess", NEW, HOME)
        except RateLimited as refusal:
            said.append(refusal.message.partition("again in ")[2])
            world.later(seconds=int(refusal.headers["Retry-After"]))
        except Unauthenticated:
            continue
    assert said[:2] == ["a second.", "2 seconds."]
    for _ in range(10):
        try:
            await world.profile.change_password(user, "guess", NEW, HOME)
        except RateLimited as refusal:
            last = refusal
            world.later(seconds=int(refusal.headers["Retry-After"]))
        except Unauthenticated:
            continue
    assert last.message.endswith("minutes.")


async def test_nobody_waits_for_a_clock_that_was_ahead(world: World) -> None:
    """As codes fail while it is, there may be many failures by then."""
    user = await ada(world)
    world.later(days=30)
    guess = partial(world.profile.change_password, user, "guess", NEW, HOME)
    assert await guesses(guess, Unauthenticated) == 5
    world.later(days=-30)
    await world.profile.change_password(user, PASSWORD, NEW, HOME)


async def wrong_link(world: World, client: SessionClient) -> None:
    async with world.attempts.from_address("link", client):
        await world.users.link("not a link")


async def test_links_are_counted_by_address(world: World) -> None:
    good = await world.users.first_link()
    assert good is not None
    assert await guesses(lambda: wrong_link(world, ELSEWHERE), NotFound) == 20
    async with world.attempts.from_address("link", HOME):
        await world.users.link(good.token)
    with pytest.raises(RateLimited):
        async with world.attempts.from_address("link", ELSEWHERE):
            await world.users.link(good.token)


async def test_what_was_no_guess_is_forgiven(world: World) -> None:
    for _ in range(50):
        async with world.attempts.from_address("provider", HOME):
            pass
        with pytest.raises(UpstreamFailed):
            async with world.attempts.from_address("provider", HOME):
                raise UpstreamFailed("The provider cannot be asked.")


async def test_what_nobody_had_time_to_check_was_no_guess(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it make guesses of before forgotten."""
    user = await ada(world)

    async def overloaded(kept: str | None, password: str) -> bool:
        raise Overloaded("Too many people sign in at this moment.")

    with pytest.raises(Unauthenticated):
        await world.sign_in.with_password(user.email, "guess", HOME)
    with monkeypatch.context() as patched:
        patched.setattr(world.passwords, "matches", overloaded)
        for _ in range(10):
            with pytest.raises(Overloaded):
                await world.sign_in.with_password(user.email, PASSWORD, HOME)
            with pytest.raises(Overloaded):
                await world.profile.change_password(user, PASSWORD, NEW, HOME)

    async def guess() -> None:
        await world.sign_in.with_password(user.email, "guess", HOME)

    assert await guesses(guess, Unauthenticated) == 4


@each_of(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::7", "2001:db8:1:2:ffff::1", True),
        ("2001:db8:1:2::7", "2001:db8:1:3::7", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("unix", "unix", True),
        ("unknown", "_hidden", False),
    ],
)
def test_a_subscriber_is_one_address(one: str, other: str, same: bool) -> None:
    assert (
        passwords.address_scopes("link", one) == passwords.address_scopes("link", other)
    ) is same
    assert (
        set(passwords.sign_in_scopes("a", one)) == set(passwords.sign_in_scopes("a", other))
    ) is same
