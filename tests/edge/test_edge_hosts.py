"""Own paths answer to own host names, and to none that a page from elsewhere could point here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from casekit import each_of
from edgekit import KEY, Response, ScriptedPipeline, Statuses, call, make_edge
from hostedkit import config
from hypothesis import given
from hypothesis import strategies as st
from service import Service, free_port, serving
from typer.testing import CliRunner

from causerie.access.keys import KeyDigest
from causerie.cli.root import app
from causerie.http.application import OwnPaths
from causerie.http.doors import DoorTable, MountedDoor
from causerie.http.exchange import Exchange
from causerie.settings.doors import is_private

OPEN = MountedDoor("open", "/endpoints/open/v1", hosts=frozenset({"open.localhost", "one.example"}))
DOORS = DoorTable(
    [OPEN], default="open", domains=["llm.example"], names=["inner.cluster.local", "x.llm.example"]
)
OURS = ["/health", "/health/live", "/health/ready", "/metrics", "/docs", "/openapi.json"]
MOUNTED = ["/console", "/console/static/style.css", "/api", "/api/keys"]
NEVER_FOREIGN = [
    None,
    "127.0.0.1:8000",
    "10.1.2.3:8000",  # probes of Kubernetes, checks of balancers
    "[fe80::1]:8000",
    "localhost:8000",
    "causerie",
    "llm.example",
    "inner.cluster.local:80",
    "X.llm.example.",
]
FOREIGN = ["attacker.example", "127.0.0.1.attacker.example", "nobody.localhost", "y.llm.example"]


async def mounted(exchange: Exchange) -> None:
    exchange.json({"mounted": True})


async def asked(path: str, host: str | None, address: str = "", method: str = "GET") -> Response:
    edge = make_edge()
    edge.replace(DOORS, ScriptedPipeline())
    edge.mount("/console", mounted, address=address)
    edge.mount("/api", mounted)
    edge.mount("/docs", mounted, at_doors=True)
    headers = {"host": "" if host is None else host}
    return await call(edge, path, method=method, headers=headers)


@each_of("path", OURS + MOUNTED)
async def test_own_paths_answer_to_own_names(path: str) -> None:
    for host in NEVER_FOREIGN:
        assert (await asked(path, host)).status == 200, host


@each_of("path", OURS + MOUNTED)
@each_of("method", ["GET", "POST"])
async def test_own_paths_answer_to_no_other(path: str, method: str) -> None:
    for host in FOREIGN:
        reply = await asked(path, host, method=method)
        assert (reply.status, reply.error["code"]) == (404, "unknown_path"), host
        assert "set-cookie" not in reply.headers


@each_of("path", OURS)
async def test_names_of_doors_are_names_of_the_service(path: str) -> None:
    assert (await asked(path, "one.example")).status == 200


@pytest.mark.parametrize("path", MOUNTED)
async def test_at_names_of_doors_there_is_no_console(path: str) -> None:
    assert (await asked(path, "one.example")).status == 404


@each_of("path", ["/console", "/console/static/style.css"])
@each_of("name", ["pages.example", "one.example", "open.localhost"])
async def test_a_console_that_has_an_address_is_nowhere_else(path: str, name: str) -> None:
    """Also where a door has the name. The port is the proxy's."""
    address = f"https://{name}:8443"
    for host in (name, f"{name}:8443", f"{name.upper()}.:80"):
        assert (await asked(path, host, address)).status == 200
    for host in NEVER_FOREIGN:
        for method in ("GET", "POST"):
            reply = await asked(path, host, address, method)
            assert (reply.status, reply.error["code"]) == (421, "misdirected_request")
            assert address in reply.error["message"]
    for host in FOREIGN:
        assert (await asked(path, host, address)).status == 404
    assert (await asked("/api/keys", "127.0.0.1", address)).status == 200
    assert (await asked("/v1/models", "127.0.0.1", address)).status == 200


@each_of("path", [*OURS, *MOUNTED, "/v1/models", "/endpoints/open/v1/models"])
@each_of("host", FOREIGN)
async def test_an_absolute_target_decides_the_host(path: str, host: str) -> None:
    assert (await asked(f"http://{host}:80{path}", "localhost")).status == 404
    assert (await asked(f"HTTPS://localhost{path}?a=b#c", host)).status == 200


LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@given(st.lists(LABEL, min_size=2, max_size=5), st.sampled_from(OURS + MOUNTED))
def test_no_name_of_the_web_is_answered_unless_it_is_listed(labels: list[str], path: str) -> None:
    host = ".".join(labels)
    number = len(labels) == 4 and all(each.isdigit() and int(each) < 256 for each in labels)
    if number or host in ("llm.example", "one.example", "inner.cluster.local", "x.llm.example"):
        return
    assert asyncio.run(asked(path, host)).status in (400, 404)


