"""SIGHUP: the settings are read anew, unless the terminal of the service has gone.

Knows nothing of what a reload does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager


@contextmanager
def hangups() -> Iterator[asyncio.Event]:
    """An event that each SIGHUP sets while the block runs; none of them ends the process."""
    wanted = asyncio.Event()
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or threading.current_thread() is not threading.main_thread():
        yield wanted
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(hangup, wanted.set)
    try:
        yield wanted
    finally:
        loop.remove_signal_handler(hangup)


async def reloaded(hangup: asyncio.Event, reload: Callable[[], Awaitable[object]]) -> None:
    """Call ``reload`` for each SIGHUP; several at once are one.

    A service at a terminal that was closed ends instead, as people expect.
    """
    terminal = _terminal()
    while True:
        await hangup.wait()
        hangup.clear()
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
