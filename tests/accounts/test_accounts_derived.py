"""People, keys and invitations behave as a slow and obvious model, after any series of changes.

Two processes follow one database: both notice a loss of rights.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

from accountkit import World
from casekit import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from causerie.access.keys import Credential
from causerie.errors import NotFound, ServiceError, Unauthenticated
from causerie.hosted.accounts.issuing import KeyDraft
from causerie.hosted.accounts.key_cache import KeyCache
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import SYSTEM, Actor, Project, Role, User, actor_of
from causerie.hosted.store.accounts import SqlStore
from causerie.hosted.store.database import Database

T = TypeVar("T")
PEOPLE = 3
MAY_INVITE = frozenset({Role.OWNER, Role.ADMIN})
MAY_CREATE = frozenset({Role.OWNER, Role.ADMIN, Role.MEMBER})
people = st.integers(0, PEOPLE - 1)
dice = st.integers(0, 4 * PEOPLE - 1)
latest = st.integers(1, 4)  # of the keys or invitations, from the newest
roles = st.sampled_from([Role.ADMIN, Role.MEMBER, Role.VIEWER])


@dataclass
class Person:
    """The model's state of a person."""

    user: User
    role: Role | None = None
    disabled: bool = False
    left: int = -1

    def may(self, roles: Collection[Role | None]) -> bool:
        return not self.disabled and self.role in roles


@dataclass
class Key:
    """A key, and whose it is in the end."""

    credential: str
    holder: int
    purpose: Purpose
    withdrawn: bool = False


@dataclass
class Invitation:
    """A link, by whom, for whom."""

    token: str
    maker: int
    role: Role
    email: str | None
    at: int
    gone: bool = False


@dataclass
class Model:
    """All there is."""

    people: list[Person] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    invitations: list[Invitation] = field(default_factory=list)

    def works(self, key: Key) -> bool:
        holder = self.people[key.holder]
        needed = MAY_CREATE if key.purpose is Purpose.INFERENCE else frozenset(Role)
        return not key.withdrawn and holder.may(needed)

    def supported(self, link: Invitation) -> bool:
        return self.people[link.maker].may(MAY_INVITE)

    def sweep(self, number: int) -> None:
        """Invitations that somebody could not create any more are gone."""
        for link in self.invitations:
            if link.maker == number and not self.supported(link):
                link.gone = True

    def replace_invitations(self, email: str | None) -> None:
        """A newer invitation to an address has replaced those before it."""
        for link in self.invitations:
            link.gone = link.gone or (email is not None and link.email == email)

    def close(self, number: int) -> None:
        """Invitations that somebody who was shut out could use are gone."""
        for link in self.invitations:
            if link.email in (None, self.people[number].user.email):
                link.gone = True

    def lets_in(self, link: Invitation, number: int) -> bool:
        who = self.people[number]
        fits = link.email in (None, who.user.email)
        newer = link.at > who.left
        return not link.gone and self.supported(link) and fits and newer and who.role is None


def newest(found: list[T], which: int) -> T:
    return found[-min(which, len(found))]


