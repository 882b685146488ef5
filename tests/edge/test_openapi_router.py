"""The document says what a router's door does: a whole service with accounts is held to it."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import schemathesis
from hostedkit import office
from openapikit import operations, service_document, tried
from service import serving

from causerie.http.openapi import ROUTER_BASE, market_paths
from causerie.http.routing import router_routes
from causerie.protocol.parameters import HINT_NAMES, HONOURED
from causerie.shapes.chat_completions.reader import ROUTER_FIELDS

CONFIG = """\
[store]
folder = "data"
[free]
requests_per_minute = 100000
requests_per_day = 100000
[[doors]]
name = "router"
kind = "router"
[[models]]
id = "small"
engine = "fake"
[[providers]]
name = "away"
base_url = "http://127.0.0.1:9/v1"
[providers.health]
path = ""
[[catalog]]
id = "own/small"
ends = 2999-01-01
[[catalog.endpoints]]
model = "small"
price = { prompt = "1", completion = "2", cached = "0.5", reasoning = "3" }
[[catalog.endpoints]]
provider = "away"
model = "m"
price = { prompt = "100", completion = "200" }
quantization = "fp8"
max_output_tokens = 100
[[catalog]]
id = "own/small:free"
[[catalog.endpoints]]
model = "small"
"""
DOCUMENT = json.loads(json.dumps(service_document()))


@dataclass(frozen=True, slots=True)
class Place:
    """A running router, and a key for it."""

    root: str
    key: str

    def ask(self, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON."""
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.root}{ROUTER_BASE}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as failure:
            return failure.code, json.load(failure)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("router")
    with serving(folder, CONFIG) as service:
        yield Place(service.root, asyncio.run(_key(folder / "data")))


async def _key(data: Path) -> str:
    async with office(data) as opened:
        return (await opened.key()).credential


def test_every_route_is_in_the_document() -> None:
    id = "{author}/{slug}"
    nothing: Any = type("Nothing", (), {"__getattr__": lambda self, name: print})()
    routed = {
        (ROUTER_BASE + path.replace("{id}", id), method.lower())
        for path, handlers in router_routes(nothing, nothing).items()
        for method in handlers
    }
    described = {(path, method) for path, each in market_paths().items() for method in each}
    endpoints = (f"{ROUTER_BASE}/models/{id}/endpoints", "get")  # of the route before it
    assert described == routed | {endpoints}


def test_every_parameter_is_in_the_document() -> None:
    schema = DOCUMENT["components"]["schemas"]["RouterRequest"]
    assert set(schema["properties"]) == HONOURED | HINT_NAMES | ROUTER_FIELDS
    jsonschema.Draft202012Validator.check_schema(schema)


MESSAGES = [{"role": "user", "content": "Hi"}]
ASK = {
    "models": ["gone/away", "own/small"],
    "messages": MESSAGES,
    "reasoning": {"effort": "low"},
    "provider": {"ignore": ["away"], "sort": {"by": "price"}, "max_price": {"prompt": "5"}},
    "usage": {"include": True},
}


def test_answers_are_as_described(place: Place) -> None:
    status, answer = place.ask("/chat/completions", ASK | {"models": ["own/small"]})
    assert status == 200, answer
    hold("Completion", answer)
    assert answer["usage"]["cost"] > 0
    for path, name in (
        ("/models", "RouterModelList"),
        ("/models/user?limit=1", "RouterModelList"),
        ("/models/count", "RouterCount"),
        ("/models/own/small", "RouterModel"),
        ("/model/own/small", "RouterModelData"),
        ("/models/own/small/endpoints", "RouterEndpoints"),
        ("/key", "RouterKey"),
        ("/credits", "RouterCredits"),
    ):
        status, answer = place.ask(path)
        assert status == 200, (path, answer)
        hold(name, answer)
        whole(name, answer)
    status, refused = place.ask("/chat/completions", ASK | {"models": ["gone/away"]})
    assert status == 404
    hold("Error", refused)


@pytest.mark.parametrize("path", ["/models", "/models/user"])
def test_an_answer_that_is_known_already_is_described(place: Place, path: str) -> None:
    headers = {"authorization": f"Bearer {place.key}", "if-none-match": "*"}
    request = urllib.request.Request(f"{place.root}{ROUTER_BASE}{path}", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as same:
        urllib.request.urlopen(request, timeout=60)
    operation = DOCUMENT["paths"][f"{ROUTER_BASE}{path}"]["get"]
    same.value.close()
    assert same.value.code == 304
    assert "304" in operation["responses"]
    assert "If-None-Match" in [one["name"] for one in operation["parameters"]]


async def test_a_past_request_is_as_described(place: Place) -> None:
    _, answer = await asyncio.to_thread(
        place.ask, "/chat/completions", {"model": "own/small:free", "messages": MESSAGES}
    )
    async with asyncio.timeout(60):
        while True:
            status, told = await asyncio.to_thread(place.ask, f"/generation?id={answer['id']}")
            if status == 200:
                break
            await asyncio.sleep(0.05)  # it is written a little later
    hold("RouterGeneration", told)


def hold(name: str, value: object) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    jsonschema.validate(value, schema)


def whole(name: str, answer: Mapping[str, Any]) -> None:
    """Nothing is there that the document does not name."""
    schemas = DOCUMENT["components"]["schemas"]
    schema, value = schemas[name], answer
    if set(schema["properties"]) == {"data"}:
        schema, value = schema["properties"]["data"], answer["data"]
    schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    assert set(value) <= set(schema["properties"])
    entries = {
        "RouterModelList": ("data", "RouterModel"),
        "RouterEndpoints": ("endpoints", "RouterEndpoint"),
    }
    if name in entries:
        field, item = entries[name]
        assert value[field]
        for one in value[field]:
            assert set(one) <= set(schemas[item]["properties"])


SCHEMA = schemathesis.openapi.from_dict(dict(service_document()))


@pytest.mark.parametrize(
    "operation",
    # What is posted has the schemas of the other doors, and some fields more.
    [
        pytest.param(each, marks=[pytest.mark.full] if at % 2 or "POST" in each else [])
        for at, each in enumerate(o for o in operations(DOCUMENT) if " /router/" in o)
    ],
)
def test_whatever_is_sent_the_answer_is_as_described(operation: str, place: Place) -> None:
    headers = {"authorization": f"Bearer {place.key}"}
    tried(SCHEMA, operation, place.root, examples=15, headers=headers)
