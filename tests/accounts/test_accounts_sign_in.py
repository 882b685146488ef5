"""Signing in: passwords, two-factor authentication, sessions, and what slows guessing down."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from accountkit import PASSWORD, World
from argon2 import PasswordHasher

from causerie.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    RateLimited,
    Unauthenticated,
)
from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.encryption import Cipher
from causerie.hosted.accounts.passwords import NOBODY, Passwords
from causerie.hosted.accounts.people import SYSTEM, User, actor_of
from causerie.hosted.accounts.tokens import (
    NewSession,
    SessionClient,
    Stage,
    form_token,
    form_token_fits,
)
from causerie.hosted.accounts.users import Users
from causerie.hosted.store.accounts import SqlStore

HOME, ELSEWHERE = SessionClient("192.0.2.1", "Firefox"), SessionClient("198.51.100.7", "curl")


async def ada(world: World) -> User:
    return await world.person("ada", password=PASSWORD)


async def signed_in(world: World, *, client: SessionClient = HOME) -> NewSession:
    return await world.sign_in.with_password("Ada@example.org ", PASSWORD, client)


async def test_a_password_opens_a_session(world: World) -> None:
    user = await ada(world)
    made = await signed_in(world)
    assert made.session.stage is Stage.OPEN
    found, session = await world.sign_in.whose(made.token)
    assert (found.id, session.id) == (user.id, made.session.id)


async def test_who_may_not_gets_one_answer(world: World) -> None:
    await ada(world)
    gone = await world.person("gone", password=PASSWORD)
    await world.users.disable(SYSTEM, gone.id)
    await world.person("elsewhere")  # has no password
    answers = set()
    for email, password in (
        ("ada@example.org", "wrong"),
        ("ada@example.org", ""),
        ("nobody@example.org", PASSWORD),
        ("gone@example.org", PASSWORD),
        ("elsewhere@example.org", "nobody has this password"),
        ("' OR 1=1 --", PASSWORD),
    ):
        with pytest.raises(Unauthenticated) as caught:
            await world.sign_in.with_password(email, password, HOME)
        answers.add(str(caught.value.body()))
    assert len(answers) == 1


async def test_nobodys_password_takes_as_long_as_others() -> None:
    """A hash of other costs would tell who has an account."""
    assert not PasswordHasher().check_needs_rehash(NOBODY)
    assert not await Passwords().matches(None, PASSWORD)


async def test_a_session_is_another_one_after_signing_in(world: World) -> None:
    """A token that somebody planted in the browser before is worth nothing after."""
    await ada(world)
    first = await signed_in(world)
    second = await world.sign_in.with_password(
        "ada@example.org", PASSWORD, HOME, old_token=first.token
    )
    assert second.token != first.token
    with pytest.raises(Unauthenticated):
        await world.sign_in.whose(first.token)
    for planted in (None, "", "planted", "\udcff"):
        with pytest.raises(Unauthenticated):
            await world.sign_in.whose(planted)


async def test_the_session_of_before_ends_where_a_code_is_still_asked_for(world: World) -> None:
    """The browser has lost it with its cookie; nobody else is to find it alive."""
    user, secret, _ = await with_factor(world)
    half = await signed_in(world)
    first = await world.sign_in.with_code(half.token, code(world, secret), HOME)
    await world.sign_in.with_password("ada@example.org", PASSWORD, HOME, old_token=first.token)
    with pytest.raises(Unauthenticated):
        await world.sign_in.whose(first.token)
    assert await world.sign_in.sessions(user) == []


async def test_sessions_end(world: World) -> None:
    await ada(world)
    made = await signed_in(world)
    for _ in range(5):
        world.later(days=6)
        if (world.now - made.session.created_at).days < 30:
            await world.sign_in.whose(made.token)  # seen again, so it goes on
    with pytest.raises(Unauthenticated):
        await world.sign_in.whose(made.token)
    idle = await signed_in(world)
    world.later(days=8)
    with pytest.raises(Unauthenticated):
        await world.sign_in.whose(idle.token)


async def test_sessions_are_listed_and_can_be_ended(world: World) -> None:
    user, other = await ada(world), await world.person("bob", password=PASSWORD)
    one, two = await signed_in(world), await signed_in(world, client=ELSEWHERE)
    three = await signed_in(world)
    listed = await world.sign_in.sessions(user)
    assert {(each.id, each.address, each.agent) for each in listed} == {
        (one.session.id, "192.0.2.1", "Firefox"),
        (two.session.id, "198.51.100.7", "curl"),
        (three.session.id, "192.0.2.1", "Firefox"),
    }
    with pytest.raises(NotFound):
        await world.sign_in.end(other, one.session.id)
    await world.sign_in.end(user, one.session.id)
    await world.sign_in.end_others(user, three.session.id)
    assert [each.id for each in await world.sign_in.sessions(user)] == [three.session.id]


async def test_who_is_disabled_is_out_at_once(world: World) -> None:
    user = await ada(world)
    made = await signed_in(world)
    await world.users.disable(SYSTEM, user.id)
    with pytest.raises(Unauthenticated):
        await world.sign_in.whose(made.token)
    await world.users.disable(SYSTEM, user.id, disabled=False)
    await signed_in(world)


async def test_guessing_gets_slow_and_the_owner_gets_in_from_elsewhere(world: World) -> None:
    await ada(world)
    for _ in range(5):
        with pytest.raises(Unauthenticated):
            await world.sign_in.with_password("ada@example.org", "guess", ELSEWHERE)
    with pytest.raises(RateLimited) as caught:
        await world.sign_in.with_password("ada@example.org", PASSWORD, ELSEWHERE)
    assert (caught.value.code, caught.value.headers["Retry-After"]) == ("too_many_attempts", "1")
    await signed_in(world, client=HOME)
    world.later(days=2)
    await signed_in(world, client=ELSEWHERE)


async def test_waits_double(world: World) -> None:
    await ada(world)
    waits = []
    for _ in range(12):
        try:
            await world.sign_in.with_password("ada@example.org", "guess", ELSEWHERE)
        except RateLimited as failure:
            waits.append(int(failure.headers["Retry-After"]))
            world.later(seconds=waits[-1])
        except Unauthenticated:
            pass
    assert waits == [1, 2, 4, 8]


async def test_many_guesses_at_once_are_no_way_round(world: World) -> None:
    await ada(world)
    done = await asyncio.gather(
        *(
            world.sign_in.with_password("ada@example.org", f"guess {n}", ELSEWHERE)
            for n in range(20)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(each, Unauthenticated) for each in done) == 5
    assert sum(isinstance(each, RateLimited) for each in done) == 15


async def test_an_office_behind_one_address_is_not_slowed_down(world: World) -> None:
    await ada(world)
    opened = [await signed_in(world) for _ in range(60)]
    assert len({made.token for made in opened}) == 60


async def test_one_address_cannot_try_many_accounts(world: World) -> None:
    with pytest.raises(RateLimited):
        for n in range(60):
            with pytest.raises(Unauthenticated):
                await world.sign_in.with_password(f"{n}@example.org", "guess", ELSEWHERE)


@pytest.mark.parametrize(
    "password",
    [
        "",
        "short",
        "password123",
        "qwertyuiopasdf",
        "aaaaaaaaaaaaaaaa",
        "ada@example.org",
        "x" * 257,
    ],
)
async def test_passwords_that_others_would_guess(world: World, password: str) -> None:
    with pytest.raises(InvalidRequest):
        await world.users.create(
            SYSTEM, email="ada@example.org", name="Ada Lovelace", password=password
        )


async def test_a_flood_of_sign_ins_is_bounded(world: World) -> None:
    done = await asyncio.gather(
        *(world.passwords.matches(None, "guess") for _ in range(200)), return_exceptions=True
    )
    assert any(isinstance(each, Overloaded) for each in done)
    assert sum(each is False for each in done) == 64


async def test_a_new_password_ends_other_sessions(world: World) -> None:
    user = await ada(world)
    here, there = await signed_in(world), await signed_in(world, client=ELSEWHERE)
    with pytest.raises(Unauthenticated):
        await world.profile.change_password(user, "wrong", "nine blue windows open", HOME)
    await world.profile.change_password(
        user, PASSWORD, "nine blue windows open", HOME, session_id=here.session.id
    )
    await world.sign_in.whose(here.token)
    with pytest.raises(Unauthenticated):
        await world.sign_in.whose(there.token)
    with pytest.raises(Unauthenticated):
        await signed_in(world)


async def test_a_password_that_is_replaced_while_it_is_checked_opens_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checking takes a while, more of it in a queue: what was right then is not right any more."""
    user, check = await ada(world), world.passwords.matches

    async def slow(kept: str | None, password: str) -> bool:
        fits = await check(kept, password)
        monkeypatch.undo()
        await world.profile.change_password(user, PASSWORD, "nine blue windows open", ELSEWHERE)
        return fits

    monkeypatch.setattr(world.passwords, "matches", slow)
    with pytest.raises(Unauthenticated):
        await signed_in(world)
    assert await world.sign_in.sessions(user) == []


