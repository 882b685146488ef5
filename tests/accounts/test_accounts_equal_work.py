"""An answer's time does not tell whether an address has an account: the same work is done.

Work is counted, not timed: slow hashes of passwords, and statements of the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from accountkit import PASSWORD, World
from argon2 import PasswordHasher
from consolekit import console_of
from sqlalchemy import event

from causerie.errors import ServiceError
from causerie.hosted.accounts.people import SYSTEM, Role, actor_of
from causerie.hosted.accounts.tokens import SessionClient
from causerie.hosted.store.database import Database

_KNOWN, _UNKNOWN = "known@example.org", "unknown@example.org"
_OTHERS_HASH = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)


@dataclass
class Work:
    """The hashes and the statements of a block."""

    hashes: int = 0
    statements: list[str] = field(default_factory=list)


@contextmanager
def counted(database: Database, patch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Count within the block."""
    work = Work()
    hash_of, verify = PasswordHasher.hash, PasswordHasher.verify

    def hashing(self: PasswordHasher, *args: Any, **kwargs: Any) -> str:
        work.hashes += 1
        return hash_of(self, *args, **kwargs)

    def verifying(self: PasswordHasher, *args: Any, **kwargs: Any) -> bool:
        work.hashes += 1
        return verify(self, *args, **kwargs)

    def executed(_: Any, __: Any, statement: str, *rest: object) -> None:
        del rest
        work.statements.append(" ".join(statement.split()))

    engines = {database._writer_engine.sync_engine, database._reader_engine.sync_engine}
    with patch.context() as within:
        within.setattr(PasswordHasher, "hash", hashing)
        within.setattr(PasswordHasher, "verify", verifying)
        for engine in engines:
            event.listen(engine, "before_cursor_execute", executed)
        try:
            yield work
        finally:
            for engine in engines:
                event.remove(engine, "before_cursor_execute", executed)


async def test_a_sign_up_is_the_same_work_for_a_known_address(
    lite: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lite.person("known", password=PASSWORD)
    async with console_of(lite, open_to_all=True) as place:
        works, pages = [], []
        for email in (_UNKNOWN, _KNOWN):
            visitor = place.visitor()
            await visitor.get("/sign-up")
            with counted(lite.database, monkeypatch) as work:
                page = await visitor.post("/sign-up", {"email": email})
            works.append(work)
            pages.append(
                (page.status, page.text.replace(email, "").replace(visitor.form_token, ""))
            )
    assert works[0] == works[1]
    assert works[0].statements
    assert pages[0] == pages[1]


async def _sign_in(world: World, email: str) -> str:
    with pytest.raises(ServiceError) as refused:
        await world.sign_in.with_password(email, "not it at all", SessionClient("1.2.3.4"))
    return f"{refused.value.status} {refused.value.code} {refused.value.message}"


async def test_a_sign_in_is_one_hash_whoever_has_an_account(
    lite: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lite.person("known", password=PASSWORD)
    await lite.person("elsewhere")  # signs in with a provider, without a password
    gone = await lite.person("disabled", password=PASSWORD)
    await lite.users.disable(SYSTEM, gone.id)
    works, answers = [], set()
    for name in ("unknown", "known", "elsewhere", "disabled"):
        with counted(lite.database, monkeypatch) as work:
            answers.add(await _sign_in(lite, f"{name}@example.org"))
        works.append(work)
    assert [work.hashes for work in works] == [1] * 4
    assert [work.statements for work in works] == [works[0].statements] * 4
    assert len(answers) == 1


async def _accept(world: World, token: str, email: str) -> Sequence[object]:
    try:
        user = await world.users.accept(token, email=email, name="Somebody", password=PASSWORD)
    except ServiceError as refused:
        return refused.status, refused.code
    return (user.email,)


async def test_an_invitation_is_one_hash_for_a_known_address(
    lite: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await lite.person("owner")
    project = await lite.project(owner=owner)
    await lite.person("known", password=PASSWORD)
    hashes, ends = [], []
    for email in (_UNKNOWN, _KNOWN):
        made = await lite.projects.invite(actor_of(owner), project.id, Role.MEMBER)
        with counted(lite.database, monkeypatch) as work:
            ends.append(await _accept(lite, made.token, email))
        hashes.append(work.hashes)
    assert hashes == [1, 1]
    assert ends[0] != ends[1]  # the bearer of an invitation learns it, at the price of it


def test_the_hashes_are_counted(lite: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(lite.database, monkeypatch) as work:
        assert _OTHERS_HASH.verify(_OTHERS_HASH.hash("a"), "a")
    assert work.hashes == 2
