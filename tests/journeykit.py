"""What tests of journeys share: steps with their times, and commands at a terminal.

A journey is what somebody does on their first day, from the first command to the last. Each step
is one of a page of docs/start, and `bench/journeys.py` prints how long each takes.
"""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

STEP = "journey step"
_LINES, _COLUMNS = 40, 100
_CONTROLS = re.compile(rb"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])|\r(?=\r*\n)")
# The shell gets the terminal as its own, so that Ctrl-C reaches what runs in it.
_SHELL = "import os, sys; os.login_tty(0); os.execvp('sh', ['sh', '-c', sys.argv[1]])"


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a journey, each recorded with its seconds."""

    record: Callable[[str, object], None]

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One step, in the words of its page."""
        began = time.perf_counter()
        yield
        self.record(STEP, (title, time.perf_counter() - began))


class Terminal:
    """A shell command at a terminal, and what that shows."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (_LINES, _COLUMNS))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SHELL, command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=dict(environment),
        )
        os.close(slave)
        self._written = b""
        self._seen = 0

    @property
    def screen(self) -> str:
        """All that was shown, without colors."""
        return _CONTROLS.sub(b"", self._written).decode(errors="replace")

    def type(self, keys: str) -> None:
        """Press keys; ``\\r`` is Enter and ``\\x03`` is Ctrl-C."""
        os.write(self._master, keys.encode())

    async def until(self, pattern: str, seconds: float = 60) -> str:
        """Wait until this is shown after what was awaited before; return the match."""
        return await asyncio.to_thread(self._until, re.compile(pattern), seconds)

    async def ended(self, seconds: float = 60) -> int:
        """Wait until the command has ended; return its exit status."""

        def drain() -> int:
            deadline = time.monotonic() + seconds
            while self._read(deadline):
                pass
            return self._process.wait(max(0, deadline - time.monotonic()))

        return await asyncio.to_thread(drain)

    def close(self) -> None:
        """End the command, whatever it does."""
        if self._process.poll() is None:
            os.close(self._master)  # hangs up
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        else:
            os.close(self._master)

    def _until(self, pattern: re.Pattern[str], seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while (found := pattern.search(self.screen, self._seen)) is None:
            assert self._read(deadline), f"{pattern.pattern!r} is not shown:\n{self.screen}"
        self._seen = found.end()
        return found[0]

    def _read(self, deadline: float) -> bool:
        """Take what comes next; false where the command has ended, or time is over."""
        ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            found = os.read(self._master, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self._written += found
        return bool(found)


@dataclass(frozen=True, slots=True)
class Desk:
    """Where somebody sits: a folder, and the variables of their shell."""

    folder: Path
    environment: Mapping[str, str]

    @asynccontextmanager
    async def terminal(self, command: str) -> AsyncIterator[Terminal]:
        """A command in a terminal of its own, ended at the end."""
        made = Terminal(command, self.folder, self.environment)
        try:
            yield made
        finally:
            await asyncio.to_thread(made.close)

    async def run(self, command: str, keys: str = "") -> str:
        """Run a command that succeeds, and return what it shows."""
        async with self.terminal(command) as terminal:
            if keys:
                terminal.type(keys)
            status = await terminal.ended()
            assert status == 0, terminal.screen
            return terminal.screen


def desk(home: Path, runtime: Path, **more: str) -> Desk:
    """Somebody new: an empty home, and the installed command on the path.

    ``runtime`` is a folder with a short name, for sockets.
    """
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    own = {
        "HOME": str(home),
        "PATH": programs,
        "TERM": "xterm-256color",
        "XDG_RUNTIME_DIR": str(runtime),
        "GOMP_SPINCOUNT": "1000",  # other tests use the cores too
    }
    return Desk(home, {**kept, **own, **more})
