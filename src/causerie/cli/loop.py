"""The event loop that the service runs on: uvloop where the system has it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from contextlib import suppress

if sys.platform == "win32":
    _factory = None

    def _have_files() -> None:
        """Nothing to do: there is no such limit."""
else:
    import resource

    import uvloop

    _factory = uvloop.new_event_loop
    _FILES = 65_536

    def _have_files() -> None:
        """Be allowed as many as the system lets us be.

        Each connection is one. Shells and service managers allow 1024 until
        asked for more, and of those beyond it nobody hears.
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            with suppress(OSError, ValueError):  # some systems allow less than they say
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def run(main: Coroutine[object, object, None]) -> None:
    """Run to the end, on a loop of its own."""
    _have_files()
    with asyncio.Runner(loop_factory=_factory) as runner:
        runner.run(main)
