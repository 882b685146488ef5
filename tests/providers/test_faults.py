"""A client's answer at every fault of a provider, alone and with another provider.

``docs/reference/faults.md`` shows the same table.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from casekit import each_of
from faultkit import Broken, Call, Fault, Received, Reply, upstream
from gatewaykit import Answer, gateway, settled

from causerie.errors import ErrorClass
from causerie.metering.meter import RequestLog
from causerie.observe.logging import LogBuffer
from causerie.providers.provider import Deadlines

PAGE = Path(__file__).parents[2] / "docs" / "reference/faults.md"
TEXT = Reply().text
WHOLE = "the whole reply"
GATEWAY = "502 `bad_gateway`"
LATE = "504 `upstream_timeout`"
FULL = "429 `upstream_rate_limited`, `Retry-After`"
CUT = "what came, then an error chunk and `[DONE]`"

# What a client gets from this provider alone: a plain answer, a stream.
ALONE: dict[Fault, tuple[str, str]] = {
    Fault.REFUSE: (GATEWAY, GATEWAY),
    Fault.DNS_FAILURE: (GATEWAY, GATEWAY),
    Fault.TLS_SELF_SIGNED: (GATEWAY, GATEWAY),
    Fault.TLS_WRONG_NAME: (GATEWAY, GATEWAY),
    Fault.TLS_PLAIN_TEXT: (GATEWAY, GATEWAY),
    Fault.RESET: (GATEWAY, GATEWAY),
    Fault.RESET_MID_STREAM: (GATEWAY, CUT),
    Fault.CLOSE: (GATEWAY, GATEWAY),
    Fault.HANG: (LATE, LATE),
    Fault.STALL_BEFORE_FIRST: (LATE, LATE),
    Fault.STALL_MID_STREAM: (LATE, CUT),
    Fault.CUT_MID_CHUNK: (GATEWAY, CUT),
    Fault.CUT_MID_UTF8: (GATEWAY, CUT),
    Fault.HALF_CLOSED: (GATEWAY, CUT),
    Fault.GARBAGE_JSON: (GATEWAY, CUT),
    Fault.ERROR_IN_STREAM: (GATEWAY, CUT),
    Fault.ENDLESS: (LATE, CUT),
    Fault.SLOW_HEADERS: (WHOLE, WHOLE),
    Fault.NOT_HTTP: (GATEWAY, GATEWAY),
    Fault.HTML_ERROR_PAGE: (GATEWAY, GATEWAY),
    Fault.ERROR_IN_200: (GATEWAY, GATEWAY),
    Fault.TOO_MANY: (FULL, FULL),
    Fault.TOO_MANY_SECONDS: (FULL, FULL),
    Fault.TOO_MANY_DATE: (FULL, FULL),
    Fault.SERVER_ERROR: (GATEWAY, GATEWAY),
    Fault.REDIRECT: (GATEWAY, GATEWAY),
    **{fault: (WHOLE, WHOLE) for fault in Fault if fault.complete},
}
QUICK = Deadlines(first_token=0.5, between_chunks=0.5, total=1.0)


def outcome(answer: Answer) -> str:
    """The answer in the words of the table; checks what holds for every answer."""
    if answer.status != 200:
        assert answer.error is not None
        later = ", `Retry-After`" if "Retry-After" in answer.headers else ""
        return f"{answer.status} `{answer.error['code']}`{later}"
    assert answer.done == 1
    assert len(answer.ids) == 1
    assert len(answer.finish) == 1
    if answer.error is not None:
        assert answer.finish == ["error"]
        assert answer.text
        return CUT
    assert answer.text == TEXT
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] > 0
    return WHOLE


def step(fault: Fault) -> Broken:
    return Broken(fault, pause=0.001)


async def one(fault: Fault, streamed: bool, *, helped: bool) -> str:
    async with upstream(step(fault)) as bad, upstream(Reply()) as good:
        urls = [bad.base_url, good.base_url] if helped else [bad.base_url]
        async with gateway(*urls, deadlines=QUICK) as there:
            limit = (
                {"max_tokens": 10**6} if fault is Fault.ENDLESS else {}
            )  # which is never reached
            answer = await (there.stream(**limit) if streamed else there.plain(**limit))
            await settled(lambda: there.router.status()[0].in_flight == 0)
    if helped:
        assert good.mistakes == []
    return outcome(answer)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
async def test_alone(fault: Fault) -> None:
    plain, stream = await asyncio.gather(
        one(fault, False, helped=False), one(fault, True, helped=False)
    )
    assert (plain, stream) == ALONE[fault]


@pytest.mark.parametrize(
    "fault",
    [fault for fault in Fault if fault is not Fault.ENDLESS],
    ids=lambda fault: fault.name.lower(),
)
async def test_with_another_provider_the_reply_is_whole(fault: Fault) -> None:
    found = await asyncio.gather(one(fault, False, helped=True), one(fault, True, helped=True))
    assert set(found) == {WHOLE}


async def test_a_reply_without_end_is_ended_by_another_provider() -> None:
    """Its deadline breaks it off, and so it goes on as any other does."""
    ending = " And so it ended."

    def end(received: Received) -> Reply:
        last = received.body["messages"][-1]
        return Reply(last["content"] + ending if last["role"] == "assistant" else ending)

    async with (
        upstream(step(Fault.ENDLESS)) as bad,
        upstream(end) as good,
        gateway(bad.base_url, good.base_url, deadlines=QUICK) as there,
    ):
        answers = [await there.stream(max_tokens=10**6), await there.plain(max_tokens=10**6)]
        await settled(lambda: len(there.records) == 2)
    assert good.mistakes == []
    assert TEXT in answers[0].text
    assert answers[0].text.endswith(ending)
    assert answers[1].text == ending
    for answer, record in zip(answers, there.records, strict=True):
        assert (answer.status, answer.finish, answer.error) == (200, ["stop"], None)
        assert list(record.tried) == ["e0: timeout", "e1: answered"]


def table() -> str:
    """The table of the page."""
    lines = ["| what the provider does | plain answer | stream |", "|---|---|---|"]
    lines += [f"| {fault.value} | {plain} | {stream} |" for fault, (plain, stream) in rows()]
    return "\n".join(lines)


def rows() -> list[tuple[Fault, tuple[str, str]]]:
    return [(fault, ALONE[fault]) for fault in Fault]


def test_the_page_shows_this_table() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


@each_of(
    ("fault", "status"),
    [
        (Broken(Fault.SERVER_ERROR, status=400), 400),
        (Fault.SERVER_ERROR, 502),
        (Fault.TOO_MANY, 429),
        (Fault.ERROR_IN_200, 502),
        (Broken(Fault.ERROR_IN_STREAM, after=0), 502),
    ],
)
async def test_a_refusal_says_what_was_changed(fault: Fault | Broken, status: int) -> None:
    async with upstream(fault) as bad, gateway(bad.base_url) as there:
        answer = await there.stream(metadata={"a": "b"})
    assert answer.status == status
    assert answer.headers["x-request-changes"] == "metadata dropped"


# Replies that go on elsewhere.


@each_of("after", range(1, 9))
async def test_wherever_a_stream_breaks_the_rest_comes_from_elsewhere(after: int) -> None:
    reply = Reply(reasoning="Was soll ich sagen …")
    broken = Broken(Fault.RESET_MID_STREAM, after=after, reply=reply)
    async with (
        upstream(broken) as bad,
        upstream(reply) as good,
        gateway(bad.base_url, good.base_url, dialect="llama-server") as there,
    ):
        answer = await there.stream()
        await settled(lambda: there.records != [])
    assert good.mistakes == []
    assert (answer.reasoning, answer.text, answer.finish) == (reply.reasoning, TEXT, ["stop"])
    assert answer.done == len(answer.ids) == 1
    [record] = there.records
    assert (record.status, record.continued, record.attempts) == (200, 1, 2)
    assert record.served_by == "e1"
    assert list(record.tried) == ["e0: broken_stream", "e1: answered"]
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == record.used.completion


async def test_a_call_that_breaks_is_not_begun_twice() -> None:
    """Nobody can go on inside a call of another server: the failure is told."""
    reply = Reply("", calls=(Call("look", '{"where": "here"}'),))
    broken = Broken(Fault.RESET_MID_STREAM, after=2, reply=reply)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    async with (
        upstream(broken) as bad,
        upstream(reply) as good,
        gateway(bad.base_url, good.base_url) as there,
    ):
        answer = await there.stream(tools=[tool])
    assert answer.error is not None
    assert answer.finish == ["error"]
    assert answer.done == 1
    assert good.requests == []


async def test_where_nobody_can_go_on_the_failure_is_told() -> None:
    async with (
        upstream(Fault.RESET_MID_STREAM) as bad,
        upstream(Reply()) as good,
        gateway(bad.base_url, good.base_url, dialect="openai") as there,
    ):
        assert outcome(await there.stream()) == CUT
    assert good.requests == []


async def test_a_plain_reply_that_nobody_can_go_on_with_is_begun_anew() -> None:
    """Its client has been sent nothing, however far it had come."""
    reply = Reply("", calls=(Call("look", '{"where": "here"}'),))
    broken = Broken(Fault.RESET_MID_STREAM, after=2, reply=reply)
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    async with (
        upstream(broken) as bad,
        upstream(reply) as good,
        gateway(bad.base_url, good.base_url, dialect="llama-server") as there,
    ):
        answer = await there.plain(tools=[tool])
        await settled(lambda: there.records != [])
    assert answer.status == 200
    assert [call["arguments"] for call in answer.calls.values()] == ['{"where": "here"}']
    assert (answer.headers["x-served-by"], answer.headers["x-attempts"]) == ("e1", "2")
    assert good.mistakes == []
    [record] = there.records
    assert (record.status, record.continued, record.served_by) == (200, 0, "e1")
    assert list(record.tried) == ["e0: broken_stream", "e1: answered"]
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == record.used.completion == len(reply.deltas())


async def test_time_spent_with_who_did_not_answer_is_told_apart() -> None:
    async with (
        upstream(Broken(Fault.STALL_BEFORE_FIRST)) as bad,
        upstream(Reply()) as good,
        gateway(bad.base_url, good.base_url, deadlines=QUICK) as there,
    ):
        answer = await there.plain()
        await settled(lambda: there.records != [])
    parts = [part.split(";dur=") for part in answer.headers["server-timing"].split(", ")]
    times = {name: float(milliseconds) for name, milliseconds in parts}
    assert list(times) == ["queue", "route", "upstream", "overhead"]
    assert times["route"] >= QUICK.first_token * 1000 > times["overhead"]
    [record] = there.records
    assert record.overhead_seconds < QUICK.first_token


async def test_who_went_on_with_a_plain_reply_is_told() -> None:
    async with (
        upstream(Broken(Fault.RESET_MID_STREAM, after=2)) as bad,
        upstream(Reply()) as good,
        gateway(bad.base_url, good.base_url, dialect="llama-server") as there,
    ):
        answer = await there.plain()
        await settled(lambda: there.records != [])
    assert (answer.status, answer.text) == (200, TEXT)
    assert (answer.headers["x-served-by"], answer.headers["x-attempts"]) == ("e1", "2")
    [record] = there.records
    assert (record.continued, record.served_by, record.attempts) == (1, "e1", 2)


async def test_a_plain_reply_that_nobody_gives_fails_as_it_is() -> None:
    broken = Broken(Fault.RESET_MID_STREAM)
    async with (
        upstream(broken) as bad,
        upstream(Fault.SERVER_ERROR) as worse,
        gateway(bad.base_url, worse.base_url, dialect="llama-server") as there,
    ):
        answer = await there.plain(n=2)
    assert outcome(answer) == GATEWAY
    assert (len(bad.requests), len(worse.requests)) == (1, 1)


async def test_reasoning_that_nobody_has_seen_is_begun_anew() -> None:
    """Reasoning that the client did not ask for is no reason to fail if nobody can continue."""
    reply = Reply(reasoning="Was soll ich sagen …")
    broken = Broken(Fault.RESET_MID_STREAM, after=2, reply=reply)
    async with (
        upstream(broken) as bad,
        upstream(reply) as good,
        gateway(bad.base_url, good.base_url, dialect="openai", reasoning_object=True) as there,
    ):
        answer = await there.stream(reasoning={"exclude": True})
        await settled(lambda: there.records != [])
        seen = await there.stream()
    assert (answer.reasoning, answer.text, answer.finish) == ("", TEXT, ["stop"])
    assert answer.done == len(answer.ids) == 1
    assert there.records[0].served_by == "e1"
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == len(reply.deltas())
    assert (seen.finish, len(good.requests)) == (["error"], 1)


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("begun", [False, True], ids=["before content", "in the middle"])
async def test_when_the_client_leaves_the_provider_is_left(streamed: bool, begun: bool) -> None:
    slow = Broken(Fault.STALL_MID_STREAM if begun else Fault.STALL_BEFORE_FIRST)
    patient = Deadlines(first_token=60, between_chunks=60, total=60)
    async with upstream(slow) as up, gateway(up.base_url, deadlines=patient) as there:
        asking = asyncio.ensure_future(there.stream() if streamed else there.plain())
        request = await up.received()
        asking.cancel()
        async with asyncio.timeout(60):
            await request.line.left()
        await settled(lambda: there.records != [])
        assert there.records[0].code == "client_gone"


@pytest.mark.full
async def test_a_thousand_streams_with_faults_lose_nothing() -> None:
    """A tenth of the replies go wrong; none hangs, and none is lost without a word."""
    faults = [
        Fault.RESET,
        Fault.RESET_MID_STREAM,
        Fault.CUT_MID_CHUNK,
        Fault.GARBAGE_JSON,
        Fault.SERVER_ERROR,
        Fault.STALL_MID_STREAM,
        Fault.CLOSE,
    ]
    count = 0

    def script(_: Received) -> Reply | Broken:
        nonlocal count
        count += 1
        return Broken(faults[count // 10 % len(faults)]) if count % 10 == 0 else Reply()

    tasks, held = len(asyncio.all_tasks()), kept()
    async with upstream(script) as first, upstream(script) as second:
        deadlines = Deadlines(first_token=30, between_chunks=5, total=60)
        urls = (first.base_url, second.base_url)
        async with gateway(*urls, deadlines=deadlines, connect_seconds=30) as there:
            async with asyncio.timeout(100):
                answers = await asyncio.gather(*(there.stream() for _ in range(1000)))
            outcomes = [outcome(answer) for answer in answers]
            await settled(lambda: len(there.records) == 1000)
            assert all(status.in_flight == 0 for status in there.router.status())
            there.records.clear()
        assert outcomes.count(WHOLE) >= 990
        await settled(lambda: not first.open_connections and not second.open_connections)
    await settled(lambda: len(asyncio.all_tasks()) <= tasks)
    assert not {kind: count for kind, count in (kept() - held).items() if count >= 10}


def kept() -> Counter[str]:
    """Objects of ours that are alive, by their type: what is held for a request shows in them."""
    gc.collect()
    kinds = [type(one) for one in gc.get_objects()]
    ours = [kind for kind in kinds if str(kind.__module__).startswith("causerie.")]
    return Counter(kind.__qualname__ for kind in ours)


# What a request that failed says of why.


@each_of(
    ("fault", "cause"),
    [
        (Broken(Fault.SERVER_ERROR, status=401), ErrorClass.REJECTED_KEY),
        (Broken(Fault.SERVER_ERROR, status=403), ErrorClass.FORBIDDEN),
        (Broken(Fault.SERVER_ERROR, status=404), ErrorClass.MODEL_NOT_FOUND),
        (Broken(Fault.SERVER_ERROR, status=500), ErrorClass.SERVER_ERROR),
        (Broken(Fault.SERVER_ERROR, status=529), ErrorClass.OVERLOADED),
        (Fault.TOO_MANY, ErrorClass.RATE_LIMITED),
        (Fault.REDIRECT, ErrorClass.WRONG_ADDRESS),
        (Fault.HANG, ErrorClass.TIMEOUT),
        (Fault.CLOSE, ErrorClass.CONNECTION),
        (Fault.NOT_HTTP, ErrorClass.INVALID_REPLY),
        (Broken(Fault.RESET_MID_STREAM, after=2), ErrorClass.BROKEN_STREAM),
    ],
)
async def test_each_cause_is_told_apart_wherever_a_failure_is_recorded(
    fault: Fault | Broken, cause: ErrorClass
) -> None:
    """The one target fails: its record, its log line, its counts, and what the client is told."""
    async with upstream(fault) as bad, gateway(bad.base_url) as there:
        answer = await there.stream()
        await settled(lambda: there.records != [])
    [record] = there.records
    assert record.error_class == cause
    assert record.reason.startswith(f"{cause}: ")
    assert set(record.tried) == {f"e0: {cause}"}
    log = RequestLog(LogBuffer())
    line = json.loads(msgspec.json.encode(log.line(record, datetime.now(UTC))))
    assert (line["error_class"], line["reason"]) == (cause.value, record.reason)
    assert cause.value in log.text(record, "", colours=False)
    assert there.router.status()[0].failed == {cause.value: record.attempts}
    assert answer.error is not None
    retryable = answer.error["metadata"].get("retryable", False)
    assert retryable is not cause.is_rejection


async def test_a_log_line_of_a_whole_reply_has_no_reason() -> None:
    async with upstream(Reply()) as good, gateway(good.base_url) as there:
        await there.plain()
        await settled(lambda: there.records != [])
    line = RequestLog(LogBuffer()).line(there.records[0], datetime.now(UTC))
    assert {"error_class", "reason"}.isdisjoint(json.loads(msgspec.json.encode(line)))
