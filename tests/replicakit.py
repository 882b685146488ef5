"""Replicas of a hosted service behind a balancer, a paced provider, and clients with streams."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

import aiohttp
from hostedkit import SECRET
from service import SHARED_CORES, free_port
from starter import Process, started
from tcpproxy import Streams, TcpProxy

CONFIG = """
[server]
drain_seconds = 60
{server}
[store]
url = "{database}"
folder = "data"
secret_keys = [{{ command = ["echo", "{secret}"] }}]
[shared]
url = "{shared}"
prefix = "{prefix}"
[[doors]]
name = "hosted"
kind = "hosted"
[[providers]]
name = "up"
base_url = "{provider}"
dialect = "vllm"
[providers.health]
path = ""
[[aliases]]
id = "paced"
targets = [{{ provider = "up", model = "paced" }}]
price = {{ prompt = "0", completion = "0", request = "1" }}
"""
PROMPT_TOKENS = 7
_START_SECONDS = 240  # machines that run tests are busy
_STOP_SECONDS = 90


def configuration(
    database: str, shared: str, provider: str, server: str = "", prefix: str = ""
) -> str:
    """Return the configuration of replicas; ``server`` is more of that table."""
    return CONFIG.format(
        database=database,
        shared=shared,
        provider=provider,
        server=server,
        secret=SECRET,
        prefix=prefix or token_hex(8),
    )


class PacedProvider:
    """Answers each request with a stream of numbered words, one every ``pause`` seconds.

    A request says with ``max_completion_tokens`` how many. ``asked`` counts requests and ``sent``
    the words that were written, each by the text of the message. ``most`` is the highest number of
    streams at once.
    """

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.asked: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.running = self.most = 0
        self.base_url = ""

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[PacedProvider]:
        """Answer while the block runs; ``base_url`` is set."""
        tasks: set[asyncio.Task[None]] = set()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accepted, "127.0.0.1", 0, backlog=1024)
        self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                body = json.loads(await reader.readexactly(length))
                self.running += 1
                self.most = max(self.most, self.running)
                try:
                    await self._answer(body, writer)
                finally:
                    self.running -= 1
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _answer(self, body: dict[str, object], writer: asyncio.StreamWriter) -> None:
        name, count = str(body["messages"][0]["content"]), int(body["max_completion_tokens"])
        self.asked[name] += 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        for number in range(count):
            await asyncio.sleep(self.pause)
            _event(writer, choices=[_choice(f"{number} ")])
            await writer.drain()
            self.sent[name] += 1
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": count}
        usage["total_tokens"] = PROMPT_TOKENS + count
        _event(writer, choices=[_choice("", "stop")])
        _event(writer, choices=[], usage=usage)
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _choice(text: str, finish: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}


def _event(writer: asyncio.StreamWriter, **fields: object) -> None:
    document = {"id": "chatcmpl-paced", "object": "chat.completion.chunk", "created": 1, **fields}
    _chunk(writer, b"data: " + json.dumps(document).encode() + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


class Member:
    """One replica, a process of its own that is started again at the same port."""

    def __init__(self, folder: Path, text: str) -> None:
        folder.mkdir()
        (folder / "causerie.toml").write_text(text)
        self.folder = folder
        self.program: Sequence[str] | None = None
        """How it is started, if not as this program."""
        self._process: Process | None = None
        self.port = free_port()
        self.root = f"http://127.0.0.1:{self.port}"
        self.ready = False

    async def start(self) -> None:
        """Return when it is ready."""
        self._process = self._started()
        async with asyncio.timeout(_START_SECONDS):
            while not await self.looks_ready():
                assert self._process.poll() is None, self.log()
                await asyncio.sleep(0.05)

    def _started(self) -> Process:
        file = str(self.folder / "causerie.toml")
        variables = {**SHARED_CORES, **os.environ, "NO_COLOR": "1"}
        with (self.folder / "serve.log").open("ab") as log:
            words = ["serve", "--config", file, "--port", str(self.port)]
            return started(words, variables, log, self.program)

    async def looks_ready(self) -> bool:
        """Ask as an orchestrator would, and note the answer."""
        self.ready = await _status(self.port, "/health/ready") == 200
        return self.ready

    def send(self, number: signal.Signals) -> None:
        """Send it to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and return the exit status; nothing if it does not run."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            return await asyncio.to_thread(process.wait, _STOP_SECONDS)
        finally:
            process.kill()

    def children(self) -> list[int]:
        """Return the ids of its processes: the workers of one that has some."""
        assert self._process is not None
        pid = self._process.pid
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def log(self) -> str:
        """Return its output so far."""
        return (self.folder / "serve.log").read_text()


@asynccontextmanager
async def members(folder: Path, texts: Sequence[str]) -> AsyncIterator[Sequence[Member]]:
    """A ready replica for each configuration; what runs of them at the end is stopped."""
    made = [Member(folder / str(number), text) for number, text in enumerate(texts)]
    try:
        await asyncio.gather(*(one.start() for one in made))
        yield made
    finally:
        await asyncio.gather(*(one.stop() for one in made))


