"""Operations that pass through, for keys of accounts: budgets, prices and records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from hostedkit import office
from passedkit import RANKED, VECTORS, text_chunk, upstream
from servicekit import service_view
from waiting import eventually

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
id = "code"
price = {{ prompt = "1000", completion = "2000" }}
targets = [{{ provider = "up", model = "c" }}]
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


@dataclass(frozen=True)
class End:
    """A way to end what passes: its reply, and the tokens and units that it is charged for."""

    operation: str
    reply: Any
    status: int = 200
    prompt: int = 7
    completion: int = 0
    units: int = 1
    flagged: bool = False
    leaves: bool = False
    charged: bool = True


def _vectors(**usage: int) -> tuple[int, Any]:
    return 200, {**VECTORS, "usage": usage}


def _ranked(units: float) -> tuple[int, Any]:
    return 200, {**RANKED, "meta": {"billed_units": {"search_units": units}}}


WORDS = [text_chunk(f"w{at:03} ") for at in range(20)]
TOLD = {"prompt_tokens": 7, "completion_tokens": 20}
ENDS = {
    "vectors": End("embeddings", (200, VECTORS)),
    "vectors without usage": End("embeddings", _vectors(), prompt=1, flagged=True),
    "vectors of a dear prompt": End(
        "embeddings", _vectors(prompt_tokens=2**31 - 1), prompt=1, flagged=True
    ),
    "vectors with a completion": End(
        "embeddings", _vectors(prompt_tokens=7, completion_tokens=2**31 - 1), flagged=True
    ),
    "no vectors": End("embeddings", (200, {"usage": TOLD}), 502, charged=False),
    "refused": End("embeddings", (400, {"error": {"message": "No."}}), 400, charged=False),
    "ranked": End("rerank", _ranked(2), prompt=2, units=2, flagged=True),
    "ranked for nothing": End("rerank", _ranked(0), prompt=2, flagged=True),
    "ranked for a fortune": End("rerank", _ranked(1_000_000), prompt=2, flagged=True),
    "text": End(
        "completions", [*WORDS, text_chunk("", "stop", usage=TOLD)], completion=20, units=0
    ),
    "text of a dear usage": End(
        "completions",
        [*WORDS, text_chunk("", "stop", usage={**TOLD, "completion_tokens": 2**31 - 1})],
        completion=20,
        units=0,
        flagged=True,
    ),
    "text without usage": End(
        "completions", [*WORDS, text_chunk("", "stop")], prompt=1, completion=20, units=0,
        flagged=True,
    ),
    "text that breaks off": End(
        "completions", WORDS, 502, prompt=1, completion=20, units=0, flagged=True
    ),
    "text that its client leaves": End(
        "completions", WORDS, 499, prompt=1, completion=20, units=0, flagged=True, leaves=True
    ),
}  # fmt: skip
BODIES: Mapping[str, Mapping[str, Any]] = {
    "embeddings": {"model": "embed", "input": "x"},
    "rerank": {"model": "order", "query": "q", "documents": ["d"]},
    "completions": {"model": "code", "prompt": "x", "stream": True},
}


async def test_what_passes_is_charged_however_it_ends_and_never_for_more(tmp_path: Path) -> None:
    """A provider's numbers that the request and the reply cannot have are estimated, and said."""
    async with AsyncExitStack() as held:
        there = await held.enter_async_context(upstream())
        text = HOSTED.format(url=there.base_url, folder=tmp_path / "data")
        view = await held.enter_async_context(service_view(tmp_path, text))
        opened = await held.enter_async_context(office(tmp_path / "data"))
        key = (await opened.key()).credential
        for number, end in enumerate(ENDS.values()):
            there.replies[:] = [end.reply] * 4  # what cannot be read is asked again
            there.hold = end.leaves
            headers = {"authorization": f"Bearer {key}", "x-request-id": f"r{number}"}
            url = f"{view.root}/hosted/v1/{end.operation}"
            body = BODIES[end.operation]
            async with view.session.post(url, json=body, headers=headers) as response:
                if not end.leaves:
                    await response.read()
                    continue
                for _ in range(2 * len(WORDS)):
                    await response.content.readline()
                response.close()

        async def written() -> bool:
            return len(await opened.records()) == len(ENDS)

        await eventually(written)
        records = {one.request_id: one for one in await opened.records()}
    for number, (name, end) in enumerate(ENDS.items()):
        found = records[f"r{number}"]
        assert (found.status, found.charged) == (end.status, end.charged), name
        if not end.charged:
            assert not found.cost, name
            continue
        counted = (found.prompt, found.completion, found.units)
        assert counted == (end.prompt, end.completion, end.units), name
        assert found.estimated == end.flagged, name
        worth = Decimal(end.prompt + 2 * end.completion) / 1000
        assert found.amount == (2 * end.units if end.operation == "rerank" else worth), name
