"""The operations, in process: what goes out for what comes in."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
from contextlib import suppress

import pytest
from casekit import each_of
from edgekit import ASK, KEY, ScriptedPipeline, Statuses, call, make_edge, serving
from structlog.testing import capture_logs

from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import InvalidRequest, Overloaded, RateLimited, ServiceError, UpstreamFailed
from causerie.http import server
from causerie.http.exchange import Exchange
from causerie.protocol.events import TextDelta

CHAT = "/v1/chat/completions"


async def test_models_are_listed_and_shown() -> None:
    edge = make_edge()
    listed = await call(edge, "/v1/models")
    assert [entry["id"] for entry in listed.json()["data"]] == ["m", "org/m2"]
    assert (await call(edge, "/v1/models/org/m2")).json()["id"] == "org/m2"
    missing = await call(edge, "/v1/models/nope")
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")


async def test_a_plain_answer() -> None:
    pipeline = ScriptedPipeline()
    answer = await call(make_edge(pipeline), CHAT, ASK)
    assert answer.status == 200
    body = answer.json()
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Hello"}
    assert body["usage"]["total_tokens"] == 5
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{32}", body["id"])
    assert answer.headers["x-request-id"] == body["id"]
    assert answer.headers["x-served-by"] == "script"
    assert answer.headers["content-type"] == "application/json"
    assert pipeline.released.is_set()
    assert pipeline.identities[0].request_id == body["id"]


async def test_a_stream() -> None:
    ask = ASK | {"stream": True, "stream_options": {"include_usage": True}}
    answer = await call(make_edge(), CHAT, ask)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    *chunks, last, done = answer.events()
    assert done == "[DONE]"
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert json.loads(last)["choices"] == []
    assert json.loads(last)["usage"]["completion_tokens"] == 2
    parsed = [json.loads(chunk) for chunk in chunks]
    assert parsed[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in parsed)
    assert text == "Hello"
    assert all("usage" not in chunk for chunk in parsed)
    assert {chunk["id"] for chunk in parsed} == {answer.headers["x-request-id"]}


async def test_without_asking_there_is_no_usage_chunk() -> None:
    answer = await call(make_edge(), CHAT, ASK | {"stream": True})
    assert b'"usage"' not in answer.body


@each_of("stream", [False, True])
@each_of(
    ("failure", "status"),
    [
        (Overloaded("The queue is full.", retry_after=3), 503),
        (RateLimited("Slowly.", headers={"x-ratelimit-limit-requests": "1"}), 429),
        (UpstreamFailed("All failed."), 502),
    ],
)
async def test_a_failure_before_the_answer_has_its_status(
    failure: Overloaded, status: int, stream: bool
) -> None:
    pipeline = ScriptedPipeline(prefill=[failure])
    answer = await call(make_edge(pipeline), CHAT, ASK | {"stream": stream})
    assert answer.status == status
    assert answer.error["message"] == failure.message
    assert answer.error["metadata"]["retryable"] is True
    for name, value in failure.headers.items():
        assert answer.headers[name.lower()] == value


async def test_a_stream_that_breaks_says_so_and_is_done() -> None:
    pipeline = ScriptedPipeline(script=[TextDelta("Hel"), UpstreamFailed("It broke.")])
    answer = await call(make_edge(pipeline), CHAT, ASK | {"stream": True})
    *_, broken, done = answer.events()
    assert done == "[DONE]"
    assert json.loads(broken)["error"]["message"] == "It broke."
    assert json.loads(broken)["choices"][0]["finish_reason"] == "error"
    assert sum("error" in json.loads(chunk) for chunk in answer.events()[:-1]) == 1


async def test_a_plain_answer_that_breaks_is_an_error() -> None:
    pipeline = ScriptedPipeline(script=[TextDelta("Hel"), UpstreamFailed("It broke.")])
    answer = await call(make_edge(pipeline), CHAT, ASK)
    assert (answer.status, answer.error["code"]) == (502, "bad_gateway")


async def test_what_goes_wrong_inside_is_not_told_outside() -> None:
    pipeline = ScriptedPipeline(prefill=[RuntimeError("the secret reason")])
    answer = await call(make_edge(pipeline), CHAT, ASK)
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert b"secret" not in answer.body
    assert answer.headers["x-request-id"] in answer.error["message"]


async def test_a_safe_request_id_is_taken_over() -> None:
    pipeline = ScriptedPipeline()
    edge = make_edge(pipeline)
    answer = await call(edge, CHAT, ASK, headers={"x-request-id": "my-id:1"})
    assert answer.headers["x-request-id"] == "my-id:1"
    assert pipeline.identities[0].request_id == "my-id:1"
    assert answer.json()["id"].startswith("chatcmpl-")
    for odd in ("", "a b", "x" * 129, "a<b", 'a"b'):
        answer = await call(edge, CHAT, ASK, headers={"x-request-id": odd})
        assert answer.headers["x-request-id"] == answer.json()["id"]


async def test_a_way_that_is_known_is_one_of_its_method_and_its_host() -> None:
    edge = make_edge()
    ask = {"host": "127.0.0.1:8000"}
    assert (await call(edge, CHAT, ASK, headers=ask)).status == 200
    assert (await call(edge, CHAT, ASK, headers=ask)).status == 200
    assert (await call(edge, CHAT, ASK, method="PUT", headers=ask)).status == 405
    assert (await call(edge, CHAT, ASK, headers={"host": "attacker.example"})).status == 404
    twice = [("host", "127.0.0.1:8000"), ("host", "127.0.0.1:8000")]
    assert (await call(edge, CHAT, ASK, headers=twice)).error["message"].startswith("There is more")


@pytest.mark.parametrize("host", ["a b", "localhost:port", "[::1", "a/b"])
async def test_a_host_that_names_none_is_told_also_where_pages_are(host: str) -> None:
    async def page(exchange: Exchange) -> None:
        exchange.respond(200, b"")

    def of_its_own(exchange: Exchange, failure: ServiceError) -> None:
        exchange.respond(failure.status, b"<p>No.")

    edge = make_edge()
    edge.mount("/pages", page, of_its_own)
    async with asyncio.timeout(60):
        for path in ("/pages", "/pages/one", CHAT):
            answer = await call(edge, path, headers={"host": host})
            assert (answer.status, answer.error["code"]) == (400, "invalid_value")


async def test_who_cannot_be_told_is_hung_up_on() -> None:
    """Nobody waits for an answer that will not come, even if the report of the error fails."""

    def breaks(exchange: Exchange, failure: ServiceError) -> None:
        raise RuntimeError("no page")

    async def refuse(exchange: Exchange) -> None:
        raise InvalidRequest("No.")

    edge = make_edge()
    edge.mount("/pages", refuse, breaks)
    with capture_logs() as logged:
        async with asyncio.timeout(60), serving(edge) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /pages HTTP/1.1\r\nhost: localhost\r\n\r\n")
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
    assert [each["event"] for each in logged] == ["refused", "a failure could not be told"]


async def test_no_host_name_of_any_length_is_remembered() -> None:
    edge, long = make_edge(), "a" * 10_000
    tracemalloc.start()
    try:
        for number in range(40):
            await call(edge, "/health/live", headers={"host": f"{long}{number}"})
        blocks = tracemalloc.take_snapshot().traces
    finally:
        tracemalloc.stop()
    held = [block for block in blocks if block.size >= len(long)]
    assert len(held) < 5, [str(block) for block in held]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1", "/v1/; below /v1 there are /models, /models/{id}, /chat/completions, "),
        ("/v1/v1/embeddings", "Did you mean /v1/embeddings?"),
        ("/v1/v1/chat/completions", "Did you mean /v1/chat/completions?"),
        ("/v1/Models/", "Did you mean /v1/models?"),
    ],
)
async def test_a_wrong_address_is_told_in_full(path: str, message: str) -> None:
    answer = await call(make_edge(), path, method="POST")
    assert message in answer.error["message"]


@each_of(
    ("path", "method", "status", "code"),
    [
        ("/", "GET", 404, "unknown_path"),
        ("/v1", "GET", 404, "unknown_path"),
        ("/v1/complete", "POST", 404, "unknown_path"),
        ("/v1/chat/completions/", "POST", 404, "unknown_path"),
        ("/v1/models/", "GET", 404, "unknown_path"),
        ("/v1/../health", "GET", 404, "unknown_path"),
        (CHAT, "GET", 405, "method_not_allowed"),
        (CHAT, "OPTIONS", 405, "method_not_allowed"),
        ("/v1/models", "POST", 405, "method_not_allowed"),
        ("/health", "POST", 405, "method_not_allowed"),
        ("/metrics", "DELETE", 405, "method_not_allowed"),
    ],
)
async def test_every_path_and_method_answers_in_one_shape(
    path: str, method: str, status: int, code: str
) -> None:
    answer = await call(make_edge(), path, method=method)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert "x-request-id" in answer.headers
    if status == 405:
        assert answer.headers["allow"] == ("POST" if path == CHAT else "GET, HEAD")


@each_of(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": ""},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
    ],
)
async def test_only_json_is_read(headers: dict[str, str]) -> None:
    answer = await call(make_edge(), CHAT, ASK, headers=headers)
    assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "kind", ["application/json; charset=UTF-8", "Application/JSON", "application/problem+json"]
)
async def test_json_under_other_names_is_read(kind: str) -> None:
    assert (await call(make_edge(), CHAT, ASK, headers={"content-type": kind})).status == 200


async def test_a_path_of_any_length_is_a_short_line_of_the_log() -> None:
    with capture_logs() as lines:
        assert (await call(make_edge(), "/" + "x" * 50_000)).status == 404
    assert [len(line["path"]) for line in lines if line["event"] == "refused"] == [200]


async def test_a_request_that_has_a_line_of_its_own_has_no_second_one() -> None:
    with capture_logs() as lines:
        answer = await call(make_edge(), CHAT, {**ASK, "model": "nobody"})
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert [line for line in lines if line["event"] == "refused"] == []


async def test_two_host_headers_are_refused() -> None:
    answer = await call(make_edge(), "/v1/models", headers=[("host", "a"), ("host", "b")])
    assert answer.status == 400


async def test_a_header_makes_a_request_strict() -> None:
    pipeline = ScriptedPipeline()
    edge = make_edge(pipeline)
    for headers in ({"x-unknown-params": "reject"}, {"x-unknown-params": "drop"}, {}):
        assert (await call(edge, CHAT, ASK | {"foo": 1}, headers=headers)).status == 200
    assert [request.strict for request in pipeline.requests] == [True, False, False]


async def test_a_header_may_name_the_session() -> None:
    pipeline = ScriptedPipeline()
    edge = make_edge(pipeline)
    header = {"x-session-id": "of-the-header"}
    for body in (ASK, ASK | {"session_id": "of-the-body"}):
        assert (await call(edge, CHAT, body, headers=header)).status == 200
    assert (await call(edge, CHAT, ASK)).status == 200
    named = [request.session_id for request in pipeline.requests]
    assert named == ["of-the-header", "of-the-body", None]


async def test_the_reasoning_object_is_the_routers() -> None:
    pipeline = ScriptedPipeline()
    edge = make_edge(pipeline)
    ask = ASK | {"reasoning": {"effort": "high"}}
    assert (await call(edge, CHAT, ask)).error["param"] == "reasoning"
    key = {"authorization": f"Bearer {KEY}"}
    assert (await call(edge, "/router/v1/chat/completions", ask, headers=key)).status == 200
    assert pipeline.requests[0].thinking.effort == "high"


async def test_head_is_answered_like_get() -> None:
    assert (await call(make_edge(), "/v1/models", method="HEAD")).status == 200


@each_of(
    ("statuses", "status", "state"),
    [
        ([EngineStatus("m", EngineState.READY, slots=2, busy=2)], 200, "ready"),
        ([EngineStatus("m", EngineState.ABSENT)], 200, "ready"),
        ([EngineStatus("m", EngineState.LOADING, progress=0.5)], 503, "loading"),
        ([EngineStatus("m", EngineState.FAILED, detail="no memory")], 503, "failed"),
        ([EngineStatus("m", EngineState.READY, slots=2, busy=1, idle_seconds=999)], 503, "failed"),
        ([EngineStatus("m", EngineState.READY, slots=2, idle_seconds=999)], 200, "ready"),
        (
            [EngineStatus("a", EngineState.FAILED), EngineStatus("m", EngineState.READY)],
            200,
            "ready",
        ),
        ([], 200, "ready"),
    ],
)
async def test_health_tells_who_serves(
    statuses: list[EngineStatus], status: int, state: str
) -> None:
    edge = make_edge(statuses=Statuses(statuses))
    assert (await call(edge, "/health/live")).json() == {"status": "live"}
    ready = await call(edge, "/health/ready")
    assert (ready.status, ready.json()["status"]) == (status, state)
    overview = await call(edge, "/health")
    assert overview.status == status
    assert [one["model"] for one in overview.json()["engines"]] == [one.model for one in statuses]
    [target] = overview.json()["targets"]
    assert (target["state"], target["wait_seconds"], target["reason"]) == (
        "full",
        1.5,
        "queue_full",
    )
    if status == 503:
        assert ready.error["type"] == "overloaded_error"
        assert "retry-after" in ready.headers


async def test_a_service_that_cannot_record_usage_is_not_ready() -> None:
    statuses = Statuses(unrecorded="the disk is full")
    edge = make_edge(statuses=statuses)
    for path in ("/health/ready", "/health"):
        told = await call(edge, path)
        assert (told.status, told.json()["status"], told.json()["ready"]) == (
            503,
            "unrecorded",
            False,
        )
        assert told.error["code"] == "store_unavailable"
        assert told.error["message"] == "The service cannot record usage now: the disk is full."
    assert (await call(edge, "/health/live")).status == 200
    statuses.unrecorded = ""
    assert (await call(edge, "/health/ready")).status == 200


@pytest.mark.parametrize(
    ("answers", "shown", "metric"),
    [
        (None, {"shared": False}, None),
        (True, {"shared": True, "answers": True}, "1.0"),
        (False, {"shared": True, "answers": False}, "0.0"),
    ],
)
async def test_health_tells_whether_limits_are_shared(
    answers: bool | None, shown: dict[str, bool], metric: str | None
) -> None:
    edge = make_edge(statuses=Statuses(answers=answers))
    overview = await call(edge, "/health")
    assert (overview.status, overview.json()["limits"]) == (200, shown)
    text = (await call(edge, "/metrics")).body.decode()
    line = None if metric is None else f"causerie_shared_store_up {metric}"
    assert [one for one in text.splitlines() if one.startswith("causerie_shared")] == (
        [] if line is None else [line]
    )


async def test_a_stop_refuses_what_is_new() -> None:
    edge = make_edge()
    await edge.drain.finish(0)
    answer = await call(edge, CHAT, ASK)
    assert (answer.status, answer.error["type"]) == (503, "overloaded_error")
    assert answer.headers["connection"] == "close"
    assert "retry-after" in answer.headers
    assert (await call(edge, "/health/ready")).json()["status"] == "stopping"
    assert (await call(edge, "/health/live")).status == 200


async def test_a_page_that_hangs_does_not_hold_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LAST_BYTES_SECONDS", 0.01)
    monkeypatch.setattr(server, "_HANDLERS_SECONDS", 0.01)
    asked, cut, never = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hang(exchange: Exchange) -> None:
        asked.set()
        try:
            await never.wait()
        finally:
            cut.set()

    edge = make_edge()
    edge.mount("/pages", hang)
    async with asyncio.timeout(60):
        async with serving(edge) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /pages HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await asked.wait()
    writer.close()
    assert cut.is_set()


async def test_refusals_are_counted() -> None:
    edge = make_edge()
    await call(edge, CHAT, b"{")
    text = (await call(edge, "/metrics")).body.decode()
    line = 'causerie_refused_total{code="invalid_json",door="open",status="400"} 1.0'
    assert line in text.splitlines()


async def test_what_the_pipeline_counts_is_not_counted_as_refused_too() -> None:
    edge = make_edge(ScriptedPipeline(prefill=[Overloaded("The queue is full.")]))
    assert (await call(edge, CHAT, ASK)).status == 503
    assert (await call(edge, CHAT, b"{")).status == 400
    text = (await call(edge, "/metrics")).body.decode()
    counted = [line for line in text.splitlines() if line.startswith("causerie_refused_total{")]
    assert counted == ['causerie_refused_total{code="invalid_json",door="open",status="400"} 1.0']
