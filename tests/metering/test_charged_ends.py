"""Every way in which a reply ends, at a whole router: what was delivered is charged, once.

What was not delivered, by a fault that is not the client's, is not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from faultkit import Broken, Fault, Received, Reply, Upstream, upstream
from hostedkit import Office, office
from hostilekit import Part, build
from servicekit import ServiceView, service_view

from causerie.errors import InternalError
from causerie.hosted.accounts.bounds import Budget, LimitsAndBudgets, Unit
from causerie.hosted.accounts.budgets import Budgets
from causerie.metering.ledger import UsageRecord
from causerie.protocol.events import Batch, TextDelta
from causerie.protocol.money import BILLION
from causerie.shapes.chat_completions.encoder import ChunkEncoder
from causerie.shapes.messages.encoder import MessagesEncoder
from causerie.shapes.responses.encoder import ResponseEncoder
from causerie.shapes.shape import PassingEncoder

PROMPT, COMPLETION = Decimal("0.001"), Decimal("0.002")
PIECE = 5
TOKENS = 10
WORDS = "".join(f"{at:04} " for at in range(TOKENS))
REPLY = Reply(WORDS, piece=PIECE)
R = "/router/v1"
CONFIG = """
[store]
folder = "data"
journal = "off"
[free]
requests_per_day = 1000
requests_per_minute = 1000
concurrent = 100
[[doors]]
name = "router"
kind = "router"
"""
PROVIDER = """
[[providers]]
name = "{name}"
base_url = "{url}"
dialect = "{dialect}"
timeouts = {{ first_token = {seconds}, between_chunks = {seconds}, total = {total} }}
[providers.health]
path = ""
"""
OWN = """
[[models]]
id = "{id}"
engine = "fake"
options = {options}
"""
OFFER = """
[[catalog]]
id = "a/{id}{variant}"
"""
ENDPOINT = """
[[catalog.endpoints]]
{who}
price = {{ prompt = "{prompt}", completion = "{completion}" }}
"""
OWN_MODELS = {
    "dying": "{ fail_after = 3 }",
    "unkept": """{ replies = ['["a", "a", "a"]'] }""",
    "unbegun": "{ replies = ['\"b\"'] }",
    "given up": '{ replies = [\'{"a": "x"}\'] }',
}
# Of two texts there are no three, which counting does not see in a pattern like this one.
UNKEPT = {
    "type": "array",
    "items": {"type": "string", "pattern": "^a?$"},
    "minItems": 3,
    "uniqueItems": True,
}
# It passes the check before the answer, and has more ways in its middle than an engine follows.
GIVEN_UP = build(Part.parse("a=overlapping:60/enum:40/words:20").chain, {})
UNBEGUN = {"type": "string", "minLength": 1, "not": {"pattern": "."}}


class Shape(NamedTuple):
    """An API as its client speaks it."""

    path: str
    encoder: Any
    ask: Callable[[str, int | None, Mapping[str, Any] | None], dict[str, Any]]
    """Fields that ask this, for so many tokens at most and a reply by this schema."""
    texts: Callable[[Any], Sequence[str]]
    """The pieces of the answer in a plain reply, or in an event of a stream."""
    dialect: str = "bedrock"
    """Of the provider; this one goes on with no reply, and speaks chat completions alone."""


def _chat(text: str, most: int | None, rules: Mapping[str, Any] | None) -> dict[str, Any]:
    form = {"name": "s", "strict": True, "schema": rules}
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": most,
        "response_format": rules and {"type": "json_schema", "json_schema": form},
    }


def _responses(text: str, most: int | None, rules: Mapping[str, Any] | None) -> dict[str, Any]:
    form = {"type": "json_schema", "name": "s", "strict": True, "schema": rules}
    return {"input": text, "max_output_tokens": most, "text": rules and {"format": form}}


def _messages(text: str, most: int | None, rules: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": most or 1000,
        "output_config": rules and {"format": {"type": "json_schema", "schema": rules}},
    }


def _texts_of_chat(said: Any) -> Sequence[str]:
    return [(one.get("delta") or one.get("message"))["content"] or "" for one in said["choices"]]


def _texts_of_responses(said: Any) -> Sequence[str]:
    if said.get("object") != "response":
        return [said["delta"]] if said["type"] == "response.output_text.delta" else []
    return [part["text"] for item in said["output"] for part in item["content"]]


def _texts_of_messages(said: Any) -> Sequence[str]:
    if said["type"] == "message":
        return [block["text"] for block in said["content"]]
    return [said["delta"]["text"]] if said["type"] == "content_block_delta" else []


CHAT = Shape("/chat/completions", ChunkEncoder, _chat, _texts_of_chat)
RESPONSES = Shape("/responses", ResponseEncoder, _responses, _texts_of_responses)
MESSAGES = Shape("/messages", MessagesEncoder, _messages, _texts_of_messages)
PASSED_RESPONSES = RESPONSES._replace(encoder=PassingEncoder, dialect="openai")
PASSED_MESSAGES = MESSAGES._replace(encoder=PassingEncoder, dialect="anthropic")


@dataclass(frozen=True)
class End:
    """A way to end a reply. ``reads`` is how many pieces a client waits for before it leaves."""

    step: Reply | Broken | Fault = REPLY
    model: str = "one"
    most: int | None = None
    rules: Mapping[str, Any] | None = None
    reads: int | None = None
    streamed_only: bool = False
    theirs: bool = False
    """The end is the client's doing, so that work is charged without delivery."""
    status: int = 200
    """0 if it depends on where the error is noticed."""