async def _status(port: int, path: str, seconds: float = 2.0) -> int:
    """Return the status of one request, 0 without an answer in time."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
                writer.write(head.encode())
                return int((await reader.readline()).split()[1])
            finally:
                writer.close()
    except (OSError, TimeoutError, IndexError):
        return 0


class Balancer:
    """Gives each connection to the next replica that was ready when it was last asked."""

    def __init__(self, members: Sequence[Member], every: float) -> None:
        self._members = members
        self._every = every
        self._turn = itertools.count()
        self._proxy = TcpProxy(self._connect)

    @property
    def root(self) -> str:
        """The address of the service."""
        return f"http://127.0.0.1:{self._proxy.port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Balancer]:
        """Balance while the block runs."""
        async with self._proxy.running():
            asking = asyncio.gather(*map(self._ask, self._members))
            try:
                yield self
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    async def _connect(self) -> Streams:
        ready = [one for one in self._members if one.ready]
        if not ready:
            raise ConnectionRefusedError
        chosen = ready[next(self._turn) % len(ready)]
        return await asyncio.open_connection("127.0.0.1", chosen.port)

    async def _ask(self, member: Member) -> None:
        while True:
            await member.looks_ready()
            await asyncio.sleep(self._every)


@dataclass(slots=True)
class Seen:
    """Observations of clients. ``lost`` streams had begun, ``refused`` ones had not.

    ``limited`` requests were over a limit (429). ``repeated`` requests came on a kept connection to
    a replica that stops, and were answered by 503; clients ask again then, and here once.
    """

    ended: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)
    longest_gap: float = 0.0
    limited: int = 0
    repeated: int = 0
    running: int = 0


class Clients:
    """So many clients, each with one stream after the other on a connection that it keeps."""

    def __init__(self, root: str, credential: str, length: Callable[[], int]) -> None:
        self.seen = Seen()
        self._root = root
        self._headers = {"Authorization": f"Bearer {credential}"}
        self._length = length
        self._numbers = itertools.count()
        self._stopping = False

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator[Seen]:
        """Ask while the block runs; leaving it waits until every stream has ended."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=30)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(
                self._root, headers=self._headers, connector=connector, timeout=timeout
            ) as session,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(count):
                group.create_task(self._client(session))
            try:
                yield self.seen
            finally:
                self._stopping = True

    async def have_ended(self, count: int) -> bool:
        """Return true when so many streams have ended."""
        return len(self.seen.ended) >= count

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while not self._stopping:
            name, count = f"stream {next(self._numbers)}", self._length()
            try:
                if await self.stream(session, name, count):
                    self.seen.repeated += 1
                    if await self.stream(session, name, count):
                        self.seen.refused.append(f"{name}: 503 again")
            except (aiohttp.ClientError, OSError, TimeoutError) as failure:
                self.seen.refused.append(f"{name}: {failure!r}")
                await asyncio.sleep(0.1)

    async def stream(self, session: aiohttp.ClientSession, name: str, count: int) -> bool:
        """Ask for so many words and note what becomes of them; return whether to ask again."""
        body = {
            "model": "paced",
            "messages": [{"role": "user", "content": name}],
            "max_completion_tokens": count,
            "stream": True,
        }
        async with session.post("/hosted/v1/chat/completions", json=body) as reply:
            if reply.status == 503 and reply.headers.get("Connection") == "close":
                return True
            if reply.status == 429:
                self.seen.limited += 1
                await asyncio.sleep(0.3)
                return False
            if reply.status != 200:
                self.seen.refused.append(f"{name}: {reply.status} {await reply.text()}")
                await asyncio.sleep(0.1)
                return False
            self.seen.running += 1
            try:
                whole = await self._read(reply, name)
            except (aiohttp.ClientError, OSError, TimeoutError) as failure:
                self.seen.lost.append(f"{name}: {failure!r}")
                return False
            finally:
                self.seen.running -= 1
            if whole and self.seen.words[name] == count:
                self.seen.ended.append(reply.headers["x-request-id"])
            else:
                self.seen.lost.append(f"{name}: {self.seen.words[name]} of {count} words")
        return False

    async def _read(self, reply: aiohttp.ClientResponse, name: str) -> bool:
        """Count the words; return true at the end that a whole stream has."""
        before = time.monotonic()
        async for line in reply.content:
            if line == b"data: [DONE]\n":
                return True
            if not line.startswith(b"data: "):
                continue
            now = time.monotonic()
            self.seen.longest_gap = max(self.seen.longest_gap, now - before)
            before = now
            for choice in json.loads(line.removeprefix(b"data: ")).get("choices", ()):
                text = choice["delta"].get("content") or ""
                for word in text.split():
                    if int(word) != self.seen.words[name]:
                        return False
                    self.seen.words[name] += 1
        return False
