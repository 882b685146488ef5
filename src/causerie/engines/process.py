"""A child process of an engine: starting it, ending it, and knowing why it ended.

Its engine defines the first message to it, and its report that it has loaded.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import structlog

from causerie.engines.base import EngineFailed
from causerie.engines.ipc_socket import IpcSocket
from causerie.engines.watchdog import Pulse, Question, silence

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
    """A process, where to meet it, and the end of its log.

    It is to end with its input, so that it never outlives us.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, ipc_socket: IpcSocket, stop_seconds: float
    ) -> None:
        self._process = process
        self._stop_seconds = stop_seconds
        self.ipc_socket = ipc_socket
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        # Owned here, ended with the process.
        self._reader = asyncio.get_running_loop().create_task(_keep_tail(process, self.tail))

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
        """Return the process id."""
        return self._process.pid

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return the stream of its standard output."""
        assert self._process.stdout is not None
        return self._process.stdout

    async def tell(self, line: bytes) -> None:
        """Write to its input; one that has ended hears nothing, and its output ends too."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        with suppress(ConnectionError):
            await self._process.stdin.drain()

    def post(self, line: bytes) -> None:
        """Write to its input without waiting until it is taken."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    async def ended(self) -> str:
        """Wait for its end and its last output; return how it ended."""
        code = await self._process.wait()
        await asyncio.wait({self._reader})
        return _how(code)

    async def end(self) -> None:
        """End it, also where nobody waits for that any more; leave to the kernel what it holds."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        ended = asyncio.get_running_loop().create_task(process.wait())
        try:
            await asyncio.wait({ended, self._reader}, timeout=self._stop_seconds)
            _kill(process)
            await asyncio.wait({ended, self._reader}, timeout=_KILL_SECONDS)
            if process.returncode is None:
                log.warning("engine process cannot be ended", pid=process.pid)
        finally:
            _kill(process)
            ended.cancel()
            self._reader.cancel()
            self.ipc_socket.close()


class EngineChild(Generic[C]):
    """A child that has loaded its model. ``client`` speaks to it.

    ``questions`` are what it must go on answering; ``last_words`` finds in its log
    why it gave up.
    """

    def __init__(
        self,
        process: EngineProcess,
        client: C,
        pulse: Pulse,
        questions: Sequence[Question],
        last_words: Callable[[Iterable[str]], str],
    ) -> None:
        self._process = process
        self._pulse = pulse
        self._questions = questions
        self._last_words = last_words
        self.client = client

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def post(self, line: bytes) -> None:
        """Write to its input without waiting until it is taken."""
        self._process.post(line)

    async def ended(self) -> str:
        """Wait for its end, or until it no longer answers."""
        loop = asyncio.get_running_loop()
        silent = loop.create_task(silence(self.client.ask, self._pulse, self._questions))
        ended = loop.create_task(self._process.ended())
        try:
            await asyncio.wait({ended, silent}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            silent.cancel()
            ended.cancel()
        if not ended.done():
            return "the engine process answers no more"
        said = self._last_words(self._process.tail)
        return f"the engine process ended ({ended.result()})" + (f": {said}" if said else "")

    async def stop(self) -> None:
        """Ask it to end by closing its input; KILL it if it does not."""
        try:
            await self.client.close()
        finally:
            await self._process.end()


def _how(code: int) -> str:
    """Return how a process ended; a status over 128 is a signal, as in shells and children."""
    number = -code if code < 0 else code - 128
    if number not in signal.valid_signals():
        return f"exit status {code}"
    said = signal.strsignal(number)
    return f"signal {number} ({said})" if said else f"signal {number}"


def _kill(process: asyncio.subprocess.Process) -> None:
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
