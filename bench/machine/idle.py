"""Idle states of a virtual machine's cores.

A core that the guest halts is the host's until something wakes it, and the process that does pays
for the way through the host: some twenty microseconds, twice a request, which a gateway is charged
for though it did nothing. A guest with the haltpoll governor may poll for a while before it halts a
core; a host may turn that off, to have its cores back sooner.
https://docs.kernel.org/virt/guest-halt-polling.html
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARAMETER = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
_GOVERNOR = Path("/sys/devices/system/cpu/cpuidle/current_governor")
_DEFAULT = 200_000  # nanoseconds, the governor's own


def told(parameter: Path = PARAMETER, governor: Path = _GOVERNOR) -> str:
    """A line of how long they poll; empty where something else decides."""
    if not governor.exists() or governor.read_text().strip() != "haltpoll":
        return ""
    microseconds = int(parameter.read_text()) / 1000
    if not microseconds:
        return "Idle cores are given back to the host at once (guest_halt_poll_ns is 0).\n"
    return f"Idle cores poll for {microseconds:g} µs before they are given back to the host.\n"


@contextmanager
def polling(parameter: Path = PARAMETER) -> Iterator[None]:
    """Idle cores poll as long as the governor's default is, until the block ends.

    Raises ``OSError`` where there is no such parameter, or it may not be written.
    """
    before = parameter.read_text()
    parameter.write_text(str(_DEFAULT))
    try:
        yield
    finally:
        parameter.write_text(before)
