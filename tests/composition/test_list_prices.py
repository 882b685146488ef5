"""What requests cost where nobody has set a price, by who answered, with what caches took."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from faultkit import Fault, Reply, upstream
from hostedkit import Office, office
from messageskit import KEY, Said, messages_server, text
from servicekit import service_view

from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.reports import Month, request_rows, statement_rows
from causerie.hosted.accounts.usage import RecordFilter

CONFIG = """
[store]
folder = "data"
journal = "off"
[[doors]]
name = "gateway"
kind = "gateway"
keys = "accounts"
[[providers]]
name = "claude"
base_url = "{claude}"
dialect = "anthropic"
key = {{ command = ["echo", "{key}"] }}
price_list = "anthropic"
health = {{ path = "" }}
[[aliases]]
id = "claude/*"
targets = [{{ provider = "claude", model = "*" }}]
"""
ASKED = "claude/claude-haiku-4-5-20251001"
COST = Decimal("0.000605")  # 20 at 1, 300 written at 1.25, 100 read at 0.1, 40 out at 5


async def table(rows: Any) -> list[dict[str, str]]:
    found = [row async for piece in rows for row in piece]
    return [dict(zip(found[0], row, strict=True)) for row in found[1:]]


async def statement(opened: Office) -> list[dict[str, str]]:
    month = Month.named(f"{datetime.now(UTC):%Y-%m}", datetime.now(UTC))
    return await table(
        statement_rows(
            opened.accounts.usage, opened.accounts.projects, SYSTEM, opened.project, month
        )
    )


async def test_a_wildcard_has_list_prices_also_for_what_is_written_into_the_cache(
    tmp_path: Path,
) -> None:
    async with messages_server(Said([text("Hi")]), Said([text("Hi")])) as server:
        config = CONFIG.format(claude=server.base_url, key=KEY)
        async with service_view(tmp_path, config) as there, office(tmp_path / "data") as opened:
            key = (await opened.key()).credential
            for fields in ({}, {"stream": False}):
                status, sent, _ = await there.ask("/gateway/v1", ASKED, key=key, **fields)
                assert status == 200
                assert "x-served-model" not in sent, "it is the one that was asked"
            records = await opened.records()
            [line] = await statement(opened)
            now = datetime.now(UTC)
            day = RecordFilter(now - timedelta(days=1), now + timedelta(days=1))
            single = await table(request_rows(opened.accounts.usage, SYSTEM, opened.project, day))
            status, entry = await there.get(f"/gateway/v1/models/{ASKED}", key=key)
    assert [(one.model, one.written, one.cached, one.amount) for one in records] == [
        (ASKED, 300, 100, COST)
    ] * 2
    wanted = {
        "provider": "claude",
        "provider_model": "claude-haiku-4-5-20251001",
        "model": ASKED,
        "requests": "2",
        "input_tokens": "40",
        "cache_read_tokens": "200",
        "cache_write_tokens": "600",
        "output_tokens": "80",
        "reasoning_tokens": "30",
        "cost": "0.00121",
    }
    assert {name: line[name] for name in wanted} == wanted
    assert {(one["operation"], one["model"], one["provider"]) for one in single} == {
        ("chat", ASKED, "claude")
    }
    assert {one["cache_write_tokens"] for one in single} == {"300"}
    assert (status, entry["list_price"]) == (200, True)
    assert entry["pricing"]["input_cache_write"] == "0.00000125"


async def test_a_budget_of_a_wildcard_holds_for_all_its_names_and_after_a_restart(
    tmp_path: Path,
) -> None:
    async with messages_server(*(Said([text("Hi")]) for _ in range(4))) as server:
        config = CONFIG.format(claude=server.base_url, key=KEY)
        budget = Budget(COST, BudgetPeriod.DAY, model="claude/*")
        async with service_view(tmp_path, config) as there, office(tmp_path / "data") as opened:
            made = await opened.key(bounds=LimitsAndBudgets(budgets=(budget,)))
            named = Budget(Decimal("0.000001"), BudgetPeriod.DAY, model=ASKED)
            other = await opened.key(bounds=LimitsAndBudgets(budgets=(named,)))
            for key, status in ((made, 200), (other, 200), (other, 402)):
                assert (await there.ask("/gateway/v1", ASKED, key=key.credential))[0] == status
        async with service_view(tmp_path, config) as there:
            status, _, answer = await there.ask("/gateway/v1", ASKED, key=made.credential)
            assert (status, answer["error"]["code"]) == (402, "insufficient_budget")


FAILOVER = """
[store]
folder = "data"
journal = "off"
[[doors]]
name = "gateway"
kind = "gateway"
keys = "accounts"
[[providers]]
name = "near"
base_url = "{near}"
health = {{ path = "" }}
[[providers]]
name = "far"
base_url = "{far}"
health = {{ path = "" }}
[[aliases]]
id = "chat"
price = {{ prompt = "1", completion = "1" }}
targets = [
    {{ provider = "near", model = "m" }},
    {{ provider = "far", model = "m", priority = 1, price = {{ prompt = "7", completion = "9" }} }},
]
"""


async def test_a_failover_costs_what_it_cost(tmp_path: Path) -> None:
    async with upstream([Reply(), Fault.SERVER_ERROR]) as near, upstream(Reply()) as far:
        config = FAILOVER.format(near=near.base_url, far=far.base_url)
        async with service_view(tmp_path, config) as there, office(tmp_path / "data") as opened:
            key = (await opened.key()).credential
            assert (await there.ask("/gateway/v1", "chat", key=key))[0] == 200
            assert (await there.ask("/gateway/v1", "chat", key=key))[0] == 200
            second, first = await opened.records()
            lines = await statement(opened)
    million = Decimal(1_000_000)
    assert first.amount == (first.prompt + first.completion) / million
    assert (second.served_by, second.amount) == (
        "far/m",
        (7 * second.prompt + 9 * second.completion) / million,
    )
    costs = {line["provider"]: Decimal(line["cost"]) for line in lines}
    assert costs == {"near": first.amount, "far": second.amount}
