"""Processes that count in one shared memory, driven one step at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from causerie.workers.shared_memory import SharedMemory

_PROGRAM = Path(__file__).with_name("member.py")


class MemberProcess:
    """One process; see ``member.py``."""

    def __init__(self, memory: SharedMemory, member: int) -> None:
        self.member = member
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), str(memory.descriptor), str(member)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[memory.descriptor],
            text=True,
        )

    def do(self, *step: object) -> object:
        """Have it take a step; raise :class:`EOFError` if it dies."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(step) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def stopped(self) -> bool:
        """Return whether a signal has stopped it."""
        return Path(f"/proc/{self._process.pid}/stat").read_text().split()[2] == "T"

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def memory_of(words: int) -> Iterator[SharedMemory]:
    """A memory for one test."""
    memory = SharedMemory.create(words)
    try:
        yield memory
    finally:
        memory.close()
