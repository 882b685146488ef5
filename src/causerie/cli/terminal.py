"""A terminal: what may be written to it, and waiting for a line from it.

The output of a model can hold control characters; none reaches the terminal, so an answer can
neither move the cursor nor write to the clipboard.
"""

from __future__ import annotations

import re
import select
import signal
import socket
import sys

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text without characters that would act on the terminal."""
    return _CONTROL.sub("", text)


def await_line() -> None:
    """Wait until a line of the terminal can be read.

    ``KeyboardInterrupt`` comes also for a signal between the look for signals
    and the wait, which plain ``input`` would not see before the next key. The
    console of Windows has no such gap, and cannot be waited for like this.
    """
    if sys.platform == "win32":
        return
    woken, wakes = socket.socketpair()
    with woken, wakes:
        wakes.setblocking(False)
        before = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        try:
            select.select([sys.stdin, woken], [], [])
        finally:
            signal.set_wakeup_fd(before)
