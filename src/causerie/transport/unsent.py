"""What of all that was written to a connection the other side's system has not taken yet."""

from __future__ import annotations

import asyncio
import struct
import sys

if sys.platform == "linux":
    import fcntl
    import termios

    def unsent(transport: asyncio.Transport) -> int | None:
        """So many bytes; ``None`` where nobody can tell.

        A side that closes says with its last packet what it has taken until then, so this is
        exact when the end has just been heard.
        """
        handle = transport.get_extra_info("socket")
        if handle is None:
            return None
        try:
            queued = fcntl.ioctl(handle.fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return None
        return transport.get_write_buffer_size() + int(struct.unpack("i", queued)[0])

else:

    def unsent(transport: asyncio.Transport) -> int | None:
        """``None``: nobody can tell."""
        del transport
        return None
