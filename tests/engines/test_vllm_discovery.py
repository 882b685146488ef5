"""Names of a pool that stand for several servers, which come and go."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
import trustme
from test_vllm_engine import asked, behave, made, until
from test_vllm_pool import GREEDY, ONE, run
from vllm_stand_in import Server, listening

from causerie.engines.base import EngineState, TextRequest, Token
from causerie.engines.pool import pool as discovery
from causerie.engines.pool.pool import (
    Discovery,
    EnginePool,
    MemberAddress,
    Unresolved,
    lookup,
    targets,
)
from causerie.engines.vllm.client import Elsewhere
from causerie.engines.vllm.engine import ServedFolder, VllmEngine
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import TransportFailed

SERVICE = "http://_http._tcp.vllm.test"


class NameServer(asyncio.DatagramProtocol):
    """Answers every question with ``records``, or with an error where there are none."""

    records: Sequence[str] = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        question = dns.message.from_wire(data)
        answer = dns.message.make_response(question)
        answer.flags |= dns.flags.RA
        name = question.question[0].name
        if self.records:
            answer.answer.append(dns.rrset.from_text(name, 5, "IN", "SRV", *self.records))
        else:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        self.transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def name_server() -> AsyncIterator[tuple[NameServer, tuple[str, int]]]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    try:
        yield server, transport.get_extra_info("sockname")
    finally:
        transport.close()


async def test_a_service_is_its_targets_of_the_best_priority() -> None:
    async with name_server() as (server, at):
        server.records = [
            "10 1 8001 b.test.", "10 9 8000 a.test.", "20 1 8000 spare.test.", "10 1 8000 b.test."
        ]  # fmt: skip
        found = await targets(f"{SERVICE}/base", at)
        assert [one.name for one in found] == [
            "http://a.test:8000/base", "http://b.test:8000/base", "http://b.test:8001/base"
        ]  # fmt: skip
        server.records = ["0 0 0 ."]  # RFC 2782: decidedly not available
        assert await targets(SERVICE, at) == []
        server.records = []
        with pytest.raises(
            Unresolved, match=r"^_http\._tcp\.vllm\.test .*: there is no such name$"
        ):
            await targets(SERVICE, at)


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (["10.0.0.8", "10.0.0.7", "10.0.0.7", "fd00::7"], ["10.0.0.7:8000", "10.0.0.8:8000"]),
        (["fd00::8", "fd00::7"], ["[fd00::7]:8000", "[fd00::8]:8000"]),
    ],
)
async def test_a_host_is_its_addresses_of_one_family(
    found: list[str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def getaddrinfo(host: str, port: None, **_: object) -> list[object]:
        assert host == "vllm.test"
        families = [socket.AF_INET6 if ":" in ip else socket.AF_INET for ip in found]
        return [(family, 1, 6, "", (ip, 0)) for family, ip in zip(families, found, strict=True)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    members = await lookup("https://vllm.test:8000/base")
    assert [one.name for one in members] == [f"https://{name}/base" for name in names]


async def test_a_name_that_is_none_is_said() -> None:
    with pytest.raises(Unresolved, match=r"^vllm\.invalid cannot be resolved: "):
        await lookup("http://vllm.invalid:8000")
    with pytest.raises(Unresolved, match=r"cannot be resolved: "):
        await lookup(f"http://{'long' * 20}.test:8000")


class Names:
    """A resolver whose answers a test changes; ``None`` fails."""

    def __init__(self, **hosts: Sequence[str] | None) -> None:
        self.hosts = hosts
        self.asked = asyncio.Event()

    async def __call__(self, url: str) -> Sequence[MemberAddress]:
        await asyncio.sleep(0)
        self.asked.set()
        hosts = self.hosts[url.removeprefix("http://").partition(":")[0]]
        if hosts is None:
            raise Unresolved("no name server answers")
        return [MemberAddress(url, host) for host in hosts]

    async def again(self) -> None:
        """Wait until a lookup that began from now on has an effect."""
        for _ in range(2):
            self.asked.clear()
            await self.asked.wait()
        await asyncio.sleep(0)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look names up without a pause to speak of."""
    monkeypatch.setattr(discovery, "_SECONDS", 0.01)


