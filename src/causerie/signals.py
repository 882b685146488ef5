"""SIGHUP: the settings are read anew, unless the terminal of the service has gone.

Knows nothing of what a reload does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from causerie.edge.ownership import owned


@asynccontextmanager
async def reloaded_by_signal(reload: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Call ``reload`` for each SIGHUP while the block runs; several at once are one.

    A service at a terminal that was closed ends instead, as people expect.
    """
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    wanted = asyncio.Event()
    terminal = _terminal()
    loop.add_signal_handler(hangup, wanted.set)
    try:
        async with owned(_follow(wanted, reload, terminal)):
            yield
    finally:
        loop.remove_signal_handler(hangup)


async def _follow(
    wanted: asyncio.Event, reload: Callable[[], Awaitable[object]], terminal: int | None
) -> None:
    while True:
        await wanted.wait()
        wanted.clear()
        if terminal is not None and _gone(terminal):
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            await reload()


def _terminal() -> int | None:
    """The terminal that the service was started at."""
    try:
        number = sys.stderr.fileno()
    except (OSError, ValueError):  # there is none, or a test has replaced it
        return None
    return number if os.isatty(number) else None


def _gone(terminal: int) -> bool:
    """A terminal that was closed answers no question any more."""
    try:
        os.tcgetpgrp(terminal)
    except OSError:
        return True
    return False
