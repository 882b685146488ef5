"""The management API on a test database, and keys of every kind to call it with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from accountkit import World
from edgekit import Response, call, make_edge
from operationskit import seen_to

from causerie.access.keys import Credential, KeyDigest
from causerie.hosted.accounts.key_cache import KeyCache
from causerie.hosted.accounts.keys import LinkKind, Purpose
from causerie.hosted.accounts.people import Actor, Project, User, actor_of
from causerie.hosted.management.application import Management
from causerie.http.application import Edge

OPERATOR = "ck_ops_0123456789"


@dataclass
class People:
    """Lets tests act as people, whose credential is their id; others are asked of the ring."""

    key_cache: KeyCache
    known: dict[Credential | None, Actor] = field(default_factory=dict)

    async def manager(self, credential: Credential | None) -> Actor:
        found = self.known.get(credential)
        return found if found is not None else await self.key_cache.manager(credential)

    def let_in(self, user: User) -> str:
        """The credential of somebody."""
        self.known[Credential.of(user.id)] = actor_of(user)
        return user.id


@dataclass
class Office:
    """The API, with what stands behind it."""

    world: World
    management: Management
    edge: Edge
    people: People

    async def ask(
        self,
        key: str,
        path: str,
        body: object = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One request; with a body it is a POST, unless a method is said."""
        given = {"authorization": f"Bearer {key}"} | dict(headers or {})
        return await call(self.edge, f"/api{path}", body, method=method, headers=given)

    async def manager(self, project: Project) -> str:
        """A management key of a project."""
        made = await self.world.key(project, await self._owner(project), purpose=Purpose.MANAGEMENT)
        return made.credential

    async def _owner(self, project: Project) -> User:
        async with self.world.store.reading() as repositories:
            members = await repositories.projects.members(project.id)
        for member in members:
            if member.role == "owner":
                return member.user
        raise LookupError("the project has no owner")


def link_path(kind: LinkKind, token: str) -> str:
    return f"/somewhere/{kind}/{token}"


@asynccontextmanager
async def office(world: World, *, requests_per_minute: int = 1_000_000) -> AsyncIterator[Office]:
    """An API that is served."""
    accounts = world.accounts

    def now() -> int:
        return int(world.now.timestamp()) * 1_000_000_000

    async with KeyCache(world.store, now=now) as key_cache, seen_to(world) as operations:
        people = People(key_cache)
        management = Management(
            *(accounts, people.manager, world.clock, link_path, operations, requests_per_minute),
            operator_keys=lambda: [KeyDigest.of("ops", OPERATOR)],
        )
        edge = make_edge()
        edge.mount("/api", management.answer)
        yield Office(world, management, edge, people)
