"""A service's accounts on a test database, with a clock that stands still and quick hashes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from argon2 import PasswordHasher

from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.encryption import Cipher
from causerie.hosted.accounts.issuing import KeyDraft, NewKey
from causerie.hosted.accounts.passwords import Passwords
from causerie.hosted.accounts.people import SYSTEM, Actor, Membership, Project, Role, User, actor_of
from causerie.hosted.accounts.records import AuditEntry, AuditFilter, AuditKind
from causerie.hosted.accounts.tokens import SessionClient
from causerie.hosted.store.accounts import SqlStore
from causerie.hosted.store.database import Database

SEAL = Cipher(["a-key-of-the-tests-with-some-length-to-it"])
PASSWORD = "seven green kettles sing"


@dataclass
class World:
    """Everything, over one database."""

    database: Database
    now: datetime = datetime(2026, 11, 21, 12, tzinfo=UTC)
    passwords: Passwords = field(
        default_factory=lambda: Passwords(
            PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
        )
    )
    number: int = 0

    def __post_init__(self) -> None:
        self.store = SqlStore(self.database, SEAL, self.clock)
        accounts = Accounts(self.store, self.passwords)
        self.accounts = accounts
        self.users = accounts.users
        self.sign_ups = accounts.sign_ups
        self.profile = accounts.profile
        self.sign_in = accounts.sign_in
        self.arrivals = accounts.arrivals
        self.projects = accounts.projects
        self.keys = accounts.keys
        self.usage = accounts.usage
        self.credits = accounts.credits
        self.recordings = accounts.recordings
        self.attempts = accounts.attempts
        self.operating = accounts.entries
        self.person_bounds = accounts.person_bounds
        self.summaries = accounts.summaries

    def clock(self) -> datetime:
        return self.now

    def later(self, **amount: float) -> None:
        self.now += timedelta(**amount)

    async def person(
        self, name: str | None = None, *, operator: bool = False, password: str | None = None
    ) -> User:
        """A new user."""
        self.number += 1
        name = name or f"person{self.number}"
        return await self.users.create(
            SYSTEM, email=f"{name}@example.org", name=name, password=password, operator=operator
        )

    async def project(self, **members: User) -> Project:
        """A project with these members, by role."""
        project = await self.projects.create(SYSTEM, "Project")
        for role, user in members.items():
            await self.join(project, user, Role(role))
        return project

    async def join(self, project: Project, user: User, role: Role) -> None:
        """Make somebody a member, without an invitation."""
        async with self.store.writing() as repositories:
            await repositories.projects.join(Membership(project.id, user.id, role, self.now))

    async def key(self, project: Project, user: User | None = None, **draft: object) -> NewKey:
        """A key of a project, made by this user or by the machine's owner."""
        actor: Actor = actor_of(user) if user else SYSTEM
        return await self.keys.create(actor, project.id, KeyDraft(**{"name": "key", **draft}))

    async def factor(self, user: User) -> None:
        """Put two-factor authentication in force."""
        secret = (await self.profile.enrol(user, "Causerie")).secret
        code = passwords.totp_code_at(secret, int(self.now.timestamp()) // 30)
        await self.profile.confirm(user, code, SessionClient())

    async def actions(self) -> list[str]:
        """Return the actions in the audit log but for sign-ins, oldest first."""
        found = await self.projects.audit(SYSTEM, None, AuditFilter(limit=500))
        return [each.action for each in reversed(found) if not each.action.startswith("sign_in.")]

    async def sign_ins(self) -> list[AuditEntry]:
        """Return the sign-ins in the audit log, oldest first."""
        found = await self.projects.audit(SYSTEM, None, AuditFilter(kind=AuditKind.SIGN_IN))
        return [*reversed(found)]


@pytest.fixture
async def world(database: Database) -> World:
    """An empty service, on each kind of database."""
    return World(database)
