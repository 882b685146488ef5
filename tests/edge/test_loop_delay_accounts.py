"""No page, report, catalog query, head, form or body of accounts holds the event loop for long.

There are thousands of everything. The time is that of the loop's own thread on a processor, for
each callback of the loop: a busy machine makes it no longer.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import string
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest
from accountkit import World
from consolekit import console_of
from crowdkit import Crowd, crowded
from edgekit import serving
from loopkit import BOUND_SECONDS, Watch
from managekit import OPERATOR, office
from marketkit import Fair, large_market
from servicekit import service_view
from sitekit import large_catalog

pytestmark = pytest.mark.timing

_SEED = 22
_FORM = {"content-type": "application/x-www-form-urlencoded"}
_MODELS = 1000


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """The clients' own: the service needs those of the loop."""
    with ThreadPoolExecutor(4) as made:
        yield made


@dataclass
class Clients:
    """Send from threads of their own, and note the requests that held the loop too long."""

    port: int
    threads: ThreadPoolExecutor
    headers: Mapping[str, str] = field(default_factory=dict)
    slow: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **headers: str) -> int:
        """Return the status."""
        return await self.send("GET", path, b"", headers)

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> int:
        """Return the status of an answer that is read to its end.

        A slow one is asked for twice more: templates are compiled at their first use, and what
        is slow by itself is slow again.
        """
        sent = method, path, body, {**self.headers, **(headers or {})}
        status, watch = await self._watched(*sent)
        for _ in range(2):
            if watch.too_long:
                _, watch = await self._watched(*sent)
        if watch.too_long:
            name = f"{method} {path[:80]} {body[:40]!r}"
            self.slow[name] = f"{status}: {watch.longest:.3f} s in {watch.what}"
        return status

    async def _watched(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, Watch]:
        watch, loop = Watch(), asyncio.get_running_loop()
        with watch.looking():
            status = await loop.run_in_executor(
                self.threads, self._sent, method, path, body, headers
            )
        return status, watch

    def _sent(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()


_OF_A_PROJECT = (
    *("", "?find=person+29", "?page=20", "/keys", "/keys?find=key+29&page=2", "/keys/new"),
    *("/keys/ck_1", "/keys/ck_1/transfer", "/members/usr_1/remove", "/invite", "/bounds", "/audit"),
    *("/audit?actor=user:usr_1", "/activity?range=30d", "/activity?failures=yes"),
    *("/activity?request_id=req-5", "/usage?range=30d", "/usage?range=24h&by=key"),
    *("/usage?range=30d&by=user&metric=tokens", "/usage?range=30d&by=app", "/usage?by=app&page=9"),
    *("/usage.csv?range=30d&by=key", "/usage.csv?range=24h&by=app", "/models", "/playground"),
    *("/models?q=amber&sort=price", "/models?parameter=tools&takes=image&page=3"),
    "/models?max=1&context=32000&sort=context",
)
_OF_THE_SERVICE = (
    *("/profile", "/operator", "/operator/users", "/operator/users?find=person", "/operator/audit"),
    *("/operator/users/{user}/disable", "/operator/projects", "/operator/projects/new"),
    *("/operator/usage?range=30d&by=user&times=yes", "/operator/usage?range=30d&by=app"),
    *("/operator/usage.csv?range=30d&by=user", "/operator/activity?range=30d"),
    *("/catalog/compare?model=author-1/model-1&model=author-2/model-2", "/rankings"),
    *("/catalog/author-1/model-1", "/providers"),
)


async def test_nothing_that_is_asked_of_accounts_holds_the_loop(
    world: World, threads: ThreadPoolExecutor
) -> None:
    crowd = await crowded(world)
    fair = Fair(large_market(_MODELS))
    async with console_of(world, service_view=fair, open_to_all=True) as place:
        visitor = await place.visitor_of(crowd.operator)
        cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        headers = {"cookie": cookie, "x-form-token": visitor.form_token}
        console = Clients(place.port, threads, headers)
        await _ask_for_pages(console, crowd)
        await _send_forms(console, f"/console/projects/{crowd.project.id}")
    async with office(world) as served, serving(served.edge) as port:
        headers = {"authorization": f"Bearer {OPERATOR}", "content-type": "application/json"}
        api = Clients(port, threads, headers)
        await _ask_for_reports(api, crowd)
    assert not console.slow | api.slow


async def _ask_for_pages(clients: Clients, crowd: Crowd) -> None:
    pages = [f"/console/projects/{crowd.project.id}{path}" for path in _OF_A_PROJECT]
    pages += [f"/console{path}".format(user=crowd.operator.id) for path in _OF_THE_SERVICE]
    for page in pages:
        assert await clients.get(page) == 200, page
    assert await clients.get("/console/catalog", cookie="", **{"accept-encoding": "gzip"}) == 200


async def _send_forms(clients: Clients, project: str) -> None:
    """Send forms and queries that are as long as is read; none may fail."""
    sent = {**_FORM, "origin": f"http://127.0.0.1:{clients.port}"}
    for path in ("/keys/new", "/bounds", "/invite", "/keys/ck_1"):
        for body in _forms():
            assert await clients.send("POST", project + path, body, sent) < 500, (path, body[:40])
    for query in _queries():
        for page in (f"{project}/usage", f"{project}/keys", f"{project}/models"):
            assert await clients.get(f"{page}?{query}") < 500, (page, query[:40])


async def _ask_for_reports(clients: Clients, crowd: Crowd) -> None:
    for report in _REPORTS:
        path = report.format(project=crowd.project.id, user=crowd.operator.id)
        assert await clients.get(f"/api{path}") == 200, path
    for path in ("/users", f"/projects/{crowd.project.id}/keys"):
        for body in _bodies():
            assert await clients.send("POST", f"/api{path}", body) < 500, (path, body[:40])
    for query in _queries():
        assert await clients.get(f"/api/users?{query}") < 500


def _forms() -> Iterator[bytes]:
    """As much as is read, expensive in different ways."""
    yield urlencode({"name": "x" * 200_000}).encode()
    yield b"&".join(b"model=m%d" % n for n in range(499))
    yield b"&".join(b"limit_model=m%d&limit_requests=%d" % (n, n) for n in range(249))
    yield b"&".join(b"budget_model=m%d&budget_amount=%d" % (n, n) for n in range(249))
    yield b"&" * 60_000
    yield b"%41" * 20_000 + b"=" + b"%F0%9F" * 6_000
    yield b"name=" + "日本".encode() * 10_000


def _queries() -> Iterator[str]:
    yield urlencode({"find": "x" * 20_000, "q": "x" * 20_000, "model": "y" * 9_000})
    yield "&".join(f"model=m{n}" for n in range(499))
    yield "&".join(f"parameter=p{n}&takes=t{n}" for n in range(240))
    yield "find=" + "+".join("ab" for _ in range(9_000)) + "&q=" + "+a" * 9_000
    yield "%20" * 15_000


_REPORTS = (
    *("/users?limit=1000", "/projects?limit=1000", "/projects/{project}/members?limit=1000"),
    *("/projects/{project}/keys?limit=1000", "/projects/{project}/invitations?limit=1000"),
    *("/invitations?limit=1000", "/users/{user}/keys?limit=1000", "/usage?by=key&limit=10000"),
    *("/usage?by=key,user,model,door&step=hour&limit=10000", "/usage?by=app&limit=10000"),
    *("/usage?by=key,user,model,door&step=all&limit=10000", "/usage.csv?by=key,user&step=hour"),
    *("/usage.csv?by=key&step=all", "/requests?limit=1000", "/requests?limit=1000&failures=true"),
    *("/usage/first-token?by=key", "/usage/first-token?by=user", "/audit?limit=500"),
)


def _bodies() -> Iterator[bytes]:
    """About 64 KiB, which is the most that is read."""
    yield json.dumps({"name": "x" * 65_000}).encode()
    yield json.dumps({"name": "k", "models": [f"m{n}" for n in range(500)]}).encode()
    yield json.dumps({"name": "k", "models": ["m"] * 12_000}).encode()
    yield json.dumps({"name": "k", "bounds": {"limits": _limits(200)}}).encode()
    yield json.dumps({"name": "k", "bounds": {"budgets": [{"amount": "9" * 65_000}]}}).encode()
    yield b"[" * 65_000
    yield b'{"a":' + b"1" * 65_000 + b"}"
    yield b'{"name":"' + rb"\u00e9" * 10_800 + b'"}'


def _limits(count: int) -> list[Mapping[str, object]]:
    return [{"model": f"m{n}", "requests_per_minute": n + 1} for n in range(count)]


_CONFIG = """
[[doors]]
name = "router"
kind = "router"
keys = "off"
"""


def _catalog() -> str:
    """Return a configuration with a thousand models, five endpoints each."""
    return _CONFIG + large_catalog("http://127.0.0.1:9", endpoints=5)


_SORTS = (
    *("pricing-low-to-high", "pricing-high-to-low", "context-high-to-low"),
    *("throughput-high-to-low", "latency-low-to-high", "newest"),
)
_CATALOG_QUERIES = (
    *("", "?q=model-1", "?limit=1000", "?offset=900&limit=100", "?min_price=1&max_price=3"),
    *("?supported_parameters=tools,seed", "?model_authors=author-1,author-2", "?providers=p1,p2"),
    *(f"?sort={sort}" for sort in _SORTS),
    *(f"?sort={sort}&context=1&q=o" for sort in _SORTS),
)


async def test_no_query_of_the_catalog_and_no_head_holds_the_loop(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    async with service_view(tmp_path, _catalog()) as home:
        port = int(home.root.rpartition(":")[2])
        clients = Clients(port, threads, {"accept-encoding": "gzip"})
        for query in _CATALOG_QUERIES:
            assert await clients.get(f"/router/v1/models{query}") == 200, query
            assert await clients.get(f"/router/v1/models{query}", **{"accept-encoding": ""}) == 200
        for path in ("/models/count", "/models/author-1/model-1/endpoints"):
            assert await clients.get(f"/router/v1{path}") == 200, path
        for query in _long_queries():
            assert await clients.get(f"/router/v1/models?{query}") < 500, query[:40]
        for headers in _heads():
            assert await clients.get("/router/v1/models", **headers) < 500, list(headers)[:2]
    assert not clients.slow


def _long_queries() -> Iterator[str]:
    yield "q=" + "x" * 30_000
    yield "providers=" + ",".join(f"p{n}" for n in range(9_000))
    yield "supported_parameters=" + "," * 30_000
    yield "model_authors=" + "%2C" * 15_000
    yield "&".join(f"q={n}" for n in range(64))
    yield "&" * 30_000
    yield "min_price=" + "9" * 30_000


def _heads() -> Iterator[Mapping[str, str]]:
    """As long as is read, expensive in different ways."""
    yield {f"x-{n}": "v" for n in range(95)}
    yield {f"x-{n}": "v" * 600 for n in range(95)}
    yield {"cookie": "; ".join(f"c{n}={n}" for n in range(4_000))}
    yield {"cookie": ";" * 50_000}
    yield {"accept-encoding": ", ".join("gzip;q=0.1" for _ in range(4_000))}
    yield {"if-none-match": ", ".join('W/"abc"' for _ in range(5_000))}
    yield {"authorization": "Bearer " + "k" * 50_000}
    yield {"traceparent": "0" * 50_000, "forwarded": "for=1," * 5_000}
    yield {"x-forwarded-for": ",".join("10.0.0.1" for _ in range(5_000))}
    draw = random.Random(_SEED)
    for _ in range(20):
        names = ["".join(draw.choices(string.ascii_lowercase, k=8)) for _ in range(40)]
        yield {name: draw.choice(string.printable[:90]) * draw.randrange(1_000) for name in names}


async def test_the_watch_sees_what_holds_the_loop() -> None:
    watch = Watch()
    with watch.looking():
        asyncio.get_running_loop().call_soon(_compute, 10 * BOUND_SECONDS)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert watch.too_long
    assert "_compute" in watch.what


def _compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
