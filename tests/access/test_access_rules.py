"""Allowed models by name, wildcard, provider and highest price, on a whole service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from faultkit import Reply, upstream
from hostedkit import Office, office
from servicekit import ServiceView, service_view
from waiting import eventually

from causerie.access.allowed import ALL, Access
from causerie.errors import Forbidden, InvalidRequest
from causerie.hosted.accounts.issuing import KeyDraft
from causerie.hosted.accounts.people import SYSTEM, Role, actor_of

BASE = "/gateway/v1"


def config(base_url: str) -> str:
    providers = "".join(
        f'[[providers]]\nname = "{name}"\nbase_url = "{base_url}"\ndialect = "vllm"\n'
        '[providers.health]\npath = ""\n'
        for name in ("north", "south")
    )
    return f"""
[store]
folder = "data"
[[doors]]
name = "gateway"
kind = "gateway"
keys = "accounts"
[[doors]]
name = "second"
kind = "gateway"
keys = "accounts"
{providers}
[[aliases]]
id = "cheap"
targets = [{{ provider = "north", model = "c" }}]
price = {{ prompt = "1", completion = "2" }}
[[aliases]]
id = "dear"
targets = [{{ provider = "north", model = "d" }}]
price = {{ prompt = "10", completion = "30" }}
[[aliases]]
id = "both"
targets = [
  {{ provider = "north", model = "b" }}, {{ provider = "south", model = "b", priority = 1 }},
]
[[aliases]]
id = "south/*"
targets = [{{ provider = "south", model = "*" }}]
"""


@dataclass
class Company:
    """A gateway with two providers, its database, and a key of a project."""

    gateway: ServiceView
    office: Office
    key: str

    async def status(self, model: str, key: str = "", base: str = BASE) -> int:
        return (await self.gateway.ask(base, model, key or self.key))[0]

    async def refused(self, model: str, key: str = "") -> str:
        status, _, answer = await self.gateway.ask(BASE, model, key or self.key)
        assert (status, answer["error"]["code"]) == (403, "model_not_allowed"), answer
        return str(answer["error"]["message"])

    async def allow(self, **access: Any) -> None:
        """Set what the project may use, and wait until the service knows."""
        rules = self.office.accounts.access
        await rules.set(SYSTEM, Access(**access), self.office.project)


@pytest.fixture
async def company(tmp_path: Path) -> AsyncIterator[Company]:
    async with (
        upstream(lambda received: Reply("Yes.")) as up,
        service_view(tmp_path, config(up.base_url)) as running,
        office(tmp_path / "data") as opened,
    ):
        yield Company(running, opened, (await opened.key()).credential)


async def test_a_project_is_limited_by_name_and_wildcard(company: Company) -> None:
    await company.allow(models=frozenset({"cheap", "south/gpt-*"}))
    await eventually(lambda: _is(company, "dear", 403))
    assert await company.status("cheap") == 200
    assert await company.status("south/gpt-5") == 200
    assert "not among the models of the project" in await company.refused("dear")
    assert "south/other" in await company.refused("south/other")
    assert await company.gateway.models(BASE, company.key) == ["cheap"]
    await company.allow()
    await eventually(lambda: _is(company, "dear", 200))
    assert "dear" in await company.gateway.models(BASE, company.key)


async def _is(company: Company, model: str, status: int) -> bool:
    return await company.status(model) == status


async def test_a_provider_that_is_not_allowed_is_not_asked(company: Company) -> None:
    await company.allow(providers=frozenset({"south"}))
    await eventually(lambda: _is(company, "cheap", 403))
    assert "the provider north is not allowed" in await company.refused("cheap")
    status, headers, _ = await company.gateway.ask(BASE, "both", company.key)
    assert (status, headers["x-served-by"]) == (200, "south/b")
    assert await company.gateway.models(BASE, company.key) == ["both", "south/*"]


async def test_a_price_is_the_highest(company: Company) -> None:
    await company.allow(completion_price=Decimal("29.99"))
    await eventually(lambda: _is(company, "dear", 403))
    assert "output price of 30 per 1M tokens is above 29.99" in await company.refused("dear")
    assert await company.status("cheap") == 200
    assert await company.status("both") == 200  # it has no price


async def test_a_key_and_a_member_only_narrow(company: Company) -> None:
    accounts, project = company.office.accounts, company.office.project
    user = await accounts.users.create(SYSTEM, email="ada@example.org", name="Ada", password=None)
    await accounts.projects.add(SYSTEM, project, user.id, Role.MEMBER)
    await company.allow(models=frozenset({"cheap", "both"}))
    actor = actor_of(user)
    draft = KeyDraft("key", models=frozenset({"cheap", "dear"}))
    mine = await accounts.keys.create(actor, project, draft)
    every = await accounts.keys.create(actor, project, KeyDraft("key"))
    assert await company.status("cheap", mine.credential) == 200
    assert await company.status("both", mine.credential) == 403
    assert "of the project" in await company.refused("dear", mine.credential)
    assert await company.status("both", every.credential) == 200
    only = Access(models=frozenset({"both"}))
    await accounts.access.set(SYSTEM, only, project, user.id)
    await eventually(lambda: _key_is(company, every.credential, "cheap", 403))
    assert "of this member" in await company.refused("cheap", every.credential)
    assert await company.status("both", every.credential) == 200
    assert await company.status("cheap") == 200  # a key of the project itself
    await accounts.access.set(SYSTEM, Access(models=frozenset()), user_id=user.id)
    await eventually(lambda: _key_is(company, every.credential, "both", 403))
    assert "of the person" in await company.refused("both", every.credential)


async def _key_is(company: Company, key: str, model: str, status: int) -> bool:
    return await company.status(model, key) == status


async def test_a_door_that_is_not_allowed_stays_shut(company: Company) -> None:
    await company.allow(doors=frozenset({"gateway"}))
    second = "/second/v1"

    async def shut() -> bool:
        return await company.status("cheap", base=second) == 403

    await eventually(shut)
    assert await company.status("cheap") == 200
    _, _, answer = await company.gateway.ask(second, "cheap", company.key)
    assert answer["error"]["message"] == "The project of this key may not use the door `second`."


async def test_a_rule_is_set_by_who_may_and_checked(tmp_path: Path) -> None:
    async with office(tmp_path) as opened:
        accounts, project = opened.accounts, opened.project
        people = {}
        for role in (Role.OWNER, Role.ADMIN, Role.MEMBER):
            user = await accounts.users.create(
                SYSTEM, email=f"{role}@example.org", name=role, password=None
            )
            await accounts.projects.add(SYSTEM, project, user.id, role)
            people[role] = user
        rules, few = accounts.access, Access(models=frozenset({"cheap"}))
        owner, admin, member = (actor_of(people[each]) for each in people)
        for actor in (owner, admin, member):
            with pytest.raises(Forbidden):
                await rules.set(actor, few, project)
            with pytest.raises(Forbidden):
                await rules.set(actor, few, user_id=member.id)
        await rules.set(admin, few, project, member.id)
        with pytest.raises(Forbidden):
            await rules.set(member, ALL, project, member.id)
        with pytest.raises(Forbidden):
            await rules.set(admin, few, project, owner.id)
        assert await rules.see(owner, project, member.id) == few
        assert [each.whose for each in await rules.mine(member, project)] == ["member"]
        for wrong in (
            Access(models=frozenset({"a*b"})),
            Access(doors=frozenset({""})),
            Access(prompt_price=Decimal(-1)),
            Access(completion_price=Decimal("NaN")),
        ):
            with pytest.raises(InvalidRequest):
                await rules.set(SYSTEM, wrong, project)
