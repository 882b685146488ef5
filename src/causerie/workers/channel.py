"""Messages between two processes, some with a connection of a client, over a Unix socket.

A frame is a length (four bytes) and a message; the descriptor of a connection travels with the
first byte of its frame (SCM_RIGHTS, unix(7)). Sending never waits: what the other side does not
take yet is kept in order.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

import msgspec
import structlog

from causerie.workers.messages import Carried, Message

log = structlog.get_logger(__name__)

_PIECE = 256 * 1024
_MOST_DESCRIPTORS = 64  # in one read
_PREFIX = 4
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)

Received = Callable[[Message, socket.socket | None], None]


class Channel:
    """One end. ``received`` gets each message, with the connection that came with it.

    ``lost`` is called once where the other side has closed, or has ended.
    """

    def __init__(self, end: socket.socket, received: Received, lost: Callable[[], None]) -> None:
        end.setblocking(False)
        self._end = end
        self._received = received
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._read = bytearray()
        self._came: deque[int | None] = deque()  # descriptors whose frames are not whole yet
        self._unsent: deque[tuple[memoryview, socket.socket | None]] = deque()
        self._open = True
        self._loop.add_reader(end, self._readable)

    def send(self, message: Message, connection: socket.socket | None = None) -> None:
        """Send a message; the connection is closed here once it is on its way."""
        if not self._open:
            if connection is not None:
                connection.close()
            return
        text = _encoder.encode(message)
        frame = len(text).to_bytes(_PREFIX, "big") + text
        waiting = bool(self._unsent)
        self._unsent.append((memoryview(frame), connection))
        if not waiting:
            self._writable()
            if self._unsent:
                self._loop.add_writer(self._end, self._writable)

    def close(self) -> None:
        """Close this end; what is unsent is dropped."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._end)
        self._loop.remove_writer(self._end)
        self._end.close()
        for _, connection in self._unsent:
            if connection is not None:
                connection.close()
        self._unsent.clear()
        for descriptor in self._came:
            if descriptor is not None:
                socket.close(descriptor)
        self._came.clear()

    def _writable(self) -> None:
        while self._unsent:
            frame, connection = self._unsent[0]
            try:
                if connection is None:
                    sent = self._end.send(frame)
                else:
                    sent = socket.send_fds(self._end, [frame], [connection.fileno()])
                    connection.close()
            except BlockingIOError:
                return
            except OSError:
                self._end_of_channel()
                return
            if sent < len(frame):
                self._unsent[0] = (frame[sent:], None)
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._end)

    def _readable(self) -> None:
        try:
            data, descriptors, flags, _ = socket.recv_fds(self._end, _PIECE, _MOST_DESCRIPTORS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors, flags = b"", [], 0
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # a child would keep the connection open
        self._came.extend(descriptors)
        if flags & socket.MSG_CTRUNC:  # the kernel has closed it; its frame comes all the same
            log.warning("a connection is lost: this process has too many open files")
            self._came.append(None)
        if not data:
            self._end_of_channel()
            return
        self._read += data
        self._deliver()

    def _deliver(self) -> None:
        read = self._read
        while self._open and len(read) >= _PREFIX:
            stop = _PREFIX + int.from_bytes(read[:_PREFIX], "big")
            if len(read) < stop:
                return
            message = _decoder.decode(memoryview(read)[_PREFIX:stop].tobytes())
            del read[:stop]
            connection = None
            if isinstance(message, Carried):
                descriptor = self._came.popleft()
                if descriptor is None:
                    continue
                connection = socket.socket(fileno=descriptor)
            self._received(message, connection)

    def _end_of_channel(self) -> None:
        if self._open:
            self.close()
            self._lost()