ENDS = {
    "finished": End(),
    "length": End(most=3),
    "filtered": End(Reply(WORDS, piece=PIECE, finish="content_filter")),
    "no usage is told": End(Broken(Fault.USAGE_MISSING, reply=REPLY)),
    "refused": End(Broken(Fault.SERVER_ERROR, status=400), status=400),
    "too many": End(Fault.TOO_MANY, status=429),
    "server error": End(Fault.SERVER_ERROR, status=502),
    "error instead of a reply": End(Fault.ERROR_IN_200, status=502),
    "silence": End(Fault.STALL_BEFORE_FIRST, status=504),
    "broken": End(Broken(Fault.RESET_MID_STREAM, after=4, reply=REPLY), status=502),
    "broken after the last token": End(
        Broken(Fault.RESET_MID_STREAM, after=TOKENS, reply=REPLY), status=502
    ),
    "error after content": End(Broken(Fault.ERROR_IN_STREAM, after=4, reply=REPLY), status=502),
    "invalid after content": End(Broken(Fault.GARBAGE_JSON, after=4, reply=REPLY), status=502),
    "no more pieces": End(Broken(Fault.STALL_MID_STREAM, after=4, reply=REPLY), status=504),
    "takes too long": End(Reply(WORDS, piece=PIECE, pause=1.0), status=504),
    "continued": End(Broken(Fault.RESET_MID_STREAM, after=4, reply=REPLY), "two"),
    "continued after an error": End(Broken(Fault.ERROR_IN_STREAM, after=4, reply=REPLY), "two"),
    "an error of ours": End(
        Reply(WORDS.replace("0004", "oops"), piece=PIECE, pause=0.05), streamed_only=True, status=0
    ),
    "an error of ours at the start": End(
        Reply(WORDS.replace("0000", "oops"), piece=PIECE, pause=0.05), streamed_only=True, status=0
    ),
    "left in the middle": End(
        Reply(WORDS, piece=PIECE, pause=0.3), reads=3, theirs=True, status=499
    ),
    "left after the last token": End(
        Broken(Fault.STALL_MID_STREAM, after=TOKENS, reply=REPLY),
        reads=TOKENS,
        theirs=True,
        status=499,
    ),
    "left before the first": End(Fault.STALL_BEFORE_FIRST, reads=0, theirs=True, status=499),
    "an engine dies": End(model="dying", status=503),
    "a rule that is not kept": End(model="unkept", rules=UNKEPT, theirs=True, status=400),
    "a rule that the engine gives up": End(
        model="given up", rules=GIVEN_UP, theirs=True, status=400
    ),
    "a rule that is not kept at the start": End(
        model="unbegun", rules=UNBEGUN, theirs=True, status=400
    ),
}
Case = tuple[str, bool, str]
CASES = [
    (name, stream, variant)
    for name, stream, variant in product(ENDS, (True, False), ("", ":free"))
    if stream or not ENDS[name].streamed_only
]
KEPT = 8  # tokens of the reply that is not kept, without those that were taken back
GIVEN_UP_END = "a rule that the engine gives up"
USUAL = tuple(name for name in ENDS if name != GIVEN_UP_END)
"""The other keeps the fake engine busy for longer than the time-outs of these."""
FEW = (
    "length", "refused", "error after content", "continued", "an error of ours",
    "left in the middle", "left before the first", "an engine dies",
)  # fmt: skip
"""Ends that are tried by default at shapes other than chat completions."""


