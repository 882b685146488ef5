"""Pages of other origins: which may call a door from a browser, and what the others get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from browserkit import window
from casekit import each_of
from edgekit import ASK, KEY, LOCKED, OPEN, Response, ScriptedPipeline, call, make_edge
from hypothesis import given
from hypothesis import strategies as st
from service import serving

from causerie.http.doors import DoorTable, Origins, preflight_headers
from causerie.http.exchange import Exchange
from causerie.http.head import Headers

PAGE = "https://app.example"
CHAT = "/endpoints/locked/v1/chat/completions"
ASKED = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}
OURS = (
    "server-timing", "x-attempts", "x-request-changes", "x-request-id", "x-served-by",
    "x-ratelimit-remaining-tokens", "retry-after", "request-id", "x-token-count",
)  # fmt: skip


async def console(exchange: Exchange) -> None:
    exchange.json({})


async def asked(
    path: str, body: object = None, *, origins: Origins | None = None, **more: object
) -> Response:
    edge = make_edge()
    origins = Origins.of([PAGE]) if origins is None else origins
    doors = [replace(one, origins=origins) for one in (OPEN, LOCKED)]
    edge.replace(DoorTable(doors, default="open"), ScriptedPipeline())
    edge.mount("/console", console)
    edge.mount("/api", console)
    return await call(edge, path, body, **more)  # type: ignore[arg-type]  # as call has them


def shared(reply: Response) -> Mapping[str, str]:
    return {name: each for name, each in reply.headers.items() if name.startswith("access-control")}


async def test_a_preflight_is_answered_without_a_key() -> None:
    for path in (CHAT, "/v1/models", "/v1/chat/completions"):
        reply = await asked(path, method="OPTIONS", headers=ASKED)
        assert (reply.status, reply.body) == (204, b"")
        assert "content-length" not in reply.headers
        assert reply.headers["vary"].startswith("Origin")
        assert shared(reply) == {
            "access-control-allow-origin": PAGE,
            "access-control-allow-methods": "POST",
            "access-control-allow-headers": ASKED["access-control-request-headers"],
            "access-control-max-age": "7200",
        }


async def test_a_page_that_is_not_listed_gets_no_headers() -> None:
    for origin in ("https://evil.example", "https://app.example.evil.example", "null", "", "x\x80"):
        reply = await asked(CHAT, method="OPTIONS", headers=ASKED | {"origin": origin})
        assert (reply.status, shared(reply)) == (403, {})
        assert reply.error["code"] == "origin_not_allowed"
        assert "`server.origins`" in reply.error["message"]
        headers = {"origin": origin, "authorization": f"Bearer {KEY}"}
        reply = await asked(CHAT, ASK, headers=headers)
        assert (reply.status, shared(reply)) == (200, {})


@each_of(
    ("path", "body", "key", "status"),
    [
        (CHAT, ASK, KEY, 200),
        (CHAT, ASK | {"stream": True}, KEY, 200),
        (CHAT, ASK, "wrong", 401),
        (CHAT, b"{", KEY, 400),
        (CHAT.replace("chat/completions", "messages"), ASK | {"max_tokens": 5}, KEY, 200),
        (CHAT + "/none", ASK, KEY, 404),
        (CHAT, None, KEY, 405),
    ],
)
async def test_a_page_can_read_the_response(path: str, body: object, key: str, status: int) -> None:
    headers = {"origin": PAGE, "authorization": f"Bearer {key}"}
    reply = await asked(path, body, headers=headers)
    assert (reply.status, reply.headers["vary"]) == (status, "Origin")
    assert shared(reply).keys() == {
        "access-control-allow-origin", "access-control-expose-headers",
    }  # fmt: skip
    exposed = reply.headers["access-control-expose-headers"].split(", ")
    assert set(OURS) <= set(exposed)
    others = {"vary", "content-type", "content-length", "connection", "transfer-encoding"}
    others |= {"cache-control", "x-accel-buffering", "allow"}
    assert {name for name in reply.headers if name not in others} <= {*shared(reply), *exposed}


@each_of(
    "path", ["/console", "/console/sign-in", "/api/keys", "/health", "/metrics", "/openapi.json"]
)
async def test_other_paths_are_never_shared(path: str) -> None:
    every = Origins.of(["*"], local=True)
    for method in ("GET", "POST", "OPTIONS"):
        reply = await asked(path, method=method, headers=ASKED, origins=every)
        assert shared(reply) == {}


async def test_without_an_origin_nothing_is_added() -> None:
    assert shared(await asked("/v1/models")) == {}
    assert (await asked("/v1/models", method="OPTIONS")).status == 405


@each_of(
    ("origin", "allowed"),
    [
        ("http://localhost", True),
        ("http://localhost:5173", True),
        ("https://localhost:5173", True),
        ("http://127.0.0.1:3000", True),
        ("http://[::1]:3000", True),
        ("http://tauri.localhost", True),
        ("app://obsidian.md", True),
        ("tauri://localhost", True),
        ("null", False),
        ("file://", False),
        ("http://localhost.evil.example", False),
        ("http://evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://localhost@evil.example", False),
        ("chrome-extension://abc", False),
        ("http://[", False),
    ],
)
def test_pages_of_this_machine(origin: str, allowed: bool) -> None:
    assert Origins.of((), local=True).allow(origin) is allowed
    assert not Origins.of(()).allow(origin)
    assert Origins.of(["*"]).allow(origin)


def test_origins_as_they_are_listed() -> None:
    listed = Origins.of(["https://App.example", "http://a.example:81", "obsidian://"])
    assert listed.allow("https://app.example")
    assert listed.allow("obsidian://anything")
    for other in ("http://app.example", "https://app.example:444", "http://a.example", "obsidian"):
        assert not listed.allow(other)


@given(st.text(max_size=40), st.text(max_size=40))
def test_what_is_reflected_has_the_form_of_header_names(method: str, names: str) -> None:
    given_headers = Headers(
        {"access-control-request-method": method, "access-control-request-headers": names}
    )
    made = "".join(preflight_headers(PAGE, given_headers).values())
    assert made.isascii()
    assert made.isprintable()


CONFIGURATION = '[[models]]\nid = "a"\nengine = "fake"\n'
CALL = """async ([url, key]) => {
  const body = JSON.stringify({model: "a", messages: [{role: "user", content: "Hi"}]});
  const headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key};
  try {
    const reply = await fetch(url, {method: "POST", headers, body});
    return [reply.status, reply.headers.get("x-request-id"), (await reply.json()).object || ""];
  } catch (failure) { return [0, null, String(failure)]; }
}"""


async def called(root: str, base: str, script: str = CALL) -> list[object]:
    """Call the service from a page of the base URL's origin, in a browser."""
    async with window() as page:
        await page.goto(base)
        return list(await page.evaluate(script, [f"{root}/v1/chat/completions", "any"]))


