"""The document of the management API says what the service does."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import schemathesis
from accountkit import World
from casekit import first_of
from edgekit import call, serving
from managekit import OPERATOR, Office, office
from openapikit import operations, tried

from causerie.hosted.management import application
from causerie.hosted.management.application import ROUTES, openapi_document
from causerie.hosted.store.database import Database

PAGE = Path(__file__).parents[2] / "docs" / "reference/management.md"


DOCUMENT: Any = json.loads(json.dumps(openapi_document()))


async def test_it_is_served_to_everybody(world: World) -> None:
    async with office(world) as services:
        answer = await call(services.edge, "/api/openapi.json")
    assert answer.status == 200
    assert answer.json() == DOCUMENT


def test_every_operation_is_there_once() -> None:
    places = {(route.method.lower(), f"/api{route.path}") for route in ROUTES}
    described = {
        (method, path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert len(places) == len(ROUTES)
    assert described == places
    names = [
        each["operationId"] for methods in DOCUMENT["paths"].values() for each in methods.values()
    ]
    assert len(set(names)) == len(names)


def test_every_operation_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for route in ROUTES:
        assert f"`{route.method} /api{route.path}`" in page, route.path


def test_words_of_fields_are_of_what_the_document_has() -> None:
    """A class that was renamed would lose its words without a sign."""
    file = Path(application.__file__).with_name("fields.toml")
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    said = {
        field.get("description")
        for schema in DOCUMENT["components"]["schemas"].values()
        for field in schema.get("properties", {}).values()
    } | {
        each.get("description")
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for each in operation.get("parameters", ())
    }
    kinds = {kind: fields for kind, fields in table.items() if kind != "errors"}
    assert len(kinds) > 30
    for kind, fields in kinds.items():
        assert set(fields.values()) <= said, kind


def test_schemas_are_schemas() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_an_amount_is_exact_as_text_and_as_a_number(world: World) -> None:
    amount = DOCUMENT["components"]["schemas"]["Budget"]["properties"]["amount"]
    assert amount["type"] == ["string", "number"]
    async with office(world) as services:
        user = await world.person("ann")
        for given in (b'"0.100000001"', b"0.100000001", b"100000001e-9"):
            body = b'{"budgets": [{"amount": %s}]}' % given
            put = await services.ask(OPERATOR, f"/users/{user.id}/bounds", body, method="PUT")
            assert put.json()["budgets"][0]["amount"] == "0.100000001"
        for given in (b"1e400", b"1e-99999", b"-1", b"true", b"9" * 70):
            body = b'{"budgets": [{"amount": %s}]}' % given
            put = await services.ask(OPERATOR, f"/users/{user.id}/bounds", body, method="PUT")
            assert put.status == 400, given


async def test_a_set_of_a_body_may_repeat_an_item(world: World) -> None:
    rights = DOCUMENT["components"]["schemas"]["CreateOperatorKey"]["properties"]["rights"]
    assert "uniqueItems" not in rights
    async with office(world) as services:
        body = {"name": "ops", "rights": ["read", "read"]}
        made = await services.ask(OPERATOR, "/operator-keys", body)
    assert made.json()["rights"] == ["read"]


@pytest.fixture(scope="module")
def address(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in a thread of its own, since schemathesis blocks."""
    file = tmp_path_factory.mktemp("management") / "causerie.db"
    shutil.copyfile(sqlite_template, file)
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    ports: list[int] = []
    stop = asyncio.Event()

    async def run() -> None:
        database = Database(f"sqlite:///{file}")
        async with office(World(database)) as services:
            await _furnish(services)
            async with serving(services.edge) as port:
                ports.append(port)
                ready.set()
                await stop.wait()
        await database.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert ready.wait(60)
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


async def _furnish(services: Office) -> None:
    owner = await services.world.person("olga")
    await services.world.key(await services.world.project(owner=owner), owner)


SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.mark.parametrize("operation", first_of(operations(DOCUMENT), every=8))
def test_whatever_is_sent_the_answer_is_as_described(operation: str, address: str) -> None:
    headers = {"authorization": f"Bearer {OPERATOR}"}
    tried(SCHEMA, operation, address, examples=10, headers=headers)
