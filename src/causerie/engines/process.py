"""A child process of an engine: how it is started, spoken with and ended, and why it ended.

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
    """A path for a Unix socket in a new private folder; ``path`` is ``None`` where none can be."""

    def __init__(self) -> None:
        self.path: str | None = None
        self._socket_folder: str | None = None
        if sys.platform == "win32":
            return
        with suppress(OSError):
            _delete_abandoned_socket_folders(Path(tempfile.gettempdir()))
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


def _delete_abandoned_socket_folders(parent: Path) -> None:
    # Sockets of killed services are those at which nobody listens.
    now = time.time()  # noqa: TID251 - the clock of files
    for folder in parent.glob(f"{_SOCKET_FOLDER_PREFIX}*"):
        with suppress(OSError):  # as of one that is not empty
            if folder.stat().st_mtime < now - _EMPTY_SECONDS:
                folder.rmdir()
    latest = now - _LOADING_SECONDS
    for path in parent.glob(f"{_SOCKET_FOLDER_PREFIX}*/{_SOCKET_NAME}"):
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
    """Time when the last sign of life came from an engine, on the monotonic clock (seconds)."""

    beat: float = field(default_factory=monotonic)


async def wait_for_silence(ask: Ask, pulse: Pulse, questions: Sequence[Question]) -> None:
    """Wait until an engine leaves a question unanswered again and again and sends nothing else."""
    loop = asyncio.get_running_loop()
    asking = [loop.create_task(_wait_for_no_answers(ask, pulse, *one)) for one in questions]
    try:
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for question in asking:
            question.cancel()


async def _wait_for_no_answers(ask: Ask, pulse: Pulse, path: str, interval: float) -> None:
    missed = 0
    while missed < _MISSES:
        before = pulse.beat
        await asyncio.sleep(interval)
        try:
            async with asyncio.timeout(interval):
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
    """A child process that ends when its standard input does, and the last lines of its log."""

    def __init__(
        self, process: asyncio.subprocess.Process, ipc_socket: IpcSocket, stop_seconds: float
    ) -> None:
        self._process = process
        self._stop_seconds = stop_seconds
        self.ipc_socket = ipc_socket
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        # Owned here, ended with the process.
        self._log_reader = asyncio.get_running_loop().create_task(_tail_log(process, self.tail))

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        stop_seconds: float = _STOP_SECONDS,
    ) -> EngineProcess:
        """Start a child, which :meth:`end` kills after ``stop_seconds``; raise ``EngineFailed``."""
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
        """Write a line to the standard input of the process; if it has ended, the line is lost."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        with suppress(ConnectionError):
            await self._process.stdin.drain()

    def write_nowait(self, line: bytes) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    async def ended(self) -> str:
        """Wait for the end of the process and of its log; return how it ended, in words."""
        code = await self._process.wait()
        await asyncio.wait({self._log_reader})
        return _exit_description(code)

    async def end(self) -> None:
        """Close the input of the process, and kill it if it goes on; works also if cancelled."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        ended = asyncio.get_running_loop().create_task(process.wait())
        try:
            await asyncio.wait({ended, self._log_reader}, timeout=self._stop_seconds)
            _kill_process_without_waiting(process)
            await asyncio.wait({ended, self._log_reader}, timeout=_KILL_SECONDS)
            if process.returncode is None:
                log.warning("engine process cannot be ended", pid=process.pid)
        finally:
            _kill_process_without_waiting(process)
            ended.cancel()
            self._log_reader.cancel()
            self.ipc_socket.close()


@asynccontextmanager
async def starting(
    process: EngineProcess, client: EngineClient | None, seconds: float
) -> AsyncIterator[None]:
    """Limit the block, which loads the model, to ``seconds``; if it fails, end process and client.

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
        """Wait until the server has ended or no longer answers; return why, in a few words."""
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
        """Close the client and end the process, if it is one of ours; may be called again."""
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


def _kill_process_without_waiting(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it has ended
        process.kill()


async def _tail_log(process: asyncio.subprocess.Process, tail: deque[str]) -> None:
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
    """A command to run, with its environment variables, CPUs, folder and time to end by itself."""

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
    """Run a program until ``ask`` succeeds, and return ``None``; if it ends before, return how."""
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
    """Return base URL and reach of a child at a loopback port, or at the path of a Unix socket."""
    if isinstance(place, str):
        return "http://engine", Reach(socket=place)
    return f"http://127.0.0.1:{place}", Reach()


class EngineTransport:
    """HTTP connections to the server at ``address``, which requires ``key``; ``close`` ends them.

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
        """Send a request with a JSON body; return the answer's head; raise ``EngineFailed``."""
        data = _encode(body) if body is not None else b""
        try:
            return await self._http_client.send(method, path, self._request_headers, data)
        except TransportFailed as failure:
            if not failure.sent:
                raise EngineFailed(f"the engine is gone: {failure}", loading=True) from failure
            raise EngineFailed(f"the engine did not answer: {failure}") from failure


async def read_answer(response: HttpResponse) -> bytes:
    """Read and return the body of an HTTP response; raise :class:`EngineFailed`."""
    try:
        return await response.read(_MAX_BODY_BYTES)
    except TransportFailed as failure:
        raise EngineFailed(f"the engine broke off its answer: {failure}") from failure