async def test_a_password_that_is_replaced_while_it_is_checked_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who knows the old one does not undo the reset that shuts them out."""
    user, operator = await ada(world), await world.person(operator=True)
    link = await world.users.reset_link(actor_of(operator), user.id)
    check = world.passwords.matches

    async def slow(kept: str | None, password: str) -> bool:
        fits = await check(kept, password)
        monkeypatch.undo()
        await world.profile.reset_password(link.token, "nine blue windows open")
        return fits

    monkeypatch.setattr(world.passwords, "matches", slow)
    with pytest.raises(Unauthenticated):
        await world.profile.change_password(user, PASSWORD, "ten red doors shut", ELSEWHERE)
    await world.sign_in.with_password("ada@example.org", "nine blue windows open", HOME)


async def test_a_forgotten_password_is_replaced_by_a_link(world: World) -> None:
    user, operator = await ada(world), await world.person(operator=True)
    made = await signed_in(world)
    link = await world.users.reset_link(actor_of(operator), user.id)
    with pytest.raises(NotFound):
        await world.users.accept(link.token, email="x@example.org", name="X", password=PASSWORD)
    await world.profile.reset_password(link.token, "nine blue windows open")
    with pytest.raises(Unauthenticated):
        await world.sign_in.whose(made.token)
    with pytest.raises(NotFound):
        await world.profile.reset_password(link.token, "ten blue windows open")
    await world.sign_in.with_password("ada@example.org", "nine blue windows open", HOME)


async def with_factor(world: World) -> tuple[User, str, list[str]]:
    user = await ada(world)
    enrolment = await world.profile.enrol(user, "Causerie")
    assert enrolment.secret not in repr(enrolment)
    codes = await world.profile.confirm(user, code(world, enrolment.secret), HOME)
    world.later(minutes=2)
    return user, enrolment.secret, list(codes)


def code(world: World, secret: str) -> str:
    return passwords.totp_code_at(secret, int(world.now.timestamp()) // 30)


async def test_a_second_factor_is_asked_for_once_it_is_confirmed(world: World) -> None:
    user = await ada(world)
    enrolment = await world.profile.enrol(user, "Causerie")
    assert (await signed_in(world)).session.stage is Stage.OPEN
    with pytest.raises(InvalidRequest):
        await world.profile.confirm(user, code(world, enrolment.secret)[::-1] + "0", HOME)
    await world.profile.confirm(user, code(world, enrolment.secret), HOME)
    world.later(minutes=2)
    half = await signed_in(world)
    assert half.session.stage is Stage.SECOND_FACTOR
    with pytest.raises(Unauthenticated):
        await world.sign_in.whose(half.token)
    whole = await world.sign_in.with_code(half.token, code(world, enrolment.secret), HOME)
    assert (await world.sign_in.whose(whole.token))[0].id == user.id
    assert whole.token != half.token


async def test_a_code_works_once(world: World) -> None:
    _, secret, _ = await with_factor(world)
    one, two = await signed_in(world), await signed_in(world)
    used = code(world, secret)
    done = await asyncio.gather(
        *(world.sign_in.with_code(each.token, used, HOME) for each in (one, two)),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in done) == ["NewSession", "Unauthenticated"]


async def test_a_recovery_code_works_once(world: World) -> None:
    _, _, codes = await with_factor(world)
    assert len(set(codes)) == passwords.RECOVERY_CODES
    await world.sign_in.with_code((await signed_in(world)).token, codes[3].upper(), HOME)
    half = await signed_in(world)
    with pytest.raises(Unauthenticated):
        await world.sign_in.with_code(half.token, codes[3], HOME)


async def test_codes_cannot_be_guessed_at_leisure(world: World) -> None:
    await with_factor(world)
    half = await signed_in(world)
    for _ in range(5):
        with pytest.raises(Unauthenticated):
            await world.sign_in.with_code(half.token, "not one", HOME)
    with pytest.raises(RateLimited):
        await world.sign_in.with_code(half.token, "not one", HOME)
    world.later(minutes=6)
    with pytest.raises(Unauthenticated, match="Sign in again"):
        await world.sign_in.with_code(half.token, "not one", HOME)


async def test_a_second_factor_can_be_removed_by_who_has_it(world: World) -> None:
    user, secret, _ = await with_factor(world)
    with pytest.raises(Unauthenticated):
        await world.profile.remove_factor(user, "wrong", code(world, secret), HOME)
    with pytest.raises(Unauthenticated):
        await world.profile.remove_factor(user, PASSWORD, "not one", HOME)
    await world.profile.remove_factor(user, PASSWORD, code(world, secret), HOME)
    assert not await world.profile.has_factor(user)
    assert (await signed_in(world)).session.stage is Stage.OPEN


async def test_who_has_no_password_removes_a_second_factor_by_a_code_of_it(world: World) -> None:
    user = await world.person()
    secret = (await world.profile.enrol(user, "Causerie")).secret
    await world.profile.confirm(user, code(world, secret), HOME)
    world.later(minutes=2)
    for guess in ("", "not one", code(world, passwords.new_totp_secret())):
        with pytest.raises(Unauthenticated, match="code"):
            await world.profile.remove_factor(user, "", guess, HOME)
    await world.profile.remove_factor(user, "", code(world, secret), HOME)
    assert not await world.profile.has_factor(user)


async def test_an_operator_removes_a_second_factor_that_was_lost(world: World) -> None:
    user, _, recovery = await with_factor(world)
    operator = await world.person(operator=True)
    half = await signed_in(world)
    opened = await world.sign_in.with_code(half.token, recovery[0], HOME)
    assert await world.users.with_factor(actor_of(operator)) == {user.id}
    await world.users.remove_factor(actor_of(operator), user.id)
    for ended in (half, opened):
        with pytest.raises(Unauthenticated):
            await world.sign_in.whose(ended.token)
    assert (await signed_in(world)).session.stage is Stage.OPEN
    assert (await world.actions())[-1] == "user.second_factor_off"
    with pytest.raises(NotFound, match="no two-factor authentication"):
        await world.users.remove_factor(SYSTEM, user.id)


async def test_a_second_factor_that_no_key_opens_can_be_removed(world: World) -> None:
    user, _, _ = await with_factor(world)
    lost = SqlStore(world.database, Cipher(["another-key-than-the-one-that-sealed-it"]))
    await Users(lost, world.passwords).remove_factor(SYSTEM, user.id)
    assert (await signed_in(world)).session.stage is Stage.OPEN


async def test_nobody_removes_their_own_second_factor_without_a_code(world: World) -> None:
    user, _, _ = await with_factor(world)
    await world.users.make_operator(SYSTEM, user.id)
    user = await world.users.see(SYSTEM, user.id)
    with pytest.raises(InvalidRequest) as caught:
        await world.users.remove_factor(actor_of(user), user.id)
    assert caught.value.code == "own_factor"
    assert await world.profile.has_factor(user)


async def test_only_operators_remove_second_factors_of_others(world: World) -> None:
    user, _, _ = await with_factor(world)
    other = actor_of(await world.person())
    with pytest.raises(Forbidden):
        await world.users.remove_factor(other, user.id)
    with pytest.raises(Forbidden):
        await world.users.with_factor(other)
    assert await world.profile.has_factor(user)


async def test_another_providers_word_opens_a_session(world: World) -> None:
    user, other = await ada(world), await world.person()
    await world.users.link_identity(user, "https://id.example.org", "ada-1")
    with pytest.raises(InvalidRequest):
        await world.users.link_identity(other, "https://id.example.org", "ada-1")
    made = await world.sign_in.with_identity("https://id.example.org", "ada-1", HOME)
    assert (await world.sign_in.whose(made.token))[0].id == user.id
    for issuer, subject in (("https://id.example.org", "ada"), ("https://other", "ada-1")):
        with pytest.raises(Unauthenticated):
            await world.sign_in.with_identity(issuer, subject, HOME)


def test_codes_are_those_of_the_standard() -> None:
    """RFC 6238, appendix B, for SHA-1; six of its eight digits."""
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    for seconds, wanted in (
        (59, "94287082"),
        (1111111109, "07081804"),
        (1234567890, "89005924"),
        (20000000000, "65353130"),
    ):
        assert passwords.totp_code_at(secret, seconds // 30) == wanted[2:]
    moment = datetime.fromtimestamp(59, UTC)
    assert passwords.totp_step_of(secret, "287 082", moment) == 1
    assert passwords.totp_step_of(secret, passwords.totp_code_at(secret, 0), moment) == 0
    assert passwords.totp_step_of(secret, passwords.totp_code_at(secret, 3), moment) is None
    for wrong in ("", "94287082", "28708\u0662", "\udcff"):
        assert passwords.totp_step_of(secret, wrong, moment) is None


def test_the_address_for_apps() -> None:
    found = passwords.totp_address("ABC", "ada@example.org", "My Place")
    assert found == "otpauth://totp/My%20Place%3Aada%40example.org?secret=ABC&issuer=My%20Place"


def test_a_form_belongs_to_its_session() -> None:
    first, second = form_token("one"), form_token("one")
    assert first != second  # so that the length of a compressed page tells nothing of the next one
    assert form_token_fits("one", first)
    assert form_token_fits("one", second)
    assert not form_token_fits("one", first[:32] + second[32:])
    for other in (form_token("two"), "", "one", "\udcff"):
        assert not form_token_fits("one", other)
