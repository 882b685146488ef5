"""Starting a child process and ending it, and knowing why it ended."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections import deque
from contextlib import suppress
from dataclasses import asdict

import structlog

from causerie.engines.base import EngineFailed
from causerie.engines.llamacpp.client import LlamaCppClient, Pulse
from causerie.engines.llamacpp.meeting import Meeting
from causerie.engines.llamacpp.options import Launch
from causerie.engines.llamacpp.vigil import silence

log = structlog.get_logger(__name__)

_STOP_SECONDS = 2.0
_KILL_SECONDS = 10.0  # longer only where the kernel waits for a disk or a network
_TAIL_LINES = 200
_GIVING_UP = ("GGML_ASSERT", "terminate called", "what():", "Fatal Python error")
# -P: nothing in the working directory is taken for a module.
_COMMAND = (sys.executable, "-P", "-m", "causerie.engines.llamacpp.child")
# By default threads spin for long while they wait for each other, which is fastest where the cores
# are theirs alone. Where several busy models want them, generation falls to a few tokens a second.
_SHORT_SPIN = {"GOMP_SPINCOUNT": "1000"}


class LlamaCppChild:
    """A child that has loaded its model. ``client`` speaks to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        client: LlamaCppClient,
        tail: deque[str],
        reader: asyncio.Task[None],
        meeting: Meeting,
        pulse: Pulse,
    ) -> None:
        self._process = process
        self._tail = tail
        self._reader = reader
        self._meeting = meeting
        self._pulse = pulse
        self.client = client

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def ended(self) -> str:
        """Wait for its end, or until it answers no more."""
        loop = asyncio.get_running_loop()
        silent = loop.create_task(silence(self.client.ask, self._pulse))
        ended = loop.create_task(self._process.wait())
        try:
            await asyncio.wait({ended, silent}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            silent.cancel()
            ended.cancel()
        if not ended.done():
            return "the engine process answers no more"
        await asyncio.wait({self._reader})  # its last words come with its end
        return f"the engine process ended ({_how(ended.result())}){_dying_words(self._tail)}"

    async def stop(self) -> None:
        """Tell it to end, by the end of its input; KILL where it does not."""
        try:
            await self.client.close()
        finally:
            await _end(self._process, self._reader, self._meeting)


async def spawn(launch: Launch, load_seconds: float, pulse: Pulse) -> LlamaCppChild:
    """Start a child and wait until it has loaded; raises :class:`EngineFailed` with the reason.

    ``pulse`` beats while it answers.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(launch),
        )
    except OSError as error:  # no memory, too many files: it passes
        why = error.strerror or error
        raise EngineFailed(f"the engine's process could not be started: {why}") from error
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    # Owned by the child object, or ended with the process below.
    reader = asyncio.get_running_loop().create_task(_keep_tail(process, tail))
    key = secrets.token_urlsafe(32)
    meeting = Meeting()
    try:
        async with asyncio.timeout(load_seconds):
            place = await _loaded(process, launch, key, meeting.path)
    except BaseException as failure:
        await _end(process, reader, meeting)
        if isinstance(failure, TimeoutError):
            raise EngineFailed(f"the model was not loaded within {load_seconds:g} s") from None
        if isinstance(failure, _Ended):
            raise EngineFailed(
                f"the engine could not load {launch.files}{_load_failure(tail)}"
            ) from None
        raise
    return LlamaCppChild(process, LlamaCppClient(place, key), tail, reader, meeting, pulse)


def environment(launch: Launch) -> dict[str, str]:
    """Ours for the child; what is set there stays."""
    ours = dict(os.environ)  # noqa: TID251 - handed on, not read
    return {**_SHORT_SPIN, **ours} if launch.short_spin else ours


class _Ended(Exception):
    """The child ended while it was starting."""


async def _loaded(
    process: asyncio.subprocess.Process, launch: Launch, key: str, socket: str | None
) -> int | str:
    """Where it listens, once it has loaded: the socket or, where there is none, a port."""
    assert process.stdin is not None
    assert process.stdout is not None
    told = json.dumps({"launch": asdict(launch), "key": key, "socket": socket}) + "\n"
    process.stdin.write(told.encode())
    with suppress(ConnectionError):  # then its output ends too, and says why
        await process.stdin.drain()
    async for line in process.stdout:
        if not line.startswith(b"{"):
            continue
        fact = json.loads(line)
        if fact.get("ready"):
            return socket or int(fact["address"].rpartition(":")[2])
    raise _Ended


async def _keep_tail(process: asyncio.subprocess.Process, tail: deque[str]) -> None:
    assert process.stderr is not None
    rest = b""  # not line by line: a line may be longer than any limit
    while chunk := await process.stderr.read(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        tail.extend(line.decode("utf-8", "replace") for line in lines)
        rest = rest[-65536:]
    tail.append(rest.decode("utf-8", "replace"))


async def _end(
    process: asyncio.subprocess.Process, reader: asyncio.Task[None], meeting: Meeting
) -> None:
    """End it, also where nobody waits for that any more; leave to the kernel what it holds."""
    if process.stdin is not None:
        process.stdin.close()
    ended = asyncio.get_running_loop().create_task(process.wait())
    try:
        await asyncio.wait({ended, reader}, timeout=_STOP_SECONDS)
        _kill(process)
        await asyncio.wait({ended, reader}, timeout=_KILL_SECONDS)
        if process.returncode is None:
            log.warning("engine process cannot be ended", pid=process.pid)
    finally:
        _kill(process)
        ended.cancel()
        reader.cancel()
        meeting.close()


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it has ended
        process.kill()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def _load_failure(tail: deque[str]) -> str:
    """The first error of the native log: the later ones only pass it on."""
    errors = [message for line in tail if (message := line.partition(" E ")[2].strip())]
    raised = [line for line in tail if "Error" in line]
    gave_up = [line for line in tail if any(word in line for word in _GIVING_UP)]
    chosen = errors[:1] or gave_up[:1] or raised[-1:]
    return f": {chosen[0].strip()[:300]}" if chosen else ""


def _dying_words(tail: deque[str]) -> str:
    """What native code wrote when it gave up; nothing where it was killed."""
    said = [line for line in tail if any(word in line for word in _GIVING_UP)]
    return f": {said[-1].strip()[:300]}" if said else ""
