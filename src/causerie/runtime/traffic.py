"""The sockets of one event loop: what they send leaves together, dense traffic is awaited awake.

A write wakes whoever waits for it. If that process sleeps on a core of its own, waking it costs
several times the price of the write, on a virtual machine up to 20 µs; but of what is written in a
row only the first piece pays. So an answer is held while there is other input to be handled, which
takes microseconds, and a lone one is not held. For the same reason it is dearer to fall asleep and
be woken than to look again, where the next piece is about to come: busy polling, as the poller of
HAProxy and the idle loop of the kernel have it. It ends when nothing has come for a while.

Both need to know of every piece that comes, so each protocol of the loop tells.
"""

from __future__ import annotations

import asyncio
import socket
from time import monotonic
from weakref import WeakKeyDictionary, ref

_MAX_HELD = 16  # pieces; by then the price of waking is small alongside them
_LARGE = 16 * 1024  # bytes: such a piece costs more than waking, and is not kept in memory


class Traffic:
    """Reads and writes on the connections of the running event loop.

    ``busy_poll_seconds`` is the time after the last read or write for which the next read is
    awaited without sleeping, if the last one followed its predecessor as soon; 0 always sleeps.
    """

    def __init__(self) -> None:
        self.busy_poll_seconds = 0.0
        # Kept, since to ask which loop runs takes a system call; weakly, since loops have an end.
        self._loop = ref(asyncio.get_running_loop())
        self._held: list[tuple[asyncio.WriteTransport, bytes | memoryview]] = []
        self._came = 0  # pieces that were read and are not handled yet
        self._unanswered = 0  # that are being handled; each is thought to have one answer
        self._turns = False  # whether another turn was asked for
        self._last = 0.0  # when a piece came or went, on the monotonic clock
        self._awake = False

    @property
    def awake(self) -> bool:
        """Return true while the loop polls for input and does not sleep."""
        return self._awake

    def came(self, *, slow: bool = False) -> None:
        """A piece has come on some connection; whoever handles it is woken behind our next turn.

        Nobody stays awake for one of a ``slow`` source: a model whose tokens come one by one, or
        an engine that computes on this machine's cores.
        """
        self._came += 1
        if self.busy_poll_seconds and not slow:
            now = monotonic()
            self._awake = self._awake or now - self._last < self.busy_poll_seconds
            self._last = now
        if not self._turns:
            self._ask_turn()

    def send(self, transport: asyncio.WriteTransport, data: bytes | memoryview) -> None:
        """Write to a connection, now or when what came alongside it was handled, in this order."""
        self._unanswered -= 1
        held = self._held
        if self._unanswered > 0 and len(data) <= _LARGE and len(held) < _MAX_HELD:
            held.append((transport, data))
            if not self._turns:  # where it is not the last piece that is answered
                self._ask_turn()
            return
        if held:
            self.flush()
        transport.write(data)
        if self.busy_poll_seconds:
            self._last = monotonic()

    def holds(self, transport: asyncio.WriteTransport) -> bool:
        """Return whether something for this connection is still to be written."""
        return any(held is transport for held, _ in self._held)

    def flush(self) -> None:
        """Write what is held. Data for a connection that has been closed is dropped."""
        held, self._held = self._held, []
        for transport, data in held:
            if not transport.is_closing():
                transport.write(data)

    def _ask_turn(self) -> None:
        loop = self._loop()
        if loop is not None:
            self._turns = True
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Begin a turn: earlier reads are handled, and those of the last turn are from here on."""
        self._turns = False
        self._unanswered, self._came = self._came, 0
        if self._held:
            self.flush()
        if self._awake:
            self._awake = monotonic() - self._last < self.busy_poll_seconds
            if self._awake:
                self._ask_turn()


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Traffic] = WeakKeyDictionary()


def traffic() -> Traffic:
    """That of the running event loop, which all of its connections share."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Traffic()
    return found


def without_delay(transport: asyncio.BaseTransport) -> bool:
    """Let the kernel send small pieces at once too (TCP_NODELAY): here it is known what follows.

    False where it is no network that they are sent by.
    """
    handle = transport.get_extra_info("socket")
    if handle is None or handle.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return True
