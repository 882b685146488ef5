"""Somebody who signs up: the first request that they are shown, and what they may spend."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from casekit import first_of
from consolekit import Visitor
from faultkit import Reply, upstream
from hostedkit import office
from servicekit import ServiceView, service_view
from waiting import eventually

from causerie.hosted.accounts.bounds import Budget, LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM
from causerie.settings.load import load
from causerie.settings.rules import notes

EMAIL, PASSWORD = "eve@example.net", "nine purple ladders hum"
STORE = """
[store]
folder = "data"
[console]
sign_up = true
"""
UP = """
[[providers]]
name = "up"
base_url = "{base_url}"
health = {{ path = "" }}
"""
HOSTED = """
[[doors]]
name = "hosted"
kind = "hosted"
"""
GATEWAY = """
[[doors]]
name = "gateway"
kind = "gateway"
keys = "accounts"
[[aliases]]
id = "fast"
targets = [{ provider = "up", model = "m" }]
price = { prompt = "1", completion = "1" }
"""
ROUTER = """
[[doors]]
name = "router"
kind = "router"
[[catalog]]
id = "acme/big"
[[catalog.endpoints]]
provider = "up"
model = "m"
price = { prompt = "1", completion = "2" }
[[catalog]]
id = "acme/small:free"
endpoints = [{ model = "small" }]
[free]
requests_per_day = 2
"""
OWN = """
[[models]]
id = "small"
engine = "fake"
"""
SEVERAL = GATEWAY + ROUTER + HOSTED + OWN.replace("small", "other") + OWN
BUDGET = '[console]\nnew_project_budget = "{}"\n'


@asynccontextmanager
async def newcomers(folder: Path, text: str, budget: str = "") -> AsyncIterator[ServiceView]:
    """A service with a provider, where people may sign up."""
    if budget:
        text += STORE.replace("[console]\n", BUDGET.format(budget))
    else:
        text += STORE
    async with upstream(Reply("From the provider.")) as provider:
        text = UP.format(base_url=provider.base_url) + text
        async with service_view(folder, text) as there:
            yield there


async def signed_up(there: ServiceView, folder: Path) -> Visitor:
    """Somebody who asked for an account, whom an operator gave the link."""
    visitor = Visitor(int(there.root.rpartition(":")[2]))
    await visitor.get("/sign-up")
    await visitor.post("/sign-up", {"email": EMAIL})
    async with office(folder / "data", "") as behind:
        [asked] = await behind.accounts.sign_ups.asked(SYSTEM)
        token = (await behind.accounts.sign_ups.approve(SYSTEM, asked.id)).token
    await visitor.get("/link")
    await visitor.post("/link", {"token": token})
    made = {"token": token, "name": "Eve", "password": PASSWORD}
    assert (await visitor.post("/link/account", made)).status == 303
    await visitor.get("/sign-in")
    entered = await visitor.post("/sign-in", {"email": EMAIL, "password": PASSWORD})
    assert entered.status == 303
    return visitor


async def project_of(visitor: Visitor) -> str:
    found = re.search(r"/projects/(prj_\w+)", (await visitor.get("/profile")).text)
    assert found is not None
    return found[1]


async def new_key(visitor: Visitor, *more: tuple[str, object]) -> tuple[str, str]:
    """The secret of a new key, and the request that its dialog shows, for a shell."""
    place = f"/projects/{await project_of(visitor)}/keys/new"
    await visitor.get(place)
    made = await visitor.post(place, [("name", "Mine"), *more])
    assert made.status == 200, made.text
    return made.code("credential"), made.code("code-chat-curl")


async def typed(command: str) -> Any:
    """What a shell makes of it."""
    if shutil.which("curl") is None:
        pytest.skip("the dialog shows curl")
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await process.communicate()
    return json.loads(out)


ANY: list[tuple[str, object]] = []
CASES: dict[str, tuple[str, str, list[tuple[str, object]]]] = {
    "hosted": (HOSTED + OWN, "0", ANY),
    "gateway": (GATEWAY, "5", ANY),
    "router": (ROUTER + OWN, "0", ANY),
    "router without free models": (ROUTER.partition('[[catalog]]\nid = "acme/small')[0], "5", ANY),
    "several doors": (SEVERAL, "0", ANY),
    "a key for one door": (SEVERAL, "5", [("doors_all", "some"), ("doors", "gateway")]),
    "a model that costs, without money": (ROUTER + OWN, "0", [("wanted", "acme/big")]),
    "a key for one model": (SEVERAL, "5", [("models_all", "some"), ("models", "acme/big")]),
}


@pytest.mark.parametrize("case", first_of(CASES, every=4))
async def test_the_first_request_that_is_shown_works(case: str, tmp_path: Path) -> None:
    text, budget, choices = CASES[case]
    async with newcomers(tmp_path, text, budget) as there:
        _, shown = await new_key(await signed_up(there, tmp_path), *choices)
        told = await typed(shown)
    assert told["choices"][0]["message"]["content"], told


async def test_a_newcomer_spends_nothing_until_an_operator_lets_them(tmp_path: Path) -> None:
    async with newcomers(tmp_path, ROUTER + OWN) as there:
        visitor = await signed_up(there, tmp_path)
        key, _ = await new_key(visitor)
        assert (await there.ask("/router/v1", "acme/small:free", key))[0] == 200
        status, _, told = await there.ask("/router/v1", "acme/big", key)
        assert (status, told["error"]["code"]) == (402, "insufficient_budget")
        assert "$0.00 a month, so it may use only models that cost nothing" in str(told)
        project = await project_of(visitor)
        for place in ("overview", "limits"):
            page = (await visitor.get(f"/projects/{project}/{place}")).text
            assert "Only models that cost nothing" in page
            assert "<progress" not in page
        async with office(tmp_path / "data", project) as behind:
            bounds = LimitsAndBudgets(budgets=(Budget(Decimal(1)),))
            await behind.accounts.projects.set_bounds(SYSTEM, project, bounds)

        async def is_let_in() -> bool:
            return (await there.ask("/router/v1", "acme/big", key))[0] == 200

        await eventually(is_let_in)


async def test_money_that_is_put_in_ends_the_budget_of_nothing(tmp_path: Path) -> None:
    async with newcomers(tmp_path, ROUTER + OWN) as there:
        visitor = await signed_up(there, tmp_path)
        project = await project_of(visitor)
        async with office(tmp_path / "data", project) as behind:
            await behind.accounts.credits.put(SYSTEM, project, Decimal(1))
        key, _ = await new_key(visitor)
        assert (await there.ask("/router/v1", "acme/big", key))[0] == 200


@pytest.mark.parametrize(
    ("amount", "status"), first_of([("5", 200), ("unlimited", 200), ("0.00", 402)])
)
async def test_an_operator_chooses_what_newcomers_may_spend(
    amount: str, status: int, tmp_path: Path
) -> None:
    async with newcomers(tmp_path, ROUTER + OWN, amount) as there:
        key, _ = await new_key(await signed_up(there, tmp_path))
        assert (await there.ask("/router/v1", "acme/big", key))[0] == status


async def test_no_door_passes_the_free_requests_of_a_day(tmp_path: Path) -> None:
    """Whatever address and key of the account: what the catalog offers for free is counted."""
    async with newcomers(tmp_path, ROUTER + OWN) as there:
        visitor = await signed_up(there, tmp_path)
        keys = [(await new_key(visitor))[0] for _ in range(2)]
        bases = ("/router/v1", "/v1", "/endpoints/small/v1", "/hosted/v1", "/gateway/v1")
        names = ("acme/small:free", "small")
        answered = [
            (await there.ask(base, name, key))[0]
            for _ in range(3)
            for base in bases
            for name in names
            for key in keys
        ]
    assert answered.count(200) == 2
    assert {*answered} == {200, 404, 429}


def sentences(folder: Path, text: str) -> list[str]:
    file = folder / "causerie.toml"
    file.write_text(UP.format(base_url="https://up.example/v1") + text, encoding="utf-8")
    return list(notes(load(file=file, environ={}).settings))


def test_an_operator_is_told_what_strangers_may_do(tmp_path: Path) -> None:
    assert sentences(tmp_path, ROUTER + OWN) == []
    [nothing] = sentences(tmp_path, ROUTER + OWN + STORE)
    assert "only what costs nothing" in nothing
    [some] = sentences(tmp_path, ROUTER + OWN + BUDGET.format("5") + "sign_up = true")
    assert "$5 a month" in some
    [all_] = sentences(tmp_path, ROUTER + OWN + BUDGET.format("unlimited") + "sign_up = true")
    assert "without limit" in all_
    unpriced = ROUTER.replace('price = { prompt = "1", completion = "2" }', "")
    _, without = sentences(tmp_path, unpriced + OWN + STORE)
    assert "No price is known for the model acme/big" in without
    [also] = sentences(tmp_path, HOSTED + ROUTER + OWN)
    assert "The door hosted has the model small too" in also
