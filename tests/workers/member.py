"""A process that counts in a shared memory, as lines on its standard input say.

Each line is a JSON array: ``["take", now, scope, input, output]``, ``["end", now, lease, input,
output]``, or ``["die", writes, …]``, which does the rest and dies at so many writes to the memory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, cast

from causerie.access.lease import Lease
from causerie.access.quota import Rates, RateScope, Tokens
from causerie.errors import RateLimited
from causerie.workers.counters import SharedCounters
from causerie.workers.layout import WORDS, Places
from causerie.workers.shared_memory import SharedMemory

SCOPES = (
    RateScope("key", "k", Rates(requests_per_minute=9, tokens_per_minute=200, concurrent=4)),
    RateScope("model", "m", Rates(input_tokens_per_minute=90, concurrent=3)),
)
PLACES = Places().extended([scope.id for scope in SCOPES], (), ()).windows


class _Deadly:
    """Words of a memory; the process gets a signal before one of the writes to them."""

    def __init__(self, words: memoryview, writes: int, number: int) -> None:
        self._words = words
        self._number = number
        self._left = writes

    def __getitem__(self, place: Any) -> Any:
        return self._words[place]

    def __setitem__(self, place: int, value: int) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), self._number)
        self._words[place] = value


class Member:
    """Counts, and keeps its leases by number."""

    def __init__(self, descriptor: int, member: int) -> None:
        self._now = 0
        memory = SharedMemory(descriptor, WORDS)
        self._counters = SharedCounters(memory, member, PLACES, lambda: self._now)
        self._leases: list[Lease] = []

    def take(self, now: int, scopes: Sequence[int], input: int, output: int) -> int | str:
        """Return the number of the lease, or why there is none."""
        self._now = now
        need = Tokens(input, output)
        try:
            lease = self._counters.take_now([SCOPES[number] for number in scopes], lambda: need)
        except RateLimited as refused:
            return refused.message
        self._leases.append(lease)
        return len(self._leases) - 1

    def end(self, now: int, lease: int, input: int, output: int) -> None:
        """End a lease, which has used this."""
        self._now = now
        self._leases[lease].release(input, output)

    def die(self, writes: int, what: str, *rest: Any) -> object:
        """Do the rest, and die before so many writes."""
        return self._with(signal.SIGKILL, writes, what, *rest)

    def stop(self, writes: int, what: str, *rest: Any) -> object:
        """Do the rest, and stop before so many writes; whoever reads the answer is told first."""
        sys.stdout.write("null\n")
        sys.stdout.flush()
        return self._with(signal.SIGSTOP, writes, what, *rest)

    def _with(self, number: int, writes: int, what: str, *rest: Any) -> object:
        words = self._counters._numbers
        self._counters._numbers = cast(memoryview, _Deadly(words, writes, number))
        return getattr(self, what)(*rest)


def main(descriptor: int, member: int) -> None:
    """Obey the standard input."""
    here = Member(descriptor, member)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        sys.stdout.write(json.dumps(getattr(here, what)(*rest)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
