"""A child process of an engine: starting it, speaking with it, ending it, and knowing why it
ended.

Its socket is a Unix socket that only this user can open: it costs the kernel less than the
loopback address, and no other user of the machine can reach the engine. A watchdog asks it
whether it still answers. Programs of others run under a process of ours, :mod:`.program_child`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import structlog

from causerie.engines.base import EngineFailed
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import HttpResponse, TransportFailed

_SOCKET_FOLDER_PREFIX = "causerie-engine-"
_SOCKET_NAME = "engine.sock"
_LONGEST_PATH = 100  # in bytes; systems take 104 or 108, with the zero at the end
_LOADING_SECONDS = 86_400.0  # at most: vLLM binds its socket first, and listens when it has loaded
_EMPTY_SECONDS = 3600.0  # and long before that there is a folder for it


class IpcSocket:
    """The socket of one child; ``path`` is ``None`` where the system has no such sockets."""

    def __init__(self) -> None:
        self.path: str | None = None
        self._socket_folder: str | None = None
        if sys.platform == "win32":
            return
        with suppress(OSError):
            _sweep_sockets(Path(tempfile.gettempdir()))
            # For this user only.
            self._socket_folder = tempfile.mkdtemp(prefix=_SOCKET_FOLDER_PREFIX)
            path = str(Path(self._socket_folder, _SOCKET_NAME))
            self.path = path if len(path.encode()) <= _LONGEST_PATH else None
        if self.path is None:
            self.close()

    def close(self) -> None:
        folder, self._socket_folder = self._socket_folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep_sockets(where: Path) -> None:
    # Sockets of killed services are those at which nobody listens.
    now = time.time()  # noqa: TID251 - the clock of files
    for folder in where.glob(f"{_SOCKET_FOLDER_PREFIX}*"):
        with suppress(OSError):  # as of one that is not empty
            if folder.stat().st_mtime < now - _EMPTY_SECONDS:
                folder.rmdir()
    latest = now - _LOADING_SECONDS
    for path in where.glob(f"{_SOCKET_FOLDER_PREFIX}*/{_SOCKET_NAME}"):
        with suppress(OSError):
            if path.stat().st_mtime < latest:
                with socket.socket(socket.AF_UNIX) as asking:
                    asking.setblocking(False)  # a full queue of one that lives is no reason to wait
                    if asking.connect_ex(str(path)) == errno.ECONNREFUSED:
                        shutil.rmtree(path.parent, ignore_errors=True)


_MISSES = 3  # in a row: on a machine that was paused, or is worn out, one or two are late

Ask = Callable[[str, str], Awaitable[object]]
Question = tuple[str, float]  # a path, asked for every so many seconds


@dataclass(slots=True)
class Pulse:
    """When something came from an engine last, on the monotonic clock (seconds)."""

    beat: float = field(default_factory=monotonic)


async def wait_for_silence(ask: Ask, pulse: Pulse, questions: Sequence[Question]) -> None:
    """Wait until a question is no longer answered, and nothing else comes either."""
    loop = asyncio.get_running_loop()
    asking = [loop.create_task(_wait_until_unanswered(ask, pulse, *one)) for one in questions]
    try:
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for question in asking:
            question.cancel()


async def _wait_until_unanswered(ask: Ask, pulse: Pulse, path: str, seconds: float) -> None:
    missed = 0
    while missed < _MISSES:
        before = pulse.beat
        await asyncio.sleep(seconds)
        try:
            async with asyncio.timeout(seconds):
                await ask("GET", path)
            missed = 0
        except (TimeoutError, EngineFailed):
            missed = 0 if pulse.beat > before else missed + 1


log = structlog.get_logger(__name__)

_STOP_SECONDS = 2.0
_KILL_SECONDS = 10.0  # longer only where the kernel waits for a disk or a network
_TAIL_LINES = 200


class EngineClient(Protocol):
    """Interface to the client of a child process."""

    async def ask(self, method: str, path: str, body: object = None) -> Any: ...
    async def close(self) -> None: ...


C = TypeVar("C", bound=EngineClient)


class EngineProcess:
    """A process that ends with its input, so never outlives us, and the end of its log."""

    def __init__(
        self, process: asyncio.subprocess.Process, ipc_socket: IpcSocket, stop_seconds: float
    ) -> None:
        self._process = process
        self._stop_seconds = stop_seconds
        self.ipc_socket = ipc_socket
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        # Owned here, ended with the process.
        self._log_reader = asyncio.get_running_loop().create_task(_keep_tail(process, self.tail))

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        stop_seconds: float = _STOP_SECONDS,
    ) -> EngineProcess:
        """Start it; raise :class:`EngineFailed`. KILL follows ``stop_seconds`` after its input."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environ,
            )
        except OSError as error:  # no memory, too many files: it passes
            why = error.strerror or error
            raise EngineFailed(f"the engine's process could not be started: {why}") from error
        return cls(process, IpcSocket(), stop_seconds)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

    async def write(self, line: bytes) -> None:
        """Write to its input; if it has ended, the line is lost."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        with suppress(ConnectionError):
            await self._process.stdin.drain()

    def write_nowait(self, line: bytes) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    async def ended(self) -> str:
        """Wait for its end and its last output; return how it ended."""
        code = await self._process.wait()
        await asyncio.wait({self._log_reader})
        return _exit_description(code)

    async def end(self) -> None:
        """End it, also if this call is cancelled; one that the kernel holds on to is left to it."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        ended = asyncio.get_running_loop().create_task(process.wait())
        try:
            await asyncio.wait({ended, self._log_reader}, timeout=self._stop_seconds)
            _kill_process(process)
            await asyncio.wait({ended, self._log_reader}, timeout=_KILL_SECONDS)
            if process.returncode is None:
                log.warning("engine process cannot be ended", pid=process.pid)
        finally:
            _kill_process(process)
            ended.cancel()
            self._log_reader.cancel()
            self.ipc_socket.close()


