"""How the cores of a virtual machine wait for work.

A core that the guest halts is the host's until something wakes it, and whoever
does pays for the way through the host: some twenty microseconds, twice a
request, which a gateway is charged for though it did nothing. Linux polls
before it halts a core; hosts that want their cores back sooner turn that off.
https://docs.kernel.org/virt/guest-halt-polling.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARAMETER = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
_DEFAULT = 200_000  # nanoseconds, the kernel's own


def told(parameter: Path = PARAMETER) -> str:
    """One sentence of how long they poll; empty on a machine whose guest does not decide."""
    if not parameter.exists():
        return ""
    microseconds = int(parameter.read_text()) / 1000
    if not microseconds:
        return "Idle cores are given back to the host at once (guest_halt_poll_ns is 0)."
    return f"Idle cores poll for {microseconds:g} µs before they are given back to the host."


@contextmanager
def polling(parameter: Path = PARAMETER) -> Iterator[None]:
    """Idle cores poll as long as Linux lets them by default, until the block ends.

    Raises ``OSError`` where there is no such parameter, or it may not be written.
    """
    before = parameter.read_text()
    parameter.write_text(str(_DEFAULT))
    try:
        yield
    finally:
        parameter.write_text(before)
