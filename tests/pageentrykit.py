"""Entries of the console, the management API and the catalog: paths, queries, forms and bodies.

Fields are those that pages show and ask for, and those that the API's own document describes.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hostilekit import NUMBERS, TEXTS, VALUES, Entry, every_place
from loopkit import HI
from sitekit import OPERATOR, Site, getting, text_of

from causerie.hosted.console.fields import FormFields
from causerie.hosted.console.routes import ROUTES, SIGN_UP_ROUTES

_HEAD_MOST = 40_000  # bytes; longer ones are refused unread
_FORM_MOST = 200_000
_MANAGED_MOST = 60_000
BODY_FAMILIES = (*TEXTS, *NUMBERS, *VALUES)


async def pages(world: Site) -> Sequence[Entry]:
    """Pages and forms of the console: fields are those in the page and those that are asked for."""
    known = {
        "project": world.project, "key": world.key, "user": world.user,
        "author": "author-1", "slug": "model-1", "provider": "p0",
    }  # fmt: skip
    found = []
    sender = world.sender(cookie=world.cookie)
    pages: dict[str, set[str]] = {}
    for page in (*SIGN_UP_ROUTES, *ROUTES):
        steps = {name: known.get(name, "x") for name in re.findall(r"{(\w+)}", page.path)}
        path = f"/console{page.path}"
        asked: set[str] = set()
        with _noting(asked):
            text = await _page(world, path.format(**steps)) if page.method == "GET" else ""
            asked |= set(re.findall(r'name="([a-z_][\w-]*)"', text)) - {"viewport", "form-token"}
            if page.method == "POST" and not page.raw:
                await sender.send("POST", path.format(**steps), b"")
        pages.setdefault(page.path, set()).update(asked)
        if page.raw or _ENDING.search(page.path):
            continue
        near = pages[page.path] or pages.get(page.path.rpartition("/")[0], set())
        fields = dict.fromkeys(sorted(near - {"form_token"}), "")
        usual = {"path": steps, "fields": fields, "query": ""}
        places = every_place(usual, tuple(TEXTS))
        places = {name: places[name] for name in places if name not in ("path", "fields")}
        if page.method == "POST":
            del places["query"]
        if not places:
            continue
        found.append(
            Entry(
                f"{page.method}{page.path}".replace(" ", ""),
                usual,
                getting(world, page.method, path, cookie=world.cookie),
                places,
                most=_HEAD_MOST if page.method == "GET" else _FORM_MOST,
            )
        )
    return found


_ENDING = re.compile(
    r"/(sign-out|end|end-others|disable|archive|usr_[A-Za-z0-9]+/operator|delete|remove|password|reset|confirm"
    r"|factor|withdraw|rotate|transfer|unlink|back|begin)$"
)  # of pages that would end the visitor's session, or what the others need


@contextmanager
def _noting(names: set[str]) -> Iterator[None]:
    """Note the names of fields that pages ask for."""
    with pytest.MonkeyPatch.context() as patch:
        for method in ("raw", "every", "__contains__"):
            patch.setattr(FormFields, method, _noted(getattr(FormFields, method), names))
        yield


def _noted(method: Callable[[FormFields, str], Any], names: set[str]) -> Any:
    def noted(fields: FormFields, name: str) -> Any:
        names.add(name)
        return method(fields, name)

    return noted


async def _page(world: Site, path: str) -> str:
    headers = {"cookie": world.cookie}
    async with world.home.session.get(
        f"{world.home.root}{path}", headers=headers, allow_redirects=False
    ) as page:
        return await page.text(errors="replace")


async def management(world: Site) -> Sequence[Entry]:
    """Operations of the management API, by its own document."""
    described = json.loads(await _page(world, "/api/openapi.json"))
    schemas = described["components"]["schemas"]
    known = {"project": world.managed, "key": world.key, "user": world.user, "provider": "p0"}
    found = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if method not in ("get", "post", "put", "patch") or _ENDING.search(path):
                continue
            said = operation.get("parameters", ())
            query = {each["name"]: "" for each in said if each["in"] == "query"}
            steps = {
                each["name"]: known.get(each["name"], "x") for each in said if each["in"] == "path"
            }
            usual: dict[str, Any] = {"path": steps, "query": query}
            if "requestBody" in operation:
                [media] = operation["requestBody"]["content"].values()
                usual["body"] = _sample(media["schema"], schemas)
                _make_good(usual["body"], world)
            places = every_place(usual, tuple(TEXTS))
            places |= every_place(usual.get("body", {}), BODY_FAMILIES, "body")
            for name in ("path", "query", "body"):
                places.pop(name, None)
            if places:
                name = f"{method.upper()}/api{path.removeprefix('/api')}"
                found.append(
                    Entry(
                        name,
                        usual,
                        managing(world, method.upper(), path),
                        places,
                        _MANAGED_MOST,
                    )
                )
    return found


_GOOD = {
    "email": "b@example.org", "margin": "1", "door": "gateway", "prompt": "1", "completion": "1",
    "networks": ["10.0.0.0/8"],
}  # fmt: skip


def _make_good(body: Any, world: Site) -> None:
    """Fill in what a description cannot know."""
    if "settings" in body:
        body["settings"] = {"name": "new", "base_url": f"{world.provider.url}/v1"}
    if "request" in body:
        body["request"] = {"model": "far", "messages": HI}
    for name, value in _GOOD.items():
        if name in body:
            body[name] = value
    for name in ("entry", "filed", "owner", "expires_at", "version", "key", "session"):
        body.pop(name, None)


def _sample(schema: Any, schemas: Mapping[str, Any]) -> Any:
    """Return a small value that a schema of the document admits."""
    if "$ref" in schema:
        return _sample(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for options in ("anyOf", "oneOf"):
        if options in schema:
            some = [one for one in schema[options] if one.get("type") != "null"]
            return _sample(some[0], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: _sample(each, schemas) for name, each in schema.get("properties", {}).items()}
    if kind == "array":
        return [_sample(schema["items"], schemas)]
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), 1)
    if kind == "boolean":
        return False
    usual = {"decimal": "1", "date-time": "2030-01-01T00:00:00Z"}.get(schema.get("format", ""), "x")
    return usual * max(schema.get("minLength", 1), 1)


def managing(
    world: Site, method: str, path: str, key: str = OPERATOR
) -> Callable[[Any], Awaitable[int]]:
    sender = world.sender(authorization=f"Bearer {key}", content_type="application/json")
    prefix = path if path.startswith("/api") else f"/api{path}"

    async def send(made: Any) -> int:
        target = prefix.format(**{n: quote(text_of(v), safe="") for n, v in made["path"].items()})
        fields = {name: text_of(value) for name, value in made["query"].items() if value != ""}
        body = msgspec.json.encode(made["body"]) if "body" in made else b""
        return await sender.send(method, f"{target}?{urlencode(fields, errors='replace')}", body)

    return send


_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "provider": {
        "name": "new", "base_url": "http://127.0.0.1:9/v1", "dialect": "vllm", "max_concurrent": 8,
        "models": [{"id": "m", "context_length": 1000, "supported_parameters": ["tools"]}],
    },
    "alias": {
        "id": "talk", "targets": [{"provider": "a", "model": "m", "weight": 1, "priority": 0}],
        "price": {"prompt": "1", "completion": "2"},
    },
    "catalog_model": {
        "id": "author-1/new", "name": "N", "description": "d",
        "endpoints": [
            {"provider": "p0", "model": "m", "price": {"prompt": "1", "completion": "2"}}
        ],
    },
    "model": {"id": "small", "engine": "fake"},
    "door": {"name": "market", "kind": "gateway"},
    "policy": {"name": "people", "budget": "25", "models": ["openai/*"], "role": "member"},
    "webhook": {"name": "ops", "url": "http://127.0.0.1:9/hook"},
    "email": {"name": "team", "to": ["ops@example.org"]},
}  # fmt: skip


def configuration(world: Site) -> Iterator[Entry]:
    """Entries of the configuration, which are checked with all of it and put in force."""
    path = "/api/configuration/entries"
    create = managing(world, "POST", path)
    api, headers = world.home.root + path, {"authorization": f"Bearer {OPERATOR}"}

    async def send(made: Any) -> int:
        secret = {"key": "whsec_" + "QUJD" * 8} if made["kind"] == "webhook" else {}
        status = await create({"path": {}, "query": {}, "body": {**made, **secret}})
        async with world.home.session.get(api, headers=headers) as answer:
            listed = (await answer.json())["data"]
        for entry in listed:
            if entry["id"]:
                await world.home.session.delete(f"{api}/{entry['id']}", headers=headers)
        return status

    for kind, settings in _SETTINGS.items():
        usual = {"kind": kind, "settings": settings}
        places = every_place(usual["settings"], BODY_FAMILIES, "settings")
        yield Entry(f"configuration.{kind}", usual, send, places, _MANAGED_MOST)


_FILTERS = (
    *("supported_parameters", "output_modalities", "model_authors", "providers", "q", "context"),
    *("min_price", "max_price", "sort", "offset", "limit"),
)
_CATALOG = ("q", "cost", "max", "context", "author", "parameter", "takes", "gives", "ending",
            "sort", "page", "rows")  # fmt: skip


def catalog(world: Site) -> Iterator[Entry]:
    """The catalog of routers, and pages that everybody may see."""
    texts = tuple(TEXTS)
    for path, fields, steps in (
        ("/router/v1/models", _FILTERS, {}),
        ("/router/v1/models/{author}/{slug}", (), {"author": "author-1", "slug": "model-1"}),
        ("/router/v1/generation", ("id",), {}),
        ("/gateway/v1/models/{model}", (), {"model": "far"}),
        ("/console/catalog", _CATALOG, {}),
        ("/console/projects/{project}/models", _CATALOG, {"project": world.project}),
        ("/console/rankings.json", ("period", "by"), {}),
        ("/console/catalog/{author}/{slug}", ("in", "out", "cached", "thinking", "requests"),
         {"author": "author-1", "slug": "model-1"}),
        ("/{unknown}", (), {"unknown": "x"}),
    ):  # fmt: skip
        usual = {"path": dict(steps), "fields": dict.fromkeys(fields, ""), "query": ""}
        places = every_place(usual, texts)
        places = {name: places[name] for name in places if name not in ("path", "fields")}
        cookie = world.cookie if "{project}" in path else ""
        send = getting(world, "GET", path, cookie=cookie)
        yield Entry(f"query{path}", usual, send, places, most=_HEAD_MOST)