async def blank(_: web.Request) -> web.Response:
    return web.Response(text="<!doctype html><title>Page</title>", content_type="text/html")


MODULES = Path(__file__).parent.parent / "javascript" / "node_modules"
CLIENT = """async ([url, key]) => {
  const { default: OpenAI } = await import("/modules/openai/index.mjs");
  const baseURL = url.replace("/chat/completions", "");
  const client = new OpenAI({baseURL, apiKey: key, dangerouslyAllowBrowser: true, maxRetries: 0});
  const ask = {model: "a", messages: [{role: "user", content: "word ".repeat(600)}]};
  const { data, response } = await client.chat.completions.create(ask).withResponse();
  let streamed = "";
  for await (const chunk of await client.chat.completions.create({...ask, stream: true}))
    streamed += chunk.choices[0]?.delta?.content ?? "";
  let code = "";
  try { await client.chat.completions.create({...ask, model: "none"}); }
  catch (failure) { code = failure.code; }
  const told = ["x-request-id", "x-served-by"].map((name) => response.headers.get(name));
  return [data.choices[0].message.content, streamed, code, ...told];
}"""


@asynccontextmanager
async def site_of_pages() -> AsyncIterator[int]:
    """A site of blank pages with the modules of npm; yields its port."""
    site = web.Application()
    site.router.add_get("/", blank)
    if MODULES.is_dir():
        site.router.add_static("/modules/", MODULES.resolve())
    runner = web.AppRunner(site)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await asyncio.shield(runner.cleanup())


@pytest.mark.full
async def test_the_official_client_works_in_a_page(tmp_path: Path) -> None:
    """As it is without any setting: a page of this machine, and a door without keys."""
    if not MODULES.is_dir():
        pytest.skip("`make test` installs the JavaScript client")
    with serving(tmp_path, CONFIGURATION) as service:
        async with site_of_pages() as port:
            said, streamed, code, id, by = await called(
                service.root, f"http://localhost:{port}", CLIENT
            )
    assert said
    assert said == streamed
    assert code == "model_not_found"
    assert str(id).startswith("chatcmpl-")
    assert by == "a"


@pytest.mark.full
async def test_a_page_in_a_browser_may_call_where_it_is_listed(tmp_path: Path) -> None:
    """The page has another origin than the service: other.localhost, and a port of its own."""
    async with site_of_pages() as port:
        local, other = f"http://localhost:{port}", f"http://127.0.0.1:{port}"
        for listed, base, reads in (
            ("", local, True),
            (f'[server]\norigins = ["{local}"]\n', local, True),
            (f'[server]\norigins = ["{local}"]\n', other, False),
            ("[server]\norigins = []\n", local, False),
        ):
            with serving(tmp_path, listed + CONFIGURATION) as service:
                status, request_id, told = await called(service.root, base)
                if reads:
                    assert (status, told) == (200, "chat.completion")
                    assert str(request_id).startswith("chatcmpl-")
                else:
                    assert status == 0
                    assert "Failed to fetch" in str(told)
