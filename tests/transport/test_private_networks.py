"""Addresses that the service's own requests may go to, if the operator limits them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from casekit import each_of
from managekit import OPERATOR
from servicekit import service_view
from webhookreceiver import SECRET

from causerie.cli.keys import digest_line
from causerie.composition.account_frontend import identity_providers
from causerie.composition.configuring import _test_provider
from causerie.composition.providers import checks, connected, private_networks
from causerie.errors import ServiceError
from causerie.hosted.identity.provider import IdentityProviderFailed
from causerie.http.addresses import is_public
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import TransportFailed
from causerie.observe.alert_channels import Webhook
from causerie.observe.alerts import AlertKind, Delivery
from causerie.settings.console import IdentityProvider
from causerie.settings.credentials import Credentials
from causerie.settings.provider import HealthCheckSettings, ProviderSettings
from causerie.settings.rules import broken_rules
from causerie.settings.tree import ServerSettings, Settings

LOOPBACK = (ip_network("127.0.0.0/8"),)
PUBLIC = ServerSettings(private_networks=())


@dataclass
class Inside:
    """A server of the own network; ``connections`` counts who came."""

    port: int = 0
    connections: int = 0
    names: list[str] = field(default_factory=list)


@asynccontextmanager
async def inside() -> AsyncIterator[Inside]:
    here = Inside()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here.connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    here.port = server.sockets[0].getsockname()[1]
    try:
        yield here
    finally:
        server.close()


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> list[str]:
    """Have names resolved to these addresses, one answer after the other; return who was asked."""
    asked: list[str] = []
    left = list(answers)

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


async def asked_once(url: str, reach: Reach) -> None:
    client = HttpClient(url, reach)
    try:
        await (await client.send("GET", "/")).read(100)
    finally:
        await client.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"])
async def test_no_spelling_of_this_machine_is_dialled(host: str) -> None:
    async with inside() as here:
        with pytest.raises(TransportFailed, match=r"server\.private_networks") as refused:
            await asked_once(f"http://{host}:{here.port}", Reach(networks=()))
        assert (refused.value.kind, refused.value.sent) == ("private", False)
        assert here.connections == 0


async def test_networks_that_are_named_are_dialled() -> None:
    async with inside() as here:
        await asked_once(f"http://127.0.0.1:{here.port}", Reach(networks=LOOPBACK))
        await asked_once(f"http://127.0.0.1:{here.port}", Reach())
        assert here.connections == 2


async def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with inside() as here:
        asked = resolving(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
        await asked_once(f"http://rebinding.example:{here.port}", Reach(networks=LOOPBACK))
        assert asked.count("rebinding.example") == 1
        assert here.connections == 1


async def test_every_address_of_a_name_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inside() as here:
        resolving(monkeypatch, ["127.0.0.1", "10.0.0.1"])
        with pytest.raises(TransportFailed, match="not public"):
            await asked_once(f"http://mixed.example:{here.port}", Reach(networks=LOOPBACK))
        assert here.connections == 0


async def test_the_next_address_is_dialled_if_the_first_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with inside() as here:
        resolving(monkeypatch, ["127.0.0.2", "127.0.0.1"])
        await asked_once(f"http://two.example:{here.port}", Reach(networks=LOOPBACK))
        assert here.connections == 1


@each_of(
    "number",
    ["169.254.169.254", "100.100.100.200", "168.63.129.16", "10.0.0.1", "172.16.0.1", "192.168.1.1",
     "127.0.0.1", "0.0.0.0", "224.0.0.1", "::1", "::", "fe80::1", "fd00:ec2::254",
     "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"],
)  # fmt: skip
def test_addresses_inside_of_networks_are_not_public(number: str) -> None:
    assert not is_public(ip_address(number))


async def test_providers_webhooks_and_sign_in_follow_the_setting() -> None:
    async with inside() as here:
        url = f"http://127.0.0.1:{here.port}"
        one = ProviderSettings(
            name="north", base_url=url, health=HealthCheckSettings(path="/health")
        )
        settings = Settings(providers=(one,), server=PUBLIC)
        made = connected(settings, Credentials(), {})
        (check,) = checks(settings, made)
        with pytest.raises(ServiceError):
            await check.ask()
        tried = await _test_provider(one, PUBLIC, Credentials(), "m")
        assert "not public" in tried.listing.problem

        networks = private_networks(PUBLIC)
        message = Delivery("1", "", "", AlertKind.TEST, True, "A test", {}, datetime.now(UTC))
        outcome = await Webhook(url, b"k" * 32, networks=networks).send(message, datetime.now(UTC))
        assert not outcome.delivered
        assert "not public" in outcome.words

        (sign_in,) = identity_providers(
            [IdentityProvider(name="sso", issuer=url, client_id="c")], Credentials(), networks
        )
        with pytest.raises(IdentityProviderFailed):
            await sign_in._http.ask(url)
        assert here.connections == 0
        for connection in made.values():
            await connection.client.close()


SERVICE = """private_networks = []
[[doors]]
name = "hosted"
kind = "hosted"
[store]
folder = "{folder}"
[console]
operator_keys = ["{key}"]
[[alerts.webhooks]]
name = "ops"
url = "{url}"
secret = {{ command = ["echo", "{secret}"] }}
[[identity_providers]]
name = "work"
issuer = "{url}"
client_id = "c"
"""


async def test_webhooks_and_sign_in_of_a_service_follow_the_setting(tmp_path: Path) -> None:
    async with inside() as here:
        url, key = f"http://127.0.0.1:{here.port}", digest_line(OPERATOR)
        text = SERVICE.format(folder=tmp_path / "data", key=key, url=url, secret=SECRET)
        async with service_view(tmp_path, text) as service:
            test = f"{service.root}/api/alerts/channels/ops/test"
            headers = {"authorization": f"Bearer {OPERATOR}"}
            async with service.session.post(test, json={}, headers=headers) as answer:
                assert "not public" in await answer.text()
            sign_in = f"{service.root}/console/sign-in/work"
            async with service.session.get(sign_in, allow_redirects=False) as answer:
                assert not answer.headers.get("location", "").startswith(url)
        assert here.connections == 0


def test_a_setting_that_is_no_network_is_refused() -> None:
    server = ServerSettings(private_networks=("10.0.0.1/8",))
    broken = [each for each in broken_rules(Settings(server=server)) if "network" in each.advice]
    assert [each.path for each in broken] == [("server", "private_networks")]
    assert private_networks(ServerSettings()) is None
