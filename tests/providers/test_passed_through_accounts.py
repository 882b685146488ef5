"""Operations that pass through, for keys of accounts: budgets, prices and records."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

from hostedkit import office
from passedkit import RANKED, VECTORS, upstream
from servicekit import service_view

from causerie.hosted.accounts.bounds import Budget, LimitsAndBudgets, Unit

HOSTED = """
[store]
folder = "{folder}"
[[doors]]
name = "hosted"
kind = "hosted"
keys = "accounts"
[[providers]]
name = "up"
base_url = "{url}"
[[aliases]]
id = "embed"
price = {{ prompt = "1000" }}
targets = [{{ provider = "up", model = "e" }}]
[[aliases]]
id = "order"
price = {{ request = "2" }}
targets = [{{ provider = "up", model = "r" }}]
"""


async def test_accounts_are_charged_and_records_name_the_operation(tmp_path: Path) -> None:
    async with AsyncExitStack() as held:
        there = await held.enter_async_context(upstream((200, VECTORS), (200, RANKED)))
        text = HOSTED.format(url=there.base_url, folder=tmp_path / "data")
        view = await held.enter_async_context(service_view(tmp_path, text))
        opened = await held.enter_async_context(office(tmp_path / "data"))
        budget = Budget(Decimal(20), unit=Unit.TOKENS)
        made = await opened.key(bounds=LimitsAndBudgets(budgets=(budget,)))
        headers = {"authorization": f"Bearer {made.credential}"}

        async def post(path: str, body: Any) -> tuple[int, Any]:
            url = f"{view.root}/hosted/v1/{path}"
            async with view.session.post(url, json=body, headers=headers) as response:
                return response.status, await response.json()

        assert (await post("embeddings", {"model": "embed", "input": "x"}))[0] == 200
        ranked = {"model": "order", "query": "q" * 50, "documents": ["d"]}
        assert (await post("rerank", ranked))[0] == 200
        found: dict[str, Any] = {}
        while len(found) < 2:  # the database follows the journal
            await asyncio.sleep(0.01)
            found = {one.operation: one for one in await opened.records()}
        vectors, order = found["embeddings"], found["rerank"]
        assert (vectors.prompt, vectors.completion, vectors.units) == (7, 0, 1)
        assert (vectors.amount, vectors.estimated) == (Decimal(7) / 1000, False)
        assert (order.units, order.amount) == (2, Decimal(4)), "two search units"
        status, refused = await post("embeddings", {"model": "embed", "input": "x"})
        assert (status, refused["error"]["code"]) == (402, "insufficient_budget")