@asynccontextmanager
async def starting(
    process: EngineProcess, client: EngineClient | None, seconds: float
) -> AsyncIterator[None]:
    """Give the body this time to load the model; if it fails, end process and client.

    Raises :class:`EngineFailed` after the time.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except BaseException as failure:
        try:
            if client is not None:
                await client.close()
        finally:
            await process.end()
        if isinstance(failure, TimeoutError):
            raise EngineFailed(f"the model was not loaded within {seconds:g} s") from None
        raise


@dataclass(frozen=True, slots=True, eq=False)
class EngineChild(Generic[C]):
    """A server that has loaded its model. ``client`` speaks to it."""

    process: EngineProcess | None  # `None` where others run it
    client: C
    pulse: Pulse
    questions: Sequence[Question]  # what it must go on answering
    last_words: Callable[[Iterable[str]], str]  # finds in its log why it gave up

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    async def ended(self) -> str:
        """Wait for its end, or until it no longer answers; return why, in a few words."""
        silence = wait_for_silence(self.client.ask, self.pulse, self.questions)
        if self.process is None:
            await silence
            return "the server answers no more"
        loop = asyncio.get_running_loop()
        silent = loop.create_task(silence)
        ended = loop.create_task(self.process.ended())
        try:
            await asyncio.wait({ended, silent}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            silent.cancel()
            ended.cancel()
        if not ended.done():
            return "the engine process answers no more"
        why = self.last_words(self.process.tail)
        return f"the engine process ended ({ended.result()})" + (f": {why}" if why else "")

    async def stop(self) -> None:
        """Have no more to do with it; a process of ours has ended then. May be called again."""
        try:
            await self.client.close()
        finally:
            if self.process is not None:
                await self.process.end()


def _exit_description(code: int) -> str:
    # A status over 128 is a signal, as in shells and in our children.
    number = -code if code < 0 else code - 128
    if number not in signal.valid_signals():
        return f"exit status {code}"
    said = signal.strsignal(number)
    return f"signal {number} ({said})" if said else f"signal {number}"


def _kill_process(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it has ended
        process.kill()


async def _keep_tail(process: asyncio.subprocess.Process, tail: deque[str]) -> None:
    assert process.stderr is not None
    rest = b""  # not line by line: a line may be longer than any limit
    while chunk := await process.stderr.read(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        tail.extend(line.decode("utf-8", "replace") for line in lines)
        rest = rest[-65536:]
    tail.append(rest.decode("utf-8", "replace"))


# -P: nothing in the working directory is taken for a module.
_PROGRAM_CHILD_COMMAND = (sys.executable, "-P", "-m", "causerie.engines.program_child")
_PROGRAM_STOP_SECONDS = 8.0  # a little longer than any program has to end by itself
_POLL_SECONDS = 0.1  # nothing tells when it listens


@dataclass(frozen=True, slots=True)
class Program:
    """A command and how it is run."""

    command: Sequence[str]
    environment: Mapping[str, str]  # variables in addition to those of the supervising process
    farewell_seconds: float = 0.0  # to end by itself once it was asked to; 0: it is killed at once
    cpus: Sequence[int] | None = None  # hardware threads that it stays on; `None`: on any
    folder: str | None = None  # its working directory; `None`: that of the service


async def start_program_child(environ: Mapping[str, str]) -> EngineProcess:
    """Start the process that will run a program; raise :class:`EngineFailed`."""
    return await EngineProcess.start(
        _PROGRAM_CHILD_COMMAND, environ, stop_seconds=_PROGRAM_STOP_SECONDS
    )


async def serve_program(
    process: EngineProcess, program: Program, ask: Callable[[], Awaitable[object]]
) -> str | None:
    """Have a program run until ``ask`` raises nothing; return how it ended instead, if it did."""
    await process.write(json.dumps(asdict(program)).encode() + b"\n")
    ended = asyncio.get_running_loop().create_task(process.ended())
    try:
        while not ended.done():
            with suppress(EngineFailed):
                await ask()
                return None
            await asyncio.wait({ended}, timeout=_POLL_SECONDS)
        return ended.result()
    finally:
        ended.cancel()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_MAX_CONNECTIONS = 65_536
_MAX_BODY_BYTES = 256 * 1024 * 1024
_encode = msgspec.json.Encoder().encode


def child_address(place: int | str) -> tuple[str, Reach]:
    """Address and way of a child: a port on the loopback address, or the path of a Unix socket."""
    if isinstance(place, str):
        return "http://engine", Reach(socket=place)
    return f"http://127.0.0.1:{place}", Reach()


class EngineTransport:
    """Connections to the server at ``address``, which wants to see ``key``; ``close`` ends them.

    Idle connections are closed after ``idle_seconds``, with 0 after every answer.
    """

    def __init__(self, address: str, reach: Reach, key: str | None, *, idle_seconds: float) -> None:
        reach = replace(reach, idle_seconds=idle_seconds, max_connections=_MAX_CONNECTIONS)
        self._http_client = HttpClient(address, reach)
        self._request_headers = [("content-type", "application/json")]
        if key is not None:
            self._request_headers.append(("authorization", f"Bearer {key}"))

    async def close(self) -> None:
        await self._http_client.close()

    async def send(self, method: str, path: str, body: object) -> HttpResponse:
        """Return the head of the answer, to a body if not ``None``; raise :class:`EngineFailed`."""
        data = _encode(body) if body is not None else b""
        try:
            return await self._http_client.send(method, path, self._request_headers, data)
        except TransportFailed as failure:
            if not failure.sent:
                raise EngineFailed(f"the engine is gone: {failure}", loading=True) from failure
            raise EngineFailed(f"the engine did not answer: {failure}") from failure


async def read_answer(response: HttpResponse) -> bytes:
    """Return the body of an answer; raise :class:`EngineFailed`."""
    try:
        return await response.read(_MAX_BODY_BYTES)
    except TransportFailed as failure:
        raise EngineFailed(f"the engine broke off its answer: {failure}") from failure