def numbered(cases: Iterable[Case]) -> Mapping[str, Case]:
    return {f"r{number}": case for number, case in enumerate(cases)}


NUMBERED = numbered(CASES)


@dataclass
class Outcome:
    """What a client has had of a reply: its status, pieces of content, and the error."""

    status: int = 0
    delivered: int = 0
    error: Mapping[str, Any] | None = None


@dataclass
class Shop:
    """A router, its database from outside, and what its budgets count."""

    view: ServiceView
    office: Office
    up: Upstream
    budgets: Sequence[Budgets]
    shape: Shape

    async def ask(self, key: str, name: str, case: Case) -> Outcome:
        """Make a request that ends so, under this id."""
        end, (way, stream, variant) = ENDS[case[0]], case
        body: dict[str, Any] = {
            "model": f"a/{name}{variant}",
            "stream": stream,
            **self.shape.ask(f"{way}/{name}", end.most, end.rules),
        }
        if end.model == "two":
            body["provider"] = {"order": [name, "other"]}
        headers = {"authorization": f"Bearer {key}", "x-request-id": name}
        found = Outcome()
        asking = asyncio.ensure_future(self._answer(headers, body, found, end.reads))
        if end.reads is not None and not (stream and end.reads):
            async with asyncio.timeout(60):
                while f"{way}/{name}" not in map(said, self.up.requests):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)  # the provider has it then
            asking.cancel()
        await asyncio.wait([asking])
        return found

    async def _answer(
        self, headers: Mapping[str, str], body: Any, found: Outcome, reads: int | None
    ) -> None:
        url = f"{self.view.root}{R}{self.shape.path}"
        async with self.view.session.post(url, json=body, headers=headers) as response:
            found.status = response.status
            if body["stream"] and response.status == 200:
                await self._read(response, found, reads)
                return
            told = await response.json()
            found.error = told.get("error")
            if response.status == 200:
                text = "".join(self.shape.texts(told))
                found.delivered = -(-len(text) // PIECE)

    async def _read(
        self, response: aiohttp.ClientResponse, found: Outcome, reads: int | None
    ) -> None:
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            found.error = chunk.get("error") or found.error
            if not chunk.get("error"):
                found.delivered += sum(map(bool, self.shape.texts(chunk)))
            if reads is not None and found.delivered >= reads:
                response.close()
                return

    async def records(self, count: int) -> Mapping[str, UsageRecord]:
        """Return the records by the names of their requests, once there are so many."""
        async with asyncio.timeout(60):
            while len(found := await self.office.records()) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the ledger writes by itself
        assert len({one.request_id for one in found}) == len(found) == count
        return {one.request_id: one for one in found}


def said(received: Received) -> str:
    body = received.body
    text: str = body["input"] if "input" in body else body["messages"][0]["content"]
    return text


def served(name: str, end: End, variant: str, url: str, dialect: str) -> str:
    """Return the configuration of a case's own model, so that no failure counts for another."""
    model = end.model
    seconds, total = (1.5, 4) if end.reads is None else (60, 60)
    prompt = 0 if variant else 1000
    price = {"prompt": prompt, "completion": 2 * prompt}
    if model in OWN_MODELS:
        who, text = f'model = "{name}"', OWN.format(id=name, options=OWN_MODELS[model])
    else:
        who = f'provider = "{name}"\nmodel = "m"'
        text = PROVIDER.format(name=name, url=url, dialect=dialect, seconds=seconds, total=total)
    text += OFFER.format(id=name, variant=variant) + ENDPOINT.format(who=who, **price)
    if model == "two":
        text += ENDPOINT.format(who='provider = "other"\nmodel = "m"', **price)
    return text


@asynccontextmanager
async def shop(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: Shape = CHAT,
    cases: Mapping[str, Case] = NUMBERED,
) -> AsyncIterator[Shop]:
    def script(received: Received) -> Reply | Broken | Fault:
        return ENDS[said(received).partition("/")[0]].step

    seen: list[Budgets] = []
    begin = Budgets.__init__

    def noted(self: Budgets, *given: Any, **more: Any) -> None:
        seen.append(self)
        begin(self, *given, **more)

    monkeypatch.setattr(Budgets, "__init__", noted)
    async with upstream(script) as up, upstream(lambda _: REPLY) as other:
        text = CONFIG + PROVIDER.format(
            name="other", url=other.base_url, dialect="vllm", seconds=60, total=60
        )
        for name, (way, _, variant) in cases.items():
            text += served(name, ENDS[way], variant, up.base_url, shape.dialect)
        async with service_view(folder, text) as view, office(folder / "data") as opened:
            yield Shop(view, opened, up, seen, shape)


def failing(feed: Callable[[Any, Batch], bytes]) -> Any:
    """A bug that shows in the middle of some replies."""

    def fails(self: object, batch: Batch) -> bytes:
        if any(isinstance(event, TextDelta) and "oops" in event.text for event in batch):
            raise InternalError("a bug")
        return feed(self, batch)

    return fails


def judged(shape: Shape, case: Case, found: Outcome, record: UsageRecord) -> None:
    """Check what is charged of one request against what its client had."""
    way, stream, variant = case
    end = ENDS[way]
    expected = end.status
    if end.model == "two" and stream and shape.encoder is PassingEncoder:
        expected = 502  # nobody else can go on with what passed unread
    assert record.status == expected or not expected, (case, record)
    assert record.completion >= found.delivered, (case, record)
    if found.delivered:
        assert record.charged, (case, record)
    elif not end.theirs:
        assert not record.charged, (case, record)
        assert not record.cost, (case, record)
    else:
        assert record.charged, (case, record)
    full = PROMPT * record.prompt + COMPLETION * record.completion
    assert record.amount == (full if record.charged and not variant else 0), (case, record)


@pytest.mark.parametrize(
    ("shape", "ways"),
    [
        pytest.param(CHAT, USUAL, id="chat completions"),
        pytest.param(CHAT, (GIVEN_UP_END,), id="chat completions, given up"),
        pytest.param(RESPONSES, FEW, id="responses"),
        pytest.param(MESSAGES, FEW, id="messages"),
        pytest.param(PASSED_RESPONSES, FEW, id="responses, passed"),
        pytest.param(PASSED_MESSAGES, FEW, id="messages, passed"),
        pytest.param(RESPONSES, USUAL, id="responses, all", marks=pytest.mark.full),
        pytest.param(MESSAGES, USUAL, id="messages, all", marks=pytest.mark.full),
        pytest.param(PASSED_RESPONSES, USUAL, id="responses, passed, all", marks=pytest.mark.full),
        pytest.param(PASSED_MESSAGES, USUAL, id="messages, passed, all", marks=pytest.mark.full),
    ],
)
async def test_what_was_delivered_is_charged_and_nothing_else(
    shape: Shape, ways: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In records, budgets of money and of tokens, and free requests; also after a restart."""
    monkeypatch.setattr(shape.encoder, "feed", failing(shape.encoder.feed))
    cases = numbered(case for case in CASES if case[0] in ways)
    async with shop(tmp_path, monkeypatch, shape, cases) as there:
        budgets = (Budget(Decimal(10**6)), Budget(Decimal(10**9), unit=Unit.TOKENS))
        made = await there.office.key(bounds=LimitsAndBudgets(budgets=budgets))
        asked: list[Awaitable[Outcome]] = [
            there.ask(made.credential, name, case) for name, case in cases.items()
        ]
        outcomes = dict(zip(cases, await asyncio.gather(*asked), strict=True))
        records = await there.records(len(cases))
        for name, case in cases.items():
            judged(shape, case, outcomes[name], records[name])
            if case[0] == "a rule that is not kept":  # it was drawn again and again
                assert records[name].completion > KEPT, case
        charged = [one for one in records.values() if one.charged]
        cost = sum(one.cost for one in charged)
        tokens = sum(one.prompt + one.completion for one in charged)
        [counting] = there.budgets
        spent = {each.budget.unit: each for each in counting._counters_by_budget_id.values()}
        assert spent[Unit.TOKENS].spent == tokens
        assert spent[Unit.MONEY].spent == cost
        assert not any(each.reserved for each in spent.values())
        _, told = await there.view.get(f"{R}/key", made.credential)
        assert told["data"]["usage"] == cost / BILLION
        free = [one for one in records.values() if one.model.endswith(":free")]
        used = sum(one.charged or one.status in (200, 499) for one in free)
        assert told["data"]["free_model_daily_requests"]["used"] == used
        from_nothing = await there.office.reader.charged_failures(
            there.office.project, records["r0"].moment.replace(hour=0, minute=0), ":free"
        )
        assert from_nothing == sum(one.charged and one.status not in (200, 499) for one in free)


@pytest.mark.parametrize(
    "shape",
    [CHAT, *(pytest.param(one, marks=pytest.mark.full) for one in (RESPONSES, MESSAGES))],
    ids=("chat completions", "responses", "messages"),
)
async def test_a_stop_of_the_service_charges_what_was_delivered_until_then(
    shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client has not left: a plain reply that was not sent costs nothing."""
    monkeypatch.setitem(ENDS, "finished", End(Reply(WORDS, piece=PIECE, pause=60)))
    outcomes = [Outcome(), Outcome()]
    async with aiohttp.ClientSession() as session:
        async with shop(tmp_path, monkeypatch, shape) as there:
            made = await there.office.key()
            there.view = replace(there.view, session=session)  # one that stays
            asked = []
            for name, found, stream in zip(("r0", "r2"), outcomes, (True, False), strict=True):
                asks = shape.ask(f"finished/{name}", None, None)
                body = {"model": f"a/{name}", "stream": stream, **asks}
                headers = {"authorization": f"Bearer {made.credential}", "x-request-id": name}
                asked.append(there._answer(headers, body, found, None))
            asking = asyncio.ensure_future(asyncio.gather(*asked, return_exceptions=True))
            async with asyncio.timeout(60):
                while not (outcomes[0].delivered and len(there.up.requests) == 2):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)  # the provider has both then
        await asking
    async with office(tmp_path / "data") as opened:
        records = {one.request_id: one for one in await opened.records()}
    streamed, plain = records["r0"], records["r2"]
    assert (plain.status, plain.code, plain.charged) == (500, "interrupted", False)
    assert not plain.cost
    assert (streamed.code, streamed.charged) == ("interrupted", True)
    assert streamed.completion >= outcomes[0].delivered
    assert streamed.amount == PROMPT * streamed.prompt + COMPLETION * streamed.completion