@pytest.mark.usefixtures("soon")
async def test_what_is_known_is_kept_until_there_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names(a=["1.1.1.1", "1.1.1.2"], b=None)
    monkeypatch.setattr(discovery, "lookup", names)
    seen: list[list[str]] = []
    watch = Discovery(lambda found: seen.append([one.name for one in found]))
    watch.renew(["http://a:1", "http://9.9.9.9:1"])
    assert not seen  # nobody has been asked yet
    watch.start()
    try:
        await names.again()
        both = ["http://1.1.1.1:1", "http://1.1.1.2:1", "http://9.9.9.9:1"]
        assert (seen, watch.detail) == ([both], "")
        names.hosts["a"] = None
        await names.again()
        assert (len(seen), watch.detail) == (1, "no name server answers")
        names.hosts["a"] = []
        await names.again()
        assert (len(seen), watch.detail) == (1, "a stands for no server")
        names.hosts["a"] = ["1.1.1.2", "1.1.1.3"]
        await names.again()
        assert seen[1:] == [["http://1.1.1.2:1", "http://1.1.1.3:1", "http://9.9.9.9:1"]]
        assert watch.detail == ""
        watch.renew(["http://b:1", "http://a:1"])  # a is known, b is not
        assert len(seen) == 2
        await names.again()
        assert seen[2:] == [["http://1.1.1.2:1", "http://1.1.1.3:1"]]
        assert watch.detail == "no name server answers"
        watch.renew(["http://9.9.9.9:1"])
        assert seen[3:] == [["http://9.9.9.9:1"]]
        assert watch.detail == ""
    finally:
        await watch.stop()


@pytest.mark.usefixtures("soon")
async def test_members_come_and_go_with_the_answers_of_a_resolver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(vllm=None)
    monkeypatch.setattr(discovery, "lookup", names)
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    folders = [tmp_path / host for host in hosts]
    for folder in folders:
        folder.mkdir()
        made(folder)
    async with AsyncExitStack() as there:
        port = 0
        for folder, host in zip(folders, hosts, strict=True):
            server = listening(Server(folder, None), port, host=host)
            port = await there.enter_async_context(server)
        served = ServedFolder(made(tmp_path), weights=False)

        def make(address: MemberAddress) -> VllmEngine:
            reach = Reach(host=address.host)
            return VllmEngine("m", served, Elsewhere(address.url, parallel=4, reach=reach))

        pool = EnginePool("m", [f"http://vllm:{port}"], make)
        there.push_async_callback(pool.stop)
        starting = asyncio.ensure_future(pool.start())
        await names.again()
        assert (pool.status().state, starting.done()) == (EngineState.LOADING, False)
        assert pool.status().detail == "no name server answers"
        names.hosts["vllm"] = hosts[:1]
        await starting
        behave(folders[0], "endless")
        async with pool.generate(TextRequest(list(ONE), 20, GREEDY)) as outputs:
            await anext(outputs)
            names.hosts["vllm"] = hosts[1:]
            await until(lambda: pool.slots == 8 and not pool.status().detail)
            members = [one.model for one in pool.status().members]
            assert members == [f"http://{host}:{port}" for host in hosts[1:]]
            for at in range(4):
                await run(pool, [*ONE, at])
            assert isinstance(await anext(outputs), Token)  # the one that left finishes
        names.hosts["vllm"] = None
        await names.again()
        assert pool.status().detail == "no name server answers"
        await run(pool, ONE)  # those that were known are there
    prompts = [[b for b in asked(one) if b != "left" and b["prompt"][0] == 100] for one in folders]
    assert len(prompts[0]) == 1
    assert len(prompts[1]) + len(prompts[2]) == 5


async def test_a_member_is_dialled_by_its_address_and_called_by_its_name() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("vllm.test").configure_cert(context)
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    trust = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        for name, answers in (("vllm.test", True), ("other.test", False)):
            http = HttpClient(f"https://{name}:{port}", Reach(tls=trust, host="127.0.0.1"))
            with nullcontext() if answers else pytest.raises(TransportFailed, match="not valid"):
                assert (await http.send("GET", "/health")).status == 204
            await http.close()
    assert [head.split(b"\r\n")[1] for head in heads] == [b"host: vllm.test:%d" % port]