@pytest.mark.parametrize("name", ["host.docker.internal", "Laptop.local", "a.b.local.:8000"])
async def test_a_private_address_has_the_names_of_a_local_network(name: str) -> None:
    for private in (True, False):
        edge = make_edge()
        edge.replace(DoorTable([OPEN], default="open", private=private), ScriptedPipeline())
        for path in ("/v1/models", "/endpoints/open/v1/models", "/health"):
            reply = await call(edge, path, headers={"host": name})
            assert reply.status == (200 if private else 404)
            if not private:
                assert "`server.hosts`" in reply.error["message"]
    assert (await asked("/v1/models", "x.docker.internal")).status == 404
    assert "`server.hosts`" in (await asked("/v1/models", "nobody.localhost")).error["message"]


@each_of(
    ("address", "private"),
    [
        ("127.0.0.1", True),
        ("0.0.0.0", True),
        ("192.168.1.5", True),
        ("::1", True),
        ("localhost", True),
        ("8.8.8.8", False),
        ("2606:4700::1", False),
    ],
)
def test_which_addresses_are_private(address: str, private: bool) -> None:
    assert is_private(address) is private


async def test_metrics_may_take_a_key() -> None:
    statuses = Statuses()
    edge = make_edge(statuses=statuses)
    edge.replace(DOORS, ScriptedPipeline(), own=OwnPaths(metrics_keys=(KeyDigest.of("k", KEY),)))
    for given_headers in ({}, {"authorization": f"Basic {KEY}"}, {"authorization": "Bearer no"}):
        reply = await call(edge, "/metrics", headers=given_headers)
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == "Bearer"
    reply = await call(edge, "/metrics", headers={"authorization": f"Bearer {KEY}"})
    assert reply.status == 200
    assert b"causerie_build_info" in reply.body


async def test_metrics_that_are_apart_are_not_here() -> None:
    edge = make_edge()
    edge.replace(DOORS, ScriptedPipeline(), own=OwnPaths(metrics_apart=True))
    assert (await call(edge, "/metrics")).status == 404


FAKE = '[[models]]\nid = "a"\nengine = "fake"\n'


async def got(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as reply:
        return reply.status, await reply.text()


async def test_metrics_at_an_address_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a scraper reads them, before and behind a reload."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    port, key = free_port(), "ck_abc_secret"
    apart = f'[metrics]\nlisten = "127.0.0.1:{port}"\n'
    with serving(tmp_path, FAKE + apart) as service:
        status, text = await got(f"http://127.0.0.1:{port}/metrics")
        assert (status, "causerie_build_info" in text) == (200, True)
        assert (await got(f"http://127.0.0.1:{port}/metrics", Host="attacker.example"))[0] == 404
        for path in ("/health", "/v1/models", "/"):
            assert (await got(f"http://127.0.0.1:{port}{path}"))[0] == 404
        assert (await got(f"{service.root}/metrics"))[0] == 404
        assert (await got(f"{service.root}/health"))[0] == 200
        digest = f"abc:{KeyDigest.of('abc', key).digest.hex()}"
        file = tmp_path / "causerie.toml"
        file.write_text(f'{FAKE}{apart}keys = ["ck_{digest}"]\n')
        pid = str(service.process.pid)
        assert CliRunner().invoke(app, ["reload", "--pid", pid]).exit_code == 0
        assert (await got(f"http://127.0.0.1:{port}/metrics"))[0] == 401
        bearer = f"Bearer {key}"
        assert (await got(f"http://127.0.0.1:{port}/metrics", Authorization=bearer))[0] == 200
        file.write_text(FAKE)  # where they are read takes a restart; they do not open meanwhile
        result = CliRunner().invoke(app, ["reload", "--pid", pid])
        assert "metrics.listen stays" in result.stderr
        assert (await got(f"{service.root}/metrics"))[0] == 404
        assert (await got(f"http://127.0.0.1:{port}/metrics"))[0] == 200


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    console = '\n[console]\naddress = "https://llm.example"\n'
    with serving(tmp_path_factory.mktemp("hosts"), config() + console) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/console/sign-in", "llm.example", 200),
        ("/console/sign-in", "127.0.0.1", 421),
        ("/console/sign-in", "attacker.example", 404),
        ("/console/static/none.css", "attacker.example", 404),
        ("/api/openapi.json", "attacker.example", 404),
        ("/api/openapi.json", "llm.example", 200),
        ("/api/openapi.json", "127.0.0.1", 200),
        ("/health", "attacker.example", 404),
        ("/health", "10.0.0.7:8000", 200),
        ("/docs", "attacker.example", 404),
        ("/metrics", "attacker.example", 404),
        ("/metrics", "llm.example", 200),
    ],
)
async def test_a_whole_service_answers_to_its_names(
    hosted: Service, path: str, host: str, status: int
) -> None:
    url = f"{hosted.root}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers={"Host": host}) as reply:
        assert reply.status == status
        assert ("set-cookie" in reply.headers) == (path == "/console/sign-in" and status == 200)
        if status == 421:
            assert "https://llm.example" in await reply.text()