class Comings(RuleBasedStateMachine):
    """One project with an owner who stays; others come, create, and go."""

    template: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.folder = tempfile.TemporaryDirectory()
        self.step = 0

    def run(self, work: Awaitable[T]) -> T:
        async def go() -> T:
            return await work

        return self.runner.run(go())

    @initialize()
    def begin(self) -> None:
        """Begin where everybody has something to lose: few steps lead to a loss, not to both."""
        self.run(self._begin())
        for number in (0, 1):
            self._invite(number, Role.MEMBER, None)
            for purpose in Purpose:
                self._create_key(number, purpose)

    async def _begin(self) -> None:
        file = Path(self.folder.name) / "causerie.db"
        shutil.copyfile(self.template, file)
        self.stack = AsyncExitStack()
        self.world = World(Database(f"sqlite:///{file}"))
        other = Database(f"sqlite:///{file}")
        for each in (self.world.database, other):
            self.stack.push_async_callback(each.close)
        options = {"poll_seconds": 0.05, "answer_seconds": 60}
        self.rings = [
            await self.stack.enter_async_context(KeyCache(store, **options))
            for store in (self.world.store, SqlStore(other))
        ]
        self.owner = await self.world.person()
        self.project: Project = await self.world.project(owner=self.owner)
        self.model.people = [Person(await self.world.person()) for _ in range(PEOPLE)]
        for person, role in zip(self.model.people, (Role.ADMIN, Role.ADMIN, None), strict=True):
            if role is not None:
                await self.world.join(self.project, person.user, role)
                person.role = role

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.run(self.stack.aclose())
        self.runner.close()
        self.folder.cleanup()

    def outcome(self, work: Awaitable[T]) -> T | None:
        """The result, or nothing where it was refused; time goes on."""
        self.step += 1
        self.world.later(seconds=1)
        try:
            return self.run(work)
        except ServiceError:
            return None

    def pick(self, dice: int, able: Collection[Role | None]) -> int:
        """Somebody, and mostly somebody with one of these roles: refusals are tried too."""
        found = [n for n, each in enumerate(self.model.people) if each.may(able)]
        return found[dice % len(found)] if found and dice % 4 != 3 else dice % PEOPLE

    def actor(self, number: int) -> Actor:
        return actor_of(self.model.people[number].user)

    @rule(dice=dice, role=roles, addressee=st.none() | people)
    def invite(self, dice: int, role: Role, addressee: int | None) -> None:
        self._invite(self.pick(dice, MAY_INVITE), role, addressee)

    def _invite(self, maker: int, role: Role, addressee: int | None) -> None:
        email = None if addressee is None else self.model.people[addressee].user.email
        may = self.model.people[maker].may(MAY_INVITE)
        made = self.outcome(
            self.world.projects.invite(self.actor(maker), self.project.id, role, email=email)
        )
        assert (made is not None) is may
        if made is not None:
            self.model.replace_invitations(email)
            self.model.invitations.append(Invitation(made.token, maker, role, email, self.step))

    @precondition(lambda self: self.model.invitations)
    @rule(which=latest, dice=dice)
    def accept(self, which: int, dice: int) -> None:
        link, number = newest(self.model.invitations, which), dice % PEOPLE
        good = [
            (each, n)
            for each in self.model.invitations
            for n in range(PEOPLE)
            if self.model.lets_in(each, n) and not self.model.people[n].disabled
        ]
        if good and dice % 4 != 3:
            link, number = good[dice % len(good)]
        person = self.model.people[number]
        if person.disabled:
            return  # they have no session
        lets_in = self.model.lets_in(link, number)

        async def join() -> bool:
            await self.world.users.join(link.token, person.user)
            return True

        assert bool(self.outcome(join())) is lets_in
        if lets_in:
            link.gone, person.role = True, link.role

    @rule(dice=dice, purpose=st.sampled_from(Purpose))
    def create_key(self, dice: int, purpose: Purpose) -> None:
        self._create_key(self.pick(dice, MAY_INVITE), purpose)

    def _create_key(self, number: int, purpose: Purpose) -> None:
        needed = MAY_CREATE if purpose is Purpose.INFERENCE else MAY_INVITE
        draft = KeyDraft("key", purpose)
        made = self.outcome(self.world.keys.create(self.actor(number), self.project.id, draft))
        assert (made is not None) is self.model.people[number].may(needed)
        if made is not None:
            self.model.keys.append(Key(made.credential, number, purpose))

    @precondition(lambda self: self.model.keys)
    @rule(which=latest, infers=st.booleans())
    def create_key_by_key(self, which: int, infers: bool) -> None:
        managers = [key for key in self.model.keys if key.purpose is Purpose.MANAGEMENT]
        key = newest(managers if managers and not infers else self.model.keys, which)

        async def create() -> str:
            actor = await self.rings[0].manager(Credential.of(key.credential))
            return (await self.world.keys.create(actor, self.project.id, KeyDraft("x"))).credential

        may = key.purpose is Purpose.MANAGEMENT and self.model.works(key)
        may = may and self.model.people[key.holder].may(MAY_CREATE)
        made = self.outcome(create())
        assert (made is not None) is may
        if made is not None:
            self.model.keys.append(Key(made, key.holder, Purpose.INFERENCE))

    @rule(dice=dice, role=roles)
    def change_role(self, dice: int, role: Role) -> None:
        number = self.pick(dice, set(Role))
        person = self.model.people[number]
        before = {key.credential for key in self.model.keys if self.model.works(key)}
        done = self.outcome(
            self.world.projects.change_role(
                actor_of(self.owner), self.project.id, person.user.id, role
            )
        )
        assert (done is not None) is (person.role is not None)
        if done is None:
            return
        person.role = role
        self.model.sweep(number)
        after = {key.credential for key in self.model.keys if self.model.works(key)}
        stopped = {f"{each.rpartition('_')[0]}" for each in before - after}
        assert {key.id for key in done.keys_stopped} == stopped

    @rule(dice=dice, leaves=st.booleans())
    def remove(self, dice: int, leaves: bool) -> None:
        number = self.pick(dice, set(Role))
        person = self.model.people[number]
        if person.role is None or (leaves and person.disabled):
            return
        by = self.actor(number) if leaves else actor_of(self.owner)
        assert self.outcome(self.world.projects.remove(by, self.project.id, person.user.id))
        person.role, person.left = None, self.step
        for key in self.model.keys:
            key.withdrawn = key.withdrawn or key.holder == number
        self.model.sweep(number)
        if not leaves:
            self.model.close(number)

    @precondition(lambda self: any(each.role is None for each in self.model.people))
    @rule(role=roles)
    def come_back(self, role: Role) -> None:
        """Everybody who is out is invited by the owner, and comes in."""
        for person in self.model.people:
            if person.role is None and not person.disabled:
                self.run(self._let_in(person.user, role))
                self.model.replace_invitations(person.user.email)
                person.role = role

    async def _let_in(self, user: User, role: Role) -> None:
        self.step += 1
        self.world.later(seconds=1)
        offer = await self.world.projects.invite(
            actor_of(self.owner), self.project.id, role, email=user.email
        )
        await self.world.users.join(offer.token, user)

    @precondition(lambda self: not any(each.disabled for each in self.model.people))
    @rule(dice=dice)
    def disable(self, dice: int) -> None:
        number = self.pick(dice, set(Role))
        person = self.model.people[number]
        assert self.outcome(self.world.users.disable(SYSTEM, person.user.id))
        person.disabled = True
        self.model.sweep(number)
        if person.role is not None:
            self.model.close(number)

    @precondition(lambda self: any(each.disabled for each in self.model.people))
    @rule()
    def enable(self) -> None:
        for person in self.model.people:
            self.outcome(self.world.users.disable(SYSTEM, person.user.id, disabled=False))
            person.disabled = False

    @precondition(lambda self: self.model.keys)
    @rule(which=latest, dice=dice)
    def transfer(self, which: int, dice: int) -> None:
        to = self.pick(dice, MAY_INVITE)
        key = newest(self.model.keys, which)
        needed = MAY_CREATE if key.purpose is Purpose.INFERENCE else MAY_INVITE
        id, heir = key.credential.rpartition("_")[0], self.model.people[to]
        done = self.outcome(self.world.keys.transfer(actor_of(self.owner), id, heir.user.id))
        assert (done is not None) is heir.may(needed)
        if done is not None:
            key.holder, key.withdrawn = to, False

    @invariant()
    def every_process_says_what_the_model_says(self) -> None:
        if self.model.keys:
            self.run(self._agreement())

    @invariant()
    def links_work_as_the_model_says(self) -> None:
        if self.model.invitations:
            self.run(self._compare_links())

    async def _compare_links(self) -> None:
        for link in self.model.invitations:
            wanted = not link.gone and self.model.supported(link)
            assert await _works(self.world, link) is wanted

    async def _agreement(self) -> None:
        async with asyncio.timeout(60):
            while not await self._all_agree():  # noqa: ASYNC110 - of the other process's database
                await asyncio.sleep(0.005)  # as often as they look

    async def _all_agree(self) -> bool:
        for key in self.model.keys:
            wanted = self.model.works(key)
            for key_cache in self.rings:
                if await _lets_in(key_cache, key) is not wanted:
                    return False
        return True


async def _works(world: World, link: Invitation) -> bool:
    try:
        await world.users.link(link.token)
    except NotFound:
        return False
    return True


async def _lets_in(key_cache: KeyCache, key: Key) -> bool:
    shown = Credential.of(key.credential)
    try:
        if key.purpose is Purpose.MANAGEMENT:
            await key_cache.manager(shown)
        else:
            await key_cache.authenticate("hosted", shown)
    except Unauthenticated:
        return False
    return True


def test_what_derives_from_people_follows_them(sqlite_template: Path) -> None:
    class Case(Comings):
        template = sqlite_template

    run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis leaves it untyped
        Case,
        settings=settings(
            max_examples=examples(12),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
