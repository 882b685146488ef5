"""The document says what the server does."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import schemathesis
from casekit import each_of
from edgekit import ASK, ScriptedPipeline, Statuses, call, make_edge, serving
from openapikit import operations, service_document, tried

from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import Error, ErrorDetails
from causerie.http.health import EngineHealth, Health
from causerie.http.openapi import request_schemas, response_schemas
from causerie.protocol.model_entries import RouterModel, ServedModelEntry
from causerie.protocol.parameters import HINT_NAMES, HONOURED

DOCUMENT = service_document()


def test_every_parameter_is_in_the_document() -> None:
    described = request_schemas(4096)["ChatRequest"]["properties"]
    assert isinstance(described, dict)
    not_here = {"reasoning", "modalities"}  # the router's, and a formality
    assert set(described) == (HONOURED | HINT_NAMES) - not_here


def test_schemas_are_schemas() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():  # type: ignore[index]  # nested
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_answers_are_as_described() -> None:
    edge = make_edge()
    served = (await call(edge, "/openapi.json")).json()
    assert served == json.loads(json.dumps(DOCUMENT))
    for path, name in [("/v1/models", "ModelList"), ("/health", "Health")]:
        hold(served, name, (await call(edge, path)).json())
    hold(served, "Completion", (await call(edge, "/v1/chat/completions", ASK)).json())
    ask = ASK | {"stream": True, "stream_options": {"include_usage": True}}
    events = (await call(edge, "/v1/chat/completions", ask)).events()
    for event in events:
        hold(served, "ChunkEvent", {"data": event})
    for chunk in events[:-1]:
        hold(served, "Chunk", json.loads(chunk))
    hold(
        served, "MessageObject", (await call(edge, "/v1/messages", ASK | {"max_tokens": 9})).json()
    )
    hold(served, "ErrorBody", (await call(edge, "/v1/messages", b"{")).json())
    for agent in ("OpenAI/Python 2", "speakeasy-sdk/typescript 1"):  # the latter reads a number
        headers = {"user-agent": agent}
        refused = await call(edge, "/v1/chat/completions", b"{", headers=headers)
        hold(served, "Error", refused.json())


@each_of("path", ["/health", "/health/ready", "/health/live"])
@each_of("state", list(EngineState))
async def test_health_is_as_described(path: str, state: EngineState) -> None:
    engine = EngineStatus("m", state, slots=2, busy=1, idle_seconds=0.5, detail="loads")
    answer = await call(make_edge(statuses=Statuses([engine])), path)
    hold(DOCUMENT, "Health", answer.json())
    assert ("error" in answer.json()) == (answer.status == 503)


def test_a_schema_of_an_answer_names_every_field_of_its_type() -> None:
    schemas = response_schemas()
    for kind in (Error, ErrorDetails, Health, EngineHealth, ServedModelEntry, RouterModel):
        properties = schemas[kind.__name__]["properties"]
        assert isinstance(properties, dict)
        assert tuple(properties) == kind.__struct_fields__


def hold(served: Any, name: str, value: object) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": served["components"]}
    jsonschema.validate(value, schema)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in a thread of its own, since schemathesis blocks."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    ports: list[int] = []
    stop = asyncio.Event()

    async def run() -> None:
        edge = make_edge(ScriptedPipeline(any_model=True))
        async with serving(edge) as port:
            ports.append(port)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert ready.wait(60)
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


SCHEMA = schemathesis.openapi.from_dict(dict(DOCUMENT))


# Of three readers, `make test` asks those of chat completions and messages.
_OTHERS = ("POST /v1/responses/input_tokens", "POST /v1/messages/count_tokens")


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(each, marks=[pytest.mark.full] if at % 2 or each in _OTHERS else [])
        for at, each in enumerate(o for o in operations(DOCUMENT) if " /router/" not in o)
    ],
)
def test_whatever_is_sent_the_answer_is_as_described(operation: str, address: str) -> None:
    tried(SCHEMA, operation, address, examples=60)
